"""The tools for language models' programs, with the SDK's own client, over both transports."""

import asyncio
import os
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest
from cli_runs import command
from web_servers import CLAIM, KEYS, PAPERS

mcp = pytest.importorskip("mcp")


async def asked(client: Any) -> dict[str, Any]:
    """What each tool says, and how it is described."""
    tools = (await client.list_tools()).tools
    assert all(one.annotations.read_only_hint and one.output_schema and "  " not in one.description for one in tools)
    calls = {
        "check_claim": {"claim": CLAIM, "k": 3},
        "search_evidence": {"query": "ice melts", "k": 1},
        "get_paper": {"doc_id": "sea"},
        "describe_collection": {},
    }
    assert {one.name for one in tools} == calls.keys()
    return {name: await client.call_tool(name, given) for name, given in calls.items()}


def test_over_http(web):
    async def run() -> dict[str, Any]:
        async with mcp.Client(f"{web.url}/mcp") as client:
            said = await asked(client)
            await client.call_tool("check_claim", {"claim": f"{CLAIM} Again."}, progress_callback=told)
            said["missing"] = await client.call_tool("get_paper", {"doc_id": "nobody"})
            said["wrong"] = await client.call_tool("check_claim", {"claim": CLAIM, "filters": ["yeer>1"]})
            said["unfit"] = await client.call_tool("check_claim", {"claim": CLAIM, "filters": [3]})
            said["unknown"] = await client.call_tool("check_claim", {"claim": CLAIM, "filter": ["year>1"]})
            corrections = f"/v1/checks/{said['check_claim'].structured_content['id']}/corrections"
            assert web.client.post(corrections, json={"what": "wrong verdict", "label": "REFUTES"}).is_success
            said["again"] = await client.call_tool("check_claim", {"claim": CLAIM, "k": 3})
            return said

    told = AsyncMock()
    said = asyncio.run(run())
    assert [told.call_args_list[place].args[2] for place in (0, -1)] == ["queries", "done"]
    checked = said["check_claim"].structured_content
    assert checked["verdict"] == "CONFLICTING" and checked["tokens"] == 0
    assert {one["doc_id"]: (one["stance"], one["leans"]) for one in checked["papers"]}["gauge"] == ("REFUTES", False)
    assert checked["papers"][0]["sentences"] and checked["gaps"]
    assert (checked["method"], checked["permalink"]) == ("words", None)
    assert web.client.get(f"/v1/checks/{checked['id']}").status_code == 200
    assert [one["doc_id"] for one in said["search_evidence"].structured_content["papers"]] == ["ice"]
    assert said["get_paper"].structured_content["text"] == PAPERS[0]["text"]
    assert said["describe_collection"].structured_content["documents"] == 3
    assert said["missing"].is_error and "nobody" in said["missing"].content[0].text
    new = set(said["again"].structured_content["warnings"]) - set(checked["warnings"])
    assert new == {"a person corrected this answer: wrong verdict, REFUTES is right"}
    assert said["wrong"].is_error and "yeer" in said["wrong"].content[0].text
    assert said["unknown"].content[0].text == "check_claim has no argument 'filter'. It has claim, filters, k"
    assert said["unfit"].content[0].text == "wrong arguments of check_claim: filters.0: Input should be a valid string"


def test_over_stdio(with_papers, tmp_path):
    from mcp.client.stdio import StdioServerParameters, stdio_client

    program, *arguments = command("serve", "mcp", *with_papers)
    environ = os.environ | {"CCHECK_PUBLIC_URL": "https://facts.example"}
    parameters = StdioServerParameters(command=program, args=arguments, env=environ, cwd=tmp_path)

    async def run() -> dict[str, Any]:
        async with mcp.Client(stdio_client(parameters)) as client:
            return await asked(client)

    said = asyncio.run(run())
    assert said["get_paper"].structured_content["title"] == "Sea level"
    checked = said["check_claim"].structured_content
    assert checked["papers"] and checked["permalink"] == f"https://facts.example/checks/{checked['id']}"


def test_with_keys_each_tool_needs_its_right(serve_web):
    web = serve_web(keys=KEYS)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert web.client.post("/mcp", json=body).status_code == 401

    async def run() -> Any:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        headers = {"Authorization": "Bearer reader-0123456789"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            mcp.Client(streamable_http_client(f"{web.url}/mcp", http_client=http)) as client,
        ):
            refused = await client.call_tool("check_claim", {"claim": CLAIM})
            return refused, await client.call_tool("describe_collection", {})

    refused, described = asyncio.run(run())
    assert refused.is_error and "lacks the right check" in refused.content[0].text
    assert not described.is_error


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example"}])
def test_no_page_of_another_site_calls_tools(web, headers):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert httpx.post(f"{web.url}/mcp", json=body, headers=headers).status_code in (403, 421)
