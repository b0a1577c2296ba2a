"""The sample corpus and the sample claims are well formed and agree with each other."""

import json
import re
from collections import Counter

from ccheck.demo import CLAIMS, CORPUS

DOCUMENTS, ROWS = ([json.loads(line) for line in file.read_text("utf-8").splitlines()] for file in (CORPUS, CLAIMS))
DOI = re.compile(r"10\.\d{4,9}/\S+")


def test_documents_are_complete_and_short_and_cover_every_topic() -> None:
    topics = Counter(row["topic"] for row in DOCUMENTS)
    assert len(DOCUMENTS) >= 60 and min(topics.values()) >= 12
    assert topics.keys() == {"climate", "health", "nutrition", "energy"}
    for key in ("_id", "doi", "title", "text"):
        assert len({row[key].casefold() for row in DOCUMENTS}) == len(DOCUMENTS), key
    for row in DOCUMENTS:
        assert set(row) == {"_id", "title", "text", "year", "first_author", "journal", "doi", "topic"}
        assert row["_id"].endswith(f"-{row['year']}") and DOI.fullmatch(row["doi"])
        assert 90 <= len(row["text"].split()) <= 170, row["_id"]


def test_a_claim_s_label_follows_from_its_evidence() -> None:
    assert [row["_id"] for row in ROWS] == [str(number) for number in range(1, 21)]
    assert len({row["text"].casefold() for row in ROWS}) == 20 and len({row["label"] for row in ROWS}) == 4
    assert (ROWS[0]["text"], ROWS[0]["label"]) == ("sea level has risen 20 cm since 1900", "SUPPORTS")
    for row in ROWS:
        assert set(row) == {"_id", "text", "label", "evidence"} and row["text"] == " ".join(row["text"].split()) != ""
        assert all(piece.keys() == {"doc_id", "label"} for piece in row["evidence"])
        stances = {piece["doc_id"]: piece["label"] for piece in row["evidence"]}
        assert 1 <= len(stances) == len(row["evidence"]) <= 4 and stances.keys() <= {one["_id"] for one in DOCUMENTS}
        decided = set(stances.values()) - {"NOT_ENOUGH_INFO"}
        assert decided <= {"SUPPORTS", "REFUTES"}
        assert row["label"] == ("CONFLICTING" if len(decided) > 1 else decided.pop() if decided else "NOT_ENOUGH_INFO")
