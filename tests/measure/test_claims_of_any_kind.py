"""Claims as people have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ccheck.core.types import Claim
from ccheck.pipeline.claims import read_claims

TEXTS = ["Seas, they rise.", "Ice melts; it does."]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("claims.txt", "\n".join(TEXTS) + "\n\n"),
        ("claims.csv", 'Claim,Source\n"Seas, they rise.",a\nIce melts; it does.,b\n'),
        ("semicolons.csv", 'id;claim\n1;Seas, they rise.\n2;"Ice melts; it does."\n'),
        ("claims.jsonl", "".join(json.dumps({"claim": text}) + "\n" for text in TEXTS)),
        ("queries.jsonl", "".join(json.dumps({"query": text}) + "\n" for text in TEXTS)),
        ("topics.txt", f"1\t{TEXTS[0]}\n2\t{TEXTS[1]}\n"),
    ],
)
def test_claims_are_read_generously(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    claims = read_claims(tmp_path / name)
    assert [claim.text for claim in claims] == TEXTS and [claim.id for claim in claims] == ["1", "2"]


@pytest.mark.parametrize(
    ("id_", "text"), [("id", "claim"), ("claim_id", "claim"), ("qid", "query"), ("topic", "tweet_text")]
)
def test_the_fields_of_a_record_have_many_names(tmp_path: Path, id_: str, text: str) -> None:
    (tmp_path / "claims.jsonl").write_text(json.dumps({id_: 7, text: " Seas rise. "}) + "\n")
    assert read_claims(tmp_path / "claims.jsonl") == [Claim("Seas rise.", "7")]
