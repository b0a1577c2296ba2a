"""The REST API does what its OpenAPI description says, whatever it is sent: schemathesis makes requests from it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from web_servers import Web, web_server

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

OPENAPI = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text(encoding="utf-8"))
ROUTES = [
    (path, method, mode)
    for path, methods in OPENAPI["paths"].items()
    for method, route in methods.items()
    for mode in ("positive", *["negative"] * bool({"parameters", "requestBody"} & route.keys()))
]
REFUSED = ["400", "401", "403", "404", "405", "413", "415", "422"]
# That a filter can be read, or a recipe exists, is not in the schema: such requests get 400.
CHECKS = {
    "positive_data_acceptance": {"expected-statuses": ["200", "202", "400", "404", "422"]},
    "negative_data_rejection": {"expected-statuses": REFUSED},
}


@schemathesis.serializer("application/x-ndjson")
def _as_text(context: Any, value: Any) -> bytes:
    return str(value).encode("utf-8", "replace")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web_server(tmp_path_factory.mktemp("openapi")) as start:
        started = start(requests=1_000_000, checks=1_000_000)
        started.check()
        yield started


@pytest.mark.parametrize(("path", "method", "mode"), ROUTES)
def test_every_route_keeps_to_its_schema(web: Web, path: str, method: str, mode: str) -> None:
    config = schemathesis.Config.from_dict({"checks": CHECKS})
    operation = schemathesis.openapi.from_dict(OPENAPI, config=config)[path][method]

    @given(case=operation.as_strategy(schemathesis.GenerationMode(mode)))
    @settings(
        max_examples=12, derandomize=True, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    def asked(case: Any) -> None:
        # Any text is a file of claims.
        unfit = [schemathesis.checks.CHECKS.get_one("negative_data_rejection")] if path.endswith("/many") else []
        case.call_and_validate(base_url=web.url, excluded_checks=unfit)

    asked()
