"""No text that leaves the process shows a secret: what is known as one, and what looks like one."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import BM25, Ran, entry_point, jsonl
from echoing_servers import all_headers, judging, listening, ranking, refusing

from ccheck.core.errors import InvalidData
from ccheck.core.http import Patience
from ccheck.core.redaction import Redacting, keep_secret, keep_secrets_of, redact, without_secrets
from ccheck.core.settings import resolve
from ccheck.llm.client import ChatClient
from ccheck.rerank.remote import RemoteReranker

PASSWORD, TOKEN, KEY = "hunter2-of-the-reranker", "tok-5f1e9c77a0", "rk-0123456789abcdef"
CLAIM = "vaccines cause autism"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at https://me:p@ss@host/x, gone", "at https://***@host/x, gone"),
        ("https://me:pa/ss@host:1", "https://***@host:1"),
        ("https://me@host", "https://***@host"),
        ("'https://host/r?model=a&token=t0&k=3'", "'https://host/r?model=a&token=***&k=3'"),
        ("http://h/?api_key=a&access_token=b", "http://h/?api_key=***&access_token=***"),
        ("http://h/?X-Api-Key=c;sig=d", "http://h/?X-Api-Key=***;sig=***"),
        ('{"Authorization": "Bearer abc"}', '{"Authorization": "***"}'),
        ("authorization: Basic YTpi", "authorization: ***"),
        ("sent Bearer 0123456789abcdef.x", "sent Bearer ***"),
        ("Incorrect API key provided: sk-proj-12***89", "Incorrect API key provided: ***"),
        ("hf_abcdefghij is refused", "*** is refused"),
        ("https://host:9200/papers refuses this: set ELASTICSEARCH_API_KEY", None),
        ("hf-internal-testing/tiny-random-bert is not here", None),
        ("Basic authentication; the author=Smith, key = value", None),
        ("http://127.0.0.1:8080/rerank?model=BAAI/bge-reranker-v2-m3", None),
        ("write to me@example.org, or see https://example.org/a?b=c", None),
        ("retrievers.bm25.depth=10,20 and --replace a=b", None),
    ],
)
def test_what_looks_like_a_secret_and_what_stays(text, shown):
    assert redact(text) == (shown or text)


def test_a_known_secret_in_all_its_spellings_and_those_of_a_url():
    keep_secret('s3cr@t "wörd" & more')
    for said in (
        's3cr@t "wörd" & more',
        json.dumps('s3cr@t "wörd" & more'),
        "s3cr%40t%20%22w%C3%B6rd%22%20%26%20more",
        "s3cr@t &quot;wörd&quot; &amp; more",
    ):
        assert "***" in without_secrets(f"before{said}after") and "rd" not in without_secrets(said)
    keep_secret("eleven", "12345678", "abc")
    assert without_secrets("eleven, elevenths") == "***, elevenths"
    assert without_secrets('{"year": 12345678} abc') == '{"year": 12345678} abc'
    keep_secrets_of("https://user:pass%2Fword-1@host/?token=token-of-the-url&model=harmless-name")
    keep_secrets_of("https://only-a-token@host")
    said = "pass/word-1 pass%2Fword-1 dXNlcjpwYXNzL3dvcmQtMQ== token-of-the-url only-a-token harmless-name"
    assert without_secrets(said) == "*** *** *** *** *** harmless-name"
    keep_secrets_of("http://[")  # no URL


def test_errors_streams_and_settings_show_none(tmp_path):
    keep_secret("in-an-error-1")
    error = InvalidData("in-an-error-1 at http://a:b@c")
    assert f"{error} {error!r} {error.args}".count("***") == 6 and "in-an-error" not in repr(error)
    keep_secret("in-a-stream-1")
    with (tmp_path / "f").open("w") as file:
        stream = Redacting(file)
        assert stream.write("in-a-stream-1\n") == 14 and stream.fileno() == file.fileno()
        stream.writelines(["x", "in-a-stream-1"])
    assert (tmp_path / "f").read_text() == "***\nx***"
    settings = resolve({"rerank": "http://u:of-the-repr@h", "elasticsearch_url": "http://u:of-the-repr@h"}, {}).settings
    assert "of-the-repr" not in f"{settings!r} {settings}" + without_secrets("said: of-the-repr")


def test_what_httpx_logs(caplog):
    """Its line for each request has the whole URL."""
    with listening(ranking) as server, caplog.at_level(logging.DEBUG):
        url = f"http://me:{PASSWORD}@127.0.0.1:{server.port}/v1/rerank?token={TOKEN}"
        RemoteReranker(url, api_key=KEY)("a claim", ["one", "two"])
        assert TOKEN in server.asked[0].query
    assert "HTTP Request" in caplog.text
    assert not shown(caplog.text)


def test_what_a_language_model_s_client_logs(caplog):
    """Headers of answers among it: this server has the key in one."""
    with listening(judging) as server, caplog.at_level(logging.DEBUG):
        asking = ChatClient(f"{server.url}/v1", KEY, 10, Patience(0, print))
        asyncio.run(asking.complete("m", [{"role": "user", "content": "a claim"}], {}))
        assert KEY in all_headers(server)
    assert "x-echo" in caplog.text
    assert not shown(caplog.text)


def shown(text: str) -> list[str]:
    return [secret for secret in (PASSWORD, TOKEN, KEY, "bWU6aHVudGVyMi1vZi10aGUtcmVyYW5rZXI=") if secret in text]


def written(folder: Path) -> str:
    return "".join(file.read_text(encoding="utf-8", errors="replace") for file in folder.rglob("*") if file.is_file())


@pytest.mark.slow
def test_a_reranking_server_that_says_what_it_was_sent(papers, tmp_path):
    """A URL with a password and a token, and a key, by every command that asks a reranker or names it."""
    claims = jsonl(tmp_path / "claims.jsonl", {"_id": "1", "text": CLAIM})
    qrels = jsonl(tmp_path / "qrels.tsv", "1 0 madsen-2002 1")
    out = tmp_path / "out"
    out.mkdir()
    for answer in (ranking, refusing):
        with listening(answer) as server:
            url = f"http://me:{PASSWORD}@127.0.0.1:{server.port}/v1/rerank?token={TOKEN}"
            mine = tmp_path / "mine.toml"
            mine.write_text(f'extends = "bm25"\nname = "{url}"\n[rerankers.rerank]\nmodel = "{url}"\n')
            common = ("--store", papers, "--verdict", "none")
            measured = ("--claims", claims, "--qrels", qrels, "--store", papers)
            runs: list[tuple[dict[str, str], tuple[object, ...]]] = [
                ({"CCHECK_RERANK": url}, ("query", CLAIM, *BM25, *common, "--explain", "--report", out / "a.html")),
                ({}, ("query", "--claims", claims, "--recipe", mine, *common, "--run", out / "b.run")),
                ({}, ("query", CLAIM, "--recipe", mine, *common, "--json", "--report", out / "c.html")),
                ({}, ("evaluate", mine, *measured, "--run", out / "d.run", "--json")),
                ({}, ("evaluate", mine, *measured)),
                ({}, ("evaluate", mine, *measured, "--grid", "rerankers.rerank.depth=2,3")),
                ({"CCHECK_RERANK_URL": url}, ("doctor", "--store", papers)),
                ({"CCHECK_RERANK": url}, ("doctor", "--store", papers, "--json")),
                ({"CCHECK_RERANK": url, "CCHECK_RERANK_URL": url}, ("config",)),
                ({"CCHECK_RERANK": url}, ("config", "--json")),
                ({}, ("recipes", "show", mine)),
                ({}, ("recipes", "check", mine)),
            ]
            ran = [
                entry_point(*arguments, CCHECK_RERANK_API_KEY=KEY, CCHECK_RERANK_RETRY_SECONDS="0", **more)
                for more, arguments in runs
            ]
            assert server.asked and TOKEN in server.asked[0].query
        for (_, arguments), one in zip(runs, ran, strict=True):
            assert "a bug" not in one.err, one.err
            assert not shown(one.out + one.err), (arguments, one)
    assert {file.name for file in out.iterdir()} >= {"a.html", "b.run", "c.html"}
    assert not shown(written(out))


def test_a_language_model_that_says_what_it_was_sent(papers):
    for answer in (judging, refusing):
        with listening(answer) as server:
            variables = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": KEY, "CCHECK_LLM_RETRY_SECONDS": "0"}
            asked = ("query", CLAIM, *BM25, "--store", papers, "--llm", "m", "-k", 1, "--json")
            ran = entry_point(*asked, **variables)
            assert KEY in all_headers(server)
        assert "a bug" not in ran.err and "***" in ran.out + ran.err
        assert not shown(ran.out + ran.err)
        assert ran.code == (0 if answer is judging else 6), ran


def test_an_elasticsearch_that_says_what_it_was_sent():
    """In errors, and in what it says of itself."""
    with listening(refusing) as server:
        url = f"http://me:{PASSWORD}@127.0.0.1:{server.port}/papers?token={TOKEN}"
        runs = [
            entry_point(*command, "--store", url, **variables)
            for variables in ({}, {"ELASTICSEARCH_API_KEY": KEY})
            for command in (("query", CLAIM), ("doctor",), ("index", "info"))
        ]
        assert KEY in all_headers(server)
    for ran in runs:
        assert "a bug" not in ran.err and not shown(ran.out + ran.err), ran


def test_a_url_that_is_none_is_named_without_its_password(papers):
    for arguments in (
        ("query", CLAIM, "--store", f"htps://me:{PASSWORD}@host/papers"),
        ("query", CLAIM, "--store", f"https://me:{PASSWORD}/x@host:9200/papers"),
        ("query", CLAIM, "--store", papers, *BM25, "--rerank", f"http://me:{PASSWORD}@:1x/rerank"),
    ):
        ran = entry_point(*arguments)
        assert ran.code != 0 and "a bug" not in ran.err and not shown(ran.out + ran.err), ran


def test_a_bug_s_traceback_shows_none():
    """With CCHECK_DEBUG=1 Python itself writes to standard error."""
    broken = f"""
import sys, ccheck.core.recipe, ccheck.core.redaction, ccheck.cli
ccheck.core.redaction.keep_secret({KEY!r})
def broken(): raise RuntimeError({KEY!r})
ccheck.core.recipe.recipe_names = broken
sys.argv = ["ccheck", "recipes", "list"]
ccheck.cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", broken], capture_output=True, env=os.environ | {"CCHECK_DEBUG": "1"}, check=False
    )
    ran = Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert ran.code == 1 and "RuntimeError: ***" in ran.err and not shown(ran.err)
