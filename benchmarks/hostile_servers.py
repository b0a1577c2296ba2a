"""Ask misbehaving servers for stances and scores, and count wrong labels, leaked keys, requests and memory.

    python benchmarks/hostile_servers.py [--mib N] [--json]

Every reply in `tests/pipeline/hostile_replies.py` answers three requests: what a paper says about a claim (strategies
one-step and two-step), listwise reranking, and claim rewriting. The client of a reranking server gets the redirects and
bombs too. None of them may become a label, an order or a text. Bombs decode to N MiB (1,024) or never end. No error may
contain the key, and no request may reach the host that redirects point to. The server sends Retry-After: 0 for ten
seconds. The exit code is 1 if anything went wrong.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "pipeline"))

import hostile_replies
from hostile_replies import CLAIM, KEY, STANCE, TEXT, HostileServer, Raw, completion, hostile

from ccheck.core.errors import CcheckError
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import ListwiseStage, RewritingStage, VerdictStage
from ccheck.core.types import Claim, Document, Evidence, Hit
from ccheck.llm.model import LanguageModel, open_llm
from ccheck.pipeline.rewriting import rewrite
from ccheck.rerank.listwise import ListwiseReranker
from ccheck.rerank.remote import RemoteReranker
from ccheck.verdict.judge import Case, all_judged
from ccheck.verdict.llm import LlmStances

CASE = Case(Claim(CLAIM), (Evidence(Hit(1, Document("d", "On vaccines", TEXT), 1.0)),))
Asked = Callable[[LanguageModel], str | None]
"""What became of one question: the error, or None if something was taken from the reply."""


def judged(strategy: str) -> Asked:
    def ask(model: LanguageModel) -> str | None:
        (one,) = all_judged(LlmStances(model, VerdictStage(strategy=strategy)), [CASE])
        return None if one.stances[0].label is not None else one.stances[0].error

    return ask


def ordered(model: LanguageModel) -> str | None:
    try:
        ListwiseReranker(model, ListwiseStage())("sea", ["a", "b"])
    except CcheckError as error:
        return str(error)
    return None


def rewritten(model: LanguageModel) -> str | None:
    (one,) = rewrite([CLAIM], {"rewrite"}, RewritingStage(required=False), model)
    return str(one.error) if one.error is not None else None


ASKED: dict[str, tuple[Asked, dict[str, object]]] = {
    "one-step": (judged("one-step"), STANCE),
    "two-step": (judged("two-step"), {"rationale": "So.", "relevant": False, "confidence": 0.9}),
    "listwise": (ordered, {"order": [2, 1]}),
    "rewriting": (rewritten, {"rewritten": "the sea rises"}),
}


@click.command()
@click.option("--mib", default=1024, show_default=True, help="Decoded size of a bomb, in MiB.")
@click.option("--json", "as_json", is_flag=True)
def main(mib: int, as_json: bool) -> None:
    counts: Counter[str] = Counter(wrong=0, keys_shown=0, reached_elsewhere=0)
    wrong: list[str] = []
    with hostile() as server, hostile() as elsewhere, tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)

        def look(name: str, asked: Asked, **settings: object) -> None:
            values = {
                "llm_model": "m",
                "llm_api_key": KEY,
                "cache_dir": cache,
                "llm_retry_seconds": 0,
                "cache_bytes": 0,
            }
            with open_llm(Runtime(Settings.model_validate(values | {"llm_base_url": server.url} | settings))) as model:
                note(name, asked(model))

        def note(name: str, error: str | None) -> None:
            counts["replies"] += 1
            if error is None:
                counts["wrong"] += 1
                wrong.append(name)
            elif KEY in error:
                counts["keys_shown"] += 1
                wrong.append(f"{name}: the key")

        replies = hostile_replies.replies(elsewhere.url)
        for kind, (asked, good) in ASKED.items():
            server.answer = Raw(completion(json.dumps(good)))
            look(f"{kind}, as it should be", asked)
            if not wrong or wrong.pop() != f"{kind}, as it should be":
                sys.exit(f"{kind}: a good reply was not taken, so that this shows nothing")
            counts.subtract(wrong=1, replies=1)
            for name, reply in in_the_words_of(replies, good).items():
                server.answer = reply
                look(f"{kind}, {name}", asked)
        for status in hostile_replies.REDIRECTS:
            server.answer = Raw(b"", status, {"Location": elsewhere.url})
            note(f"reranker, redirect {status}", scored(server))
        counts["requests"] = server.requests

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for name, bomb in hostile_replies.bombs(mib << 20).items():
            resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # creating it took memory too
            server.answer = (
                bomb if isinstance(bomb.body, bytes) else Raw(hostile_replies.endless(), bomb.status, length=None)
            )
            look(f"one-step, {name}", ASKED["one-step"][0])
            note(f"reranker, {name}", scored(server))
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
            counts["most_mib_for_a_bomb"] = max(counts["most_mib_for_a_bomb"], grown >> 10)
        counts["bombs_made_mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10

        server.answer, server.requests = Raw(b"again", 429, {"Retry-After": "0"}), 0
        look("Retry-After: 0", ASKED["one-step"][0], llm_retry_seconds=10)
        counts["requests_in_10_s"] = server.requests
        counts["reached_elsewhere"] = elsewhere.requests
    figures = {**counts, "went_wrong": wrong}
    click.echo(json.dumps(figures) if as_json else "\n".join(f"{name:<22}{value}" for name, value in figures.items()))
    sys.exit(bool(wrong or counts["reached_elsewhere"] or counts["requests_in_10_s"] > 20))


def in_the_words_of(replies: dict[str, Raw], good: dict[str, object]) -> dict[str, Raw]:
    """The replies with another object in place of the stance; of texts those that are wrong for any shape."""
    if good is STANCE:
        return replies
    made = {}
    stance, other = (json.dumps(json.dumps(one))[1:-1].encode() for one in (STANCE, good))
    for name, reply in replies.items():
        assert isinstance(reply.body, bytes)
        if not name.startswith("text:") or stance in reply.body:
            made[name] = replace(reply, body=reply.body.replace(stance, other))
    return made


def scored(server: HostileServer) -> str | None:
    try:
        RemoteReranker(server.url, api_key=KEY, retry_seconds=0)("sea", ["a", "b"])
    except CcheckError as error:
        return str(error)
    return None


if __name__ == "__main__":
    main()
