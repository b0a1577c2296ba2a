"""The files to deploy with are valid, hold no secret, and agree with the image and with each other."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from elasticsearch_nodes import VERSION
from ruamel.yaml import YAML

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
SERVICES: dict[str, dict[str, Any]] = YAML(typ="safe").load(COMPOSE)["services"]
ELASTIC = ("elasticsearch", "kibana")
RERANK = ("rerank", "rerank-gpu")
ONCE = "dashboards"
"""It does its work and ends."""
LASTING = {name: service for name, service in SERVICES.items() if name != ONCE}
services = pytest.mark.parametrize("service", LASTING.values(), ids=LASTING)

SECRET = re.compile(r"(?:passw|secret|token|credential|api_?key|encryption_?key)[\w.]*[\"']?\s*[:=]\s*(.+)", re.I)
FROM_ENVIRONMENT = re.compile(r"[\"']?\$\{\w+(?::?\?[^}]*)?\}[\"']?")


def test_it_follows_the_compose_specification() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@services
def test_every_port_is_published_on_this_machine_alone(service: dict[str, Any]) -> None:
    assert service["ports"]
    for port in service["ports"]:
        assert str(port).startswith("127.0.0.1:")
    assert "network_mode" not in service


@services
def test_every_service_has_a_health_check_and_a_memory_limit(service: dict[str, Any]) -> None:
    assert service["healthcheck"]["test"]
    assert service["mem_limit"]


@pytest.mark.parametrize("service", ELASTIC)
def test_the_version_is_the_one_that_the_tests_run(service: str) -> None:
    assert SERVICES[service]["image"].endswith(f":${{ELASTIC_VERSION:-{VERSION}}}")


def test_no_secret_is_written_in_it() -> None:
    for line in COMPOSE.read_text(encoding="utf-8").splitlines():
        names = line.lstrip().startswith(("#", "secrets: [")) or "/run/secrets/" in line or "_FILE:-" in line
        if (found := SECRET.search(line)) and not names:
            assert FROM_ENVIRONMENT.fullmatch(found[1].strip()), line


@pytest.mark.parametrize("service", RERANK)
def test_the_sidecar_is_started_by_its_profile_alone_and_keeps_models_in_a_volume(service: str) -> None:
    assert SERVICES[service]["profiles"] and "models:/models" in SERVICES[service]["volumes"]
    assert set(SERVICES) == {*ELASTIC, *RERANK, "web", ONCE}


@pytest.mark.parametrize("service", RERANK)
def test_the_variables_of_the_sidecar_are_those_of_its_flags(service: str) -> None:
    from ccheck.cli.serve import KEY, rerank

    known = {option.envvar for option in rerank.params} | {KEY, "HF_TOKEN"}
    assert set(SERVICES[service]["environment"]) <= known
    dockerfile = (COMPOSE.parent / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"CCHECK_\w+", dockerfile)) <= known


def test_the_service_takes_its_keys_from_a_file_and_its_settings_from_ccheck() -> None:
    from ccheck.core.settings import Settings

    web, once = SERVICES["web"], SERVICES[ONCE]
    assert web["secrets"] == ["api_keys"] and "cat /run/secrets/api_keys" in web["entrypoint"][-1]
    ours = {name.removeprefix("CCHECK_").lower() for name in web["environment"] if name.startswith("CCHECK_")}
    assert ours <= set(Settings.model_fields) and once["environment"] == web["environment"]
    assert once["profiles"] == [ONCE] and once["mem_limit"] and "ports" not in once


def test_the_image_is_made_of_what_the_package_is_made_of() -> None:
    project = tomllib.loads((COMPOSE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    rooms = {name.split(".")[1] for name in project["tool"]["setuptools"]["packages"] if "." in name}
    needed = {
        *rooms,
        "__init__.py",
        "__main__.py",
        "py.typed",
        "pyproject.toml",
        "uv.lock",
        project["project"]["readme"],
        *project["project"]["license-files"],
    }
    lines = (COMPOSE.parent / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines and {line[1:] for line in lines if line.startswith("!")} == needed


def test_the_image_runs_as_nobody_in_particular_and_tells_its_health() -> None:
    dockerfile = (COMPOSE.parent / "Dockerfile").read_text(encoding="utf-8")
    commands = [line.split()[0] for line in dockerfile.splitlines() if re.match(r"[A-Z]+ ", line)]
    assert commands.index("USER") < commands.index("ENTRYPOINT") and "HEALTHCHECK" in commands
    assert re.search(r"^USER (?!root|0)", dockerfile, re.MULTILINE)
    assert not SECRET.search(dockerfile)


# -- the manifests of deploy/ are valid, name no secret, and agree with the image and with each other


ROOT = Path(__file__).parents[2]
OURS: list[dict[str, Any]] = list(YAML(typ="safe").load_all(ROOT / "deploy" / "kubernetes.yaml"))
ECK: list[dict[str, Any]] = list(YAML(typ="safe").load_all(ROOT / "deploy" / "eck.yaml"))


@pytest.mark.parametrize("manifest", OURS, ids=[f"{one['kind']}-{one['metadata']['name']}" for one in OURS])
def test_it_follows_kubernetes_own_schemas(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_the_operators_resources_are_of_the_version_that_the_tests_run() -> None:
    """Their schemas come with the operator: only what ccheck relies on is compared."""
    found = {one["kind"]: one for one in ECK}
    assert {kind: one["spec"]["version"] for kind, one in found.items()} == {
        "Elasticsearch": VERSION,
        "Kibana": VERSION,
    }
    name = found["Elasticsearch"]["metadata"]["name"]
    assert found["Kibana"]["spec"]["elasticsearchRef"] == {"name": name}
    assert f"https://{name}-es-http:9200" in str(OURS) and f"{name}-es-http-certs-public" in str(OURS)


@pytest.mark.parametrize("deployment", [one for one in OURS if one["kind"] == "Deployment"])
def test_a_deployment_is_locked_down_and_takes_keys_from_a_secret(deployment: dict[str, Any]) -> None:
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    assert (
        container["securityContext"]["capabilities"] == {"drop": ["ALL"]} and container["resources"]["limits"]["memory"]
    )
    keys = {one["name"]: one for one in container["env"] if "KEY" in one["name"]}
    assert keys and all("value" not in one and one["valueFrom"]["secretKeyRef"] for one in keys.values())
    user = next(line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("USER "))
    assert user == f"USER {pod['securityContext']['runAsUser']}"
