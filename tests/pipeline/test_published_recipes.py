"""The published systems run whole by their names, with small stand-ins for their models: ingest, then a query."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cli_runs import ccheck
from scripted_llm import KEY, Said, say, scripted, user_text

from ccheck.core.recipe import load_recipe, models_used
from ccheck.demo import CLAIMS, CORPUS

pytest.importorskip("sentence_transformers", reason="needs the extra models")
CLAIM = "sea level has risen 20 cm since 1900"
MINI = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def splade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_sparse import make_splade

    return make_splade(tmp_path_factory.mktemp("sparse") / "splade")


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    from tiny_rerankers import make_encoder

    folder = tmp_path_factory.mktemp("rerankers")
    return [make_encoder(folder / str(seed), architecture="bert", seed=seed) for seed in range(5)]


def answer(request: dict[str, Any]) -> Said:
    """What a language model says to each of the prompts that recipes ask."""
    system, asked = request["messages"][0]["content"], user_text(request)
    keys = request["response_format"]["json_schema"]["schema"]["required"]
    if keys == ["label"]:
        return say({"label": "NOT_ENOUGH_INFO"})
    if keys == ["order"]:
        return say({"order": list(range(1, asked.count('"passage": ') + 1))})
    if keys == ["answers"] and "climate scientist" in system:
        return say({"answers": [1] * asked.count('"number": ')})
    if keys == ["corrected", "sentences"]:
        return say({"corrected": "Sea level rises.", "sentences": "A rise of the mean sea level was observed."})
    if '"answers": ' in system:
        pairs = [int(number) for number in re.findall(r'"number": (\d+)', asked)]
        items = [{"number": n, "rationale": "r", "label": "NOT_ENOUGH_INFO", "confidence": 0.9} for n in pairs]
        return say({"answers": items})
    if '"polarity": ' in system:
        return say({"rationale": "r", "quote": "", "relevant": False, "polarity": "NONE", "confidence": 0.8})
    if '"summary": ' in system:
        return say({"summary": "A summary of what was found."})
    if '"posts": ' in system:
        return say({"posts": ["omg sea level goes brrr"]})
    if '"papers"' in system:
        return say({"papers": [{"title": "Sea level since 1900", "abstract": "Tide gauges show a rise of 20 cm."}]})
    key = next(key for key in ("rewritten", "sentences") if f'"{key}"' in system)
    return say({key: "Global mean sea level rise in the twentieth century."})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with scripted(answer) as made:
        for name, value in {
            "OPENAI_BASE_URL": made.url,
            "OPENAI_API_KEY": KEY,
            "CCHECK_CACHE_DIR": str(tmp_path / "cache"),
            "CCHECK_DEVICE": "cpu",
        }.items():
            monkeypatch.setenv(name, value)
        yield made


def replacing(recipe: str, stand_ins: dict[str, object]) -> list[str]:
    """--replace for every model that the recipe names; language models are the server's, under their own names."""
    known = set(models_used(load_recipe(recipe)))
    assert set(stand_ins) <= known
    return [word for old, new in stand_ins.items() for word in ("--replace", f"{old}={new}")]


def run(recipe: str, store: Path, replace: list[str], *more: str) -> dict[str, Any]:
    ingested = ccheck("ingest", CORPUS, "--store", store, "--recipe", recipe, *replace)
    assert ingested.code == 0, ingested.err
    ran = ccheck("query", CLAIM, "--store", store, "--recipe", recipe, *replace, "--json", *more)
    assert ran.code == 0, ran.err
    (result,) = ran.objects
    assert result["recipe"] == recipe
    for pair in replace[1::2]:
        old, _, new = pair.partition("=")
        assert f"{new} stands in for {old}" in result["warnings"], "a stand-in is named"
        assert f"stands in for {old}" in ingested.err
    return result


def test_climatecheck_hybrid(server, tmp_path, splade, encoders):
    stand_ins = {
        "naver/splade-v3": splade,
        "bge-m3-climatecheck": MINI,
        "ms-marco-MiniLM-L6-v2-climatecheck": encoders[0],
    }
    result = run("climatecheck-hybrid", tmp_path / "store", replacing("climatecheck-hybrid", stand_ins))
    assert len(result["evidence"]) == 10
    best = result["evidence"][0]
    assert {"bm25", "sparse", "dense", "rrf", "cross-encoder", "listwise"} >= set(best["scores"]) > {"rrf", "listwise"}
    # alpha = .4 of the cross-encoder's scores scaled to 0..1, .6 of the language model's order, which kept theirs.
    places = [piece["scores"]["listwise"] for piece in result["evidence"]]
    assert places == sorted(places, reverse=True) and places[0] == pytest.approx(1.0)
    assert result["verdict"]["label"] == "NOT_ENOUGH_INFO"
    asked = Counter(request["model"] for request in server.requests)
    assert asked == {"gpt-4.1": 11}  # one order of twenty, ten stances
    shown = next(request for request in server.requests if "evidentiary" in request["messages"][0]["content"])
    assert sum(message["role"] == "assistant" for message in shown["messages"]) == 6, "six rankings are shown"


def test_climatecheck_ensemble(server, tmp_path, encoders):
    models = load_recipe("climatecheck-ensemble").rerankers["ensemble"].models
    replace = replacing("climatecheck-ensemble", dict(zip(models, encoders, strict=True)))
    result = run("climatecheck-ensemble", tmp_path / "store", replace)
    (request,) = [one for one in server.requests if one["model"] == "gemini-2.5-pro"]
    assert "climate scientist" in request["messages"][0]["content"] and user_text(request).count('"number": ') == 10
    assert [piece["stance"]["label"] for piece in result["evidence"]] == ["NOT_ENOUGH_INFO"] * 10
    first, last = (piece["scores"]["ensemble"] for piece in (result["evidence"][0], result["evidence"][-1]))
    assert 5 / 61 >= first >= last > 0  # the sum of 1 / (60 + rank) over five models


@pytest.mark.parametrize("recipe", ["checkthat-4b", "checkthat-4b:rewrite", "checkthat-4b:expand"])
def test_checkthat_4b(server, tmp_path, encoders, recipe):
    stand_ins = {
        "infly/inf-retriever-v1": MINI,
        "inf-retriever-v1-checkthat4b": MINI,
        "BAAI/bge-reranker-v2-gemma": encoders[1],
    }
    result = run(recipe, tmp_path / "store", replacing(recipe, stand_ins), "-k", "5")
    assert len(result["evidence"]) == 5 and result["verdict"] is None
    assert all("gemma" in piece["scores"] for piece in result["evidence"])
    assert len(server.requests) == (0 if recipe == "checkthat-4b" else 1)


def test_checkthat_4b_elasticsearch_with_additional_documents(server, tmp_path):
    recipe = "checkthat-4b-elasticsearch"
    replace = replacing(recipe, {"inf-retriever-v1-checkthat4b": MINI})
    result = run(recipe, tmp_path / "store", replace, "-k", "5")
    assert Counter(request["model"] for request in server.requests) == {"llama-3.2": 2 * 71}
    assert len(result["evidence"]) == 5
    # A misspelt word of a post is found, and one that only the made-up post has.
    for text in ("omg brrr", "tide gagues"):
        ran = ccheck("query", text, "--store", tmp_path / "store", "--recipe", recipe, *replace, "--json")
        assert any("bm25" in piece["ranks"] for piece in ran.objects[0]["evidence"]), text
    again = ccheck("ingest", CORPUS, "--store", tmp_path / "store", "--recipe", recipe, *replace)
    assert again.code == 0 and len(server.requests) == 2 * 71, "nothing is asked twice"
    hyde = ccheck("query", CLAIM, "--store", tmp_path / "store", "--recipe", f"{recipe}:hyde", *replace, "--json")
    assert hyde.code == 0 and len(server.requests) == 2 * 71 + 1


def test_without_additional_documents_on_a_real_elasticsearch(server, elasticsearch_url, tmp_path):
    pytest.importorskip("ir_measures", reason="needs the extra evaluation")
    recipe = "checkthat-4b-elasticsearch:plain"
    replace = replacing(recipe, {"inf-retriever-v1-checkthat4b": MINI})
    store = f"{elasticsearch_url}/published-recipes"
    try:
        result = run(recipe, store, replace, "-k", "5")
        assert len(result["evidence"]) == 5
        claims = [json.loads(line) for line in Path(CLAIMS).read_text().splitlines()]
        qrels = tmp_path / "qrels.tsv"
        rows = [f"{claim['_id']}\t{piece['doc_id']}\t1" for claim in claims for piece in claim["evidence"]]
        qrels.write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
        ran = ccheck(
            "evaluate", recipe, *replace, "--store", store, "--claims", CLAIMS, "--qrels", qrels, "--json", "--quiet"
        )
        assert ran.code == 0, ran.err
        (measured,) = ran.objects
        assert measured["replaced"] == {"inf-retriever-v1-checkthat4b": MINI}
        assert measured["metrics"]["R@100"] > 0.5
        assert measured["published"] == [
            {
                "table": "5",
                "row": "ES",
                "on": "CheckThat! 2025 task 4b, 7,718 papers",
                "split": "development",
                "metrics": {"RR@1": 0.6053, "RR@5": 0.6669},
                "note": "",
            }
        ]
    finally:
        ccheck("index", "delete", "--store", store, "--yes")
