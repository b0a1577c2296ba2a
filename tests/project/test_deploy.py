"""The files to deploy with are valid, hold no secret, and agree with the image and with each other."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
from elasticsearch_nodes import VERSION
from packaging.requirements import Requirement
from packaging.version import Version
from ruamel.yaml import YAML

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
SERVICES: dict[str, dict[str, Any]] = YAML(typ="safe").load(COMPOSE)["services"]
ROOT = COMPOSE.parent
ELASTIC = ("elasticsearch", "kibana")
RERANK = ("rerank", "rerank-gpu")
ONCE = "dashboards"
"""It does its work and ends."""
LASTING = {name: service for name, service in SERVICES.items() if name != ONCE}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")

SECRET = re.compile(r"(?:passw|secret|token|credential|api_?key|encryption_?key)[\w.]*[\"']?\s*[:=]\s*(.+)", re.I)
FROM_ENVIRONMENT = re.compile(r"[\"']?\$\{\w+(?::?\?[^}]*|:-(?:\$\{\w+:-\})?)?\}[\"']?")


def test_it_follows_the_compose_specification_and_no_secret_is_written_in_it() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for line in COMPOSE.read_text(encoding="utf-8").splitlines():
        names = line.lstrip().startswith(("#", "secrets: [")) or "/run/secrets/" in line or "_FILE:-" in line
        if (found := SECRET.search(line)) and not names:
            assert FROM_ENVIRONMENT.fullmatch(found[1].strip()), line


@pytest.mark.parametrize("service", LASTING.values(), ids=LASTING)
def test_a_service_is_there_for_this_machine_alone_with_a_health_check_and_a_memory_limit(service) -> None:
    assert service["ports"] and all(str(port).startswith("127.0.0.1:") for port in service["ports"])
    assert "network_mode" not in service
    assert service["healthcheck"]["test"] and service["mem_limit"]


def test_the_versions_are_the_ones_that_the_tests_run() -> None:
    assert all(SERVICES[name]["image"].endswith(f":${{ELASTIC_VERSION:-{VERSION}}}") for name in ELASTIC)
    # The schemas come with the operator: only what ccheck relies on is compared.
    found = {one["kind"]: one for one in ECK}
    assert [found[kind]["spec"]["version"] for kind in ("Elasticsearch", "Kibana")] == [VERSION] * len(found)
    name = found["Elasticsearch"]["metadata"]["name"]
    assert found["Kibana"]["spec"]["elasticsearchRef"] == {"name": name}
    assert f"https://{name}-es-http:9200" in str(OURS) and f"{name}-es-http-certs-public" in str(OURS)


def test_the_sidecar_has_a_profile_a_volume_for_models_and_the_variables_of_its_flags() -> None:
    from ccheck.cli.serve import KEY, rerank

    known = {option.envvar for option in rerank.params} | {KEY, "HF_TOKEN"}
    for name in RERANK:
        assert SERVICES[name]["profiles"] and "models:/models" in SERVICES[name]["volumes"]
        assert set(SERVICES[name]["environment"]) <= known
    assert set(SERVICES) == {*ELASTIC, *RERANK, "web", ONCE}
    assert set(re.findall(r"CCHECK_\w+", DOCKERFILE)) <= known


def test_the_service_takes_its_keys_from_a_file_and_its_settings_from_ccheck(tmp_path: Path) -> None:
    from ccheck.cli.serve import web as serve_web
    from ccheck.core.settings import Settings

    web, once = SERVICES["web"], SERVICES[ONCE]
    assert web["secrets"] == ["api_keys"] and "cat /run/secrets/api_keys" in web["entrypoint"][-1]
    entry = web["entrypoint"][-1].replace("$$", "$").replace("/run/secrets/api_keys", str(tmp_path))  # a folder
    ran = subprocess.run(["sh", "-c", entry], capture_output=True, text=True)
    assert ran.returncode == 1 and "CCHECK_API_KEYS_FILE" in ran.stderr
    given = web["environment"]
    assert {"CCHECK_RERANK_API_KEY", "OPENAI_API_KEY", "CCHECK_WEB_HTTPS"} < {*given} and ":-}" in given[
        "CCHECK_RERANK_URL"
    ]
    flags = {option.envvar for option in serve_web.params}
    ours = {name.removeprefix("CCHECK_").lower() for name in given.keys() - flags if name.startswith("CCHECK_")}
    assert ours <= set(Settings.model_fields) and once["environment"] == given
    assert once["profiles"] == [ONCE] and once["mem_limit"] and "ports" not in once


def test_the_image_is_made_of_what_the_package_is_and_what_is_locked_and_runs_as_nobody() -> None:
    project = PROJECT["project"]
    rooms = {name.split(".")[1] for name in PROJECT["tool"]["setuptools"]["packages"] if "." in name}
    needed = {*rooms, "__init__.py", "__main__.py", "py.typed", "pyproject.toml", "uv.lock"}
    needed |= {project["readme"], *project["license-files"]}
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines and {line[1:] for line in lines if line.startswith("!")} == needed
    installed = re.findall(r"pip install (.+?)(?:\\|&&|$)", DOCKERFILE, re.MULTILINE)
    assert len(installed) == 4, installed
    for command in installed:
        assert command.strip() == "--no-cache-dir uv" or "--no-deps" in command, command
    assert {"models", "documents", "mcp", "pages", "telemetry"} == set(re.findall(r"--extra (\w+)", DOCKERFILE))
    commands = [line.split()[0] for line in DOCKERFILE.splitlines() if re.match(r"[A-Z]+ ", line)]
    assert commands.index("USER") < commands.index("ENTRYPOINT") and "HEALTHCHECK" in commands
    assert re.search(r"^USER (?!root|0)", DOCKERFILE, re.MULTILINE)
    assert not SECRET.search(DOCKERFILE)


# -- the manifests of deploy/ are valid, name no secret, and agree with the image and with each other


KUBERNETES = ROOT / "deploy" / "kubernetes.yaml"
OURS: list[dict[str, Any]] = list(YAML(typ="safe").load_all(KUBERNETES))
ECK: list[dict[str, Any]] = list(YAML(typ="safe").load_all(ROOT / "deploy" / "eck.yaml"))
MONITORS: list[dict[str, Any]] = list(YAML(typ="safe").load_all(ROOT / "deploy" / "prometheus.yaml"))


@pytest.mark.parametrize("manifest", OURS, ids=[f"{one['kind']}-{one['metadata']['name']}" for one in OURS])
def test_it_follows_kubernetes_own_schemas(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("deployment", [one for one in OURS if one["kind"] == "Deployment"])
def test_a_deployment_is_locked_down_and_takes_keys_from_a_secret(deployment: dict[str, Any]) -> None:
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"]["memory"]
    keys = {one["name"]: one for one in container["env"] if "KEY" in one["name"]}
    assert keys and all("value" not in one and one["valueFrom"]["secretKeyRef"] for one in keys.values())
    assert f"\nUSER {pod['securityContext']['runAsUser']}\n" in DOCKERFILE
    (monitor,) = (one["spec"] for one in MONITORS if one["spec"]["selector"] == deployment["spec"]["selector"])
    (scraped,) = monitor["podMetricsEndpoints"]
    assert scraped["port"] in {port["name"] for port in container["ports"]}
    credentials = scraped["authorization"]["credentials"]
    assert credentials["name"] == "ccheck" and f"--from-literal={credentials['key']}=" in KUBERNETES.read_text("utf-8")


# -- uv.lock: what `make` and the Dockerfile install. `make lint` checks that it follows pyproject.toml

LOCK = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
OTHERS = [package for package in LOCK["package"] if package["name"] != PROJECT["project"]["name"]]

ABOVE = {
    "filelock": "3.20.3",  # CVE-2025-68146, CVE-2026-22701: links in the place of the lock
    "fastapi": "0.121",  # the first that takes that Starlette
    "h11": "0.16",  # CVE-2025-43859: chunked bodies read leniently
    "jinja2": "3.1.6",  # CVE-2025-27516: out of the sandbox
    "orjson": "3.11.6",  # CVE-2025-67221: recursion without end
    "pyarrow": "23.0.1",  # CVE-2026-25087: memory used after it was freed
    "pytest": "9.0.3",  # CVE-2025-71176: a temporary folder that others foresee
    "setuptools": "78.1.1",  # CVE-2025-47273: paths out of the folder
    "starlette": "0.49.1",  # CVE-2025-54121, CVE-2025-62727: forms and ranges that take all time
    "torch": "2.10",  # CVE-2025-32434, CVE-2026-24747: code in weights
    "transformers": "4.53",  # CVE-2025-5197 and others: expressions that take all time
    "urllib3": "2.6.3",  # CVE-2025-66418, CVE-2025-66471, CVE-2026-21441: decompression without a limit
}
"""The oldest versions without the advisories that were known when this was written."""


def test_the_lock_names_public_places_alone():
    files = [file for package in OTHERS for file in [*package.get("wheels", []), package.get("sdist")] if file]
    addresses = [file["url"] for file in files]
    assert len(addresses) > 1000
    assert {urlsplit(address)[:2] for address in addresses} == {("https", "files.pythonhosted.org")}
    assert {package["source"]["registry"] for package in OTHERS} == {"https://pypi.org/simple"}


@pytest.mark.parametrize(("name", "version"), ABOVE.items())
def test_lower_bounds_are_above_the_known_advisories(name, version):
    project = PROJECT["project"]
    lines = [*PROJECT["build-system"]["requires"], *project["dependencies"]]
    lines += [line for extra in project["optional-dependencies"].values() for line in extra]
    asked = [one for one in map(Requirement, lines) if one.name == name]
    bounds = [Version(bound.version) for one in asked for bound in one.specifier if bound.operator == ">="]
    locked = [Version(package["version"]) for package in OTHERS if package["name"] == name]
    assert bounds and locked and min(bounds + locked) >= Version(version)
