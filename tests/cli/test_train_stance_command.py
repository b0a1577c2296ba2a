"""`ccheck train stance` on the command line, and `ccheck query` with what it made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import BM25, ccheck, jsonl
from tiny_rerankers import make_encoder
from tiny_stances import rows_of

pytest.importorskip("torch")
pytest.importorskip("peft")

SPELLED = {"SUPPORTS": "entailment", "REFUTES": "Contradict", "NOT_ENOUGH_INFO": "NEI"}


def records(count: int = 72) -> list[dict[str, str]]:
    return [{"claim": row.claim, "evidence": row.text, "label": SPELLED[row.label]} for row in rows_of(count)]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stance")
    jsonl(folder / "pairs.jsonl", *records())
    jsonl(folder / "corpus.jsonl", *({"_id": f"d{n}", "text": one["evidence"]} for n, one in enumerate(records())))
    texts = [f"{one['claim']} {one['evidence']}" for one in records()]
    make_encoder(folder / "base", architecture="bert", texts=texts, num_hidden_layers=1)
    return folder


def asked(folder: Path, output: Path) -> list[str | None]:
    """What a query's results say of a claim, by a model."""
    store = folder / "store"
    if not store.exists():
        assert ccheck("ingest", folder / "corpus.jsonl", "--store", store, "--no-dense").code == 0
    ran = ccheck("query", "the sea rises", "--store", store, *BM25, "--stance", output, "-k", "4", "--json")
    assert ran.code == 0, ran.err
    (answer,) = ran.objects
    assert answer["verdict"]["method"].startswith("stance:")
    return [piece["stance"]["label"] for piece in answer["evidence"]]


def test_a_classifier_from_a_file_of_settings_to_a_query(files, tmp_path):
    config = tmp_path / "mine.toml"
    settings = {"train": str(files / "pairs.jsonl"), "base": str(files / "base"), "epochs": 9, "max_tokens": 64}
    config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    output = tmp_path / "out"
    how = ("--config", config, "-o", output, "--set", "epochs=2", "--set", "gamma=0", "--device", "cpu")
    ran = ccheck("train", "stance", *how, "--set", "learning_rate=1e-3", "--json")
    assert ran.code == 0, ran.err
    (report,) = ran.objects
    assert (report["kind"], report["output"]) == ("stance", str(output))
    assert {figure["group"] for figure in report["figures"]} == {"by document", "by claim"}
    figure = report["figures"][0]
    assert (figure["group"], figure["metric"], figure["claims"]) == ("by document", "weighted F1", 14)
    assert 0 <= figure["after"] <= 1 and report["before"].startswith("always saying ")
    assert [phase["phase"] for phase in report["phases"]] == ["stance"] and report["phases"][0]["steps"] > 0
    assert "stance, epoch 2: weighted F1" in ran.err
    assert "epochs = 2" in (output / "README.md").read_text()
    assert set(asked(files, output)) <= set(SPELLED)


@pytest.mark.parametrize(
    ("lines", "options", "code", "message"),
    [
        ([*records(6), {"claim": "c", "evidence": "e", "label": "perhaps"}], (), 5, "line 7: unknown label 'perhaps'"),
        ([*records(6), {"claim": "c", "label": "NEI"}], (), 5, "both the evidence and the id"),
        ([{**one, "label": "supports"} for one in records(30)], (), 5, "REFUTES"),
        (records(30), ("--base", "no-such-model"), 4, "no-such-model"),
        (records(30), ("--corpus", "nothing.jsonl"), 4, "nothing.jsonl"),
        (records(30), ("--set", "balanced=2"), 2, "balanced"),
        (records(30), ("--set", "gama=2"), 5, "did you mean 'gamma'"),
        (records(30), ("--set", "metric=nDCG"), 2, "'weighted F1' or 'macro F1'"),
        ([], (), 5, "pairs.jsonl is empty"),
    ],
)
def test_what_can_not_be_trained_is_said(tmp_path, monkeypatch, lines, options, code, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "pairs.jsonl", *lines)
    ran = ccheck("train", "stance", "--train", "pairs.jsonl", "-o", "out", *options)
    assert (ran.code, ran.out) == (code, "") and message in ran.err, ran.err
    assert not (tmp_path / "out").exists()
