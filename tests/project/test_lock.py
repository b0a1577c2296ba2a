"""uv.lock: what `make` and the Dockerfile install. `make lint` checks that it follows pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
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
    addresses = [
        artefact["url"]
        for package in OTHERS
        for artefact in [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
    ]
    assert len(addresses) > 1000
    assert {urlsplit(address)[:2] for address in addresses} == {("https", "files.pythonhosted.org")}
    assert {package["source"]["registry"] for package in OTHERS} == {"https://pypi.org/simple"}


@pytest.mark.parametrize(("name", "version"), ABOVE.items())
def test_lower_bounds_are_above_the_known_advisories(name, version):
    project = PROJECT["project"]
    lines = [
        *PROJECT["build-system"]["requires"],
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    bounds = [
        Version(bound.version)
        for line in lines
        if Requirement(line).name == name
        for bound in Requirement(line).specifier
        if bound.operator == ">="
    ]
    assert bounds and min(bounds) >= Version(version)
    locked = [Version(package["version"]) for package in OTHERS if package["name"] == name]
    assert locked and min(locked) >= Version(version)


def test_the_image_is_made_of_what_is_locked():
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    installed = re.findall(r"pip install (.+?)(?:\\|&&|$)", dockerfile, re.MULTILINE)
    assert len(installed) == 4, installed
    for command in installed:
        assert command.strip() == "--no-cache-dir uv" or "--no-deps" in command, command
    assert "!uv.lock" in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
