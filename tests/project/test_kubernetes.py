"""The manifests of deploy/ are valid, name no secret, and agree with the image and with each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from elasticsearch_nodes import VERSION
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
OURS: list[dict[str, Any]] = list(YAML(typ="safe").load_all(ROOT / "deploy" / "kubernetes.yaml"))
ELASTIC: list[dict[str, Any]] = list(YAML(typ="safe").load_all(ROOT / "deploy" / "eck.yaml"))


@pytest.mark.parametrize("manifest", OURS, ids=[f"{one['kind']}-{one['metadata']['name']}" for one in OURS])
def test_it_follows_kubernetes_own_schemas(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_the_operators_resources_are_of_the_version_that_the_tests_run() -> None:
    """Their schemas come with the operator: only what ccheck relies on is compared."""
    found = {one["kind"]: one for one in ELASTIC}
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
