"""docker-compose.yml is valid, reachable from this machine alone, and holds no secret."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from elasticsearch_nodes import VERSION
from ruamel.yaml import YAML

COMPOSE = Path(__file__).parents[1] / "docker-compose.yml"
SERVICES: dict[str, dict[str, Any]] = YAML(typ="safe").load(COMPOSE)["services"]
services = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)

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


@services
def test_the_version_is_the_one_that_the_tests_run(service: dict[str, Any]) -> None:
    assert service["image"].endswith(f":${{ELASTIC_VERSION:-{VERSION}}}")


def test_no_secret_is_written_in_it() -> None:
    for line in COMPOSE.read_text(encoding="utf-8").splitlines():
        if (found := SECRET.search(line)) and not line.lstrip().startswith("#"):
            assert FROM_ENVIRONMENT.fullmatch(found[1].strip()), line
