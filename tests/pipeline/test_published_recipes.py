"""The published systems run whole by their names, on both kinds of store: from the tasks' raw files to the scores of
their main tables, with the commands that the tables print. Models are small ones of the true architectures with random
weights, and the language model is scripted."""

import json
import shlex
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from article_files import JATS
from averitec_rows import ROWS, words_shared
from cli_runs import ccheck, jsonl, table, works
from question_llm import kind_of, passages_of, questioned
from scripted_llm import Said, say, scripted, user_text

from ccheck.core.recipe import load_recipe, models_used
from ccheck.demo import CLAIMS, CORPUS
from ccheck.lab.papers.published import tables_of

pytest.importorskip("sentence_transformers", reason="needs the extra models")
pytest.importorskip("ir_measures", reason="needs the extra evaluation")
CLAIM = "sea level has risen 20 cm since 1900"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small models of the true architectures under the names that recipes give them."""
    from tiny_published import make_bge_m3, make_e5_mistral, make_jina_v3
    from tiny_qwen2 import make_qwen2
    from tiny_rerankers import make_decoder, make_encoder
    from tiny_sparse import make_splade

    folder = tmp_path_factory.mktemp("models")
    ensemble = load_recipe("climatecheck-ensemble").rerankers["ensemble"].models
    made = {
        name: make_encoder(folder / name, architecture="xlm-roberta", seed=seed) for seed, name in enumerate(ensemble)
    }
    minilm = "ms-marco-MiniLM-L6-v2-climatecheck"
    inf = make_qwen2(folder / "inf")
    return made | {
        minilm: make_encoder(folder / minilm, architecture="bert"),
        "naver/splade-v3": make_splade(folder / "splade"),
        "bge-m3-climatecheck": make_bge_m3(folder / "bge-m3"),
        "infly/inf-retriever-v1": inf,
        "inf-retriever-v1-checkthat4b": inf,
        "BAAI/bge-reranker-v2-gemma": make_decoder(folder / "gemma"),
        "jinaai/jina-embeddings-v3-hf": make_jina_v3(folder / "jina"),
        "intfloat/e5-mistral-7b-instruct": make_e5_mistral(folder / "e5"),
    }


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sample's papers and claims as the tasks publish theirs: ClimateCheck's and CheckThat!'s tables."""
    folder = tmp_path_factory.mktemp("raw")
    papers = [json.loads(line) for line in CORPUS.read_text().splitlines()]
    claims = [json.loads(line) for line in CLAIMS.read_text().splitlines()][:6]
    texts = {paper["_id"]: paper["text"] for paper in papers}
    names = {"SUPPORTS": "Supports", "REFUTES": "Refutes", "NOT_ENOUGH_INFO": "Not Enough Information"}
    pairs = [
        {
            "claim_id": claim["_id"], "claim": claim["text"], "abstract_id": piece["doc_id"],
            "abstract": texts[piece["doc_id"]], "annotation": names[piece["label"]],
        }
        for claim in claims
        for piece in claim["evidence"]
    ]  # fmt: skip
    first = {claim["_id"]: claim["evidence"][0]["doc_id"] for claim in claims}
    posts = [{"post_id": one["_id"], "tweet_text": one["text"], "cord_uid": first[one["_id"]]} for one in claims]
    rows = [{"title": paper["title"], "abstract": paper["text"]} for paper in papers]

    def collection(name: str, key: str) -> Path:
        return table(folder / name, [{key: paper["_id"], **row} for paper, row in zip(papers, rows, strict=True)])

    return {
        "climate": collection("abstracts.csv", "abstract_id"),
        "pairs": table(folder / "test.csv", pairs),
        "papers": collection("collection.csv", "cord_uid"),
        "posts": table(folder / "dev.tsv", posts),
    }


@pytest.fixture(params=["local", "elasticsearch"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path / "store")
        return
    monkeypatch.setenv("CCHECK_ELASTICSEARCH_TIMEOUT", "300")
    name = f"{request.getfixturevalue('elasticsearch_url')}/published-{uuid.uuid4().hex[:8]}"
    yield name
    ccheck("index", "delete", "--store", name, "--yes")


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
    if '"summary": ' in system:
        return say({"summary": "A summary of what was found."})
    if '"posts": ' in system:
        return say({"posts": ["omg sea level goes brrr"]})
    if '"papers"' in system:
        return say({"papers": [{"title": "Sea level since 1900", "abstract": "Tide gauges show a rise of 20 cm."}]})
    assert '"rewritten"' in system
    return say({"rewritten": "Global mean sea level rise in the twentieth century."})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with scripted(answer, user=monkeypatch) as made:
        monkeypatch.setenv("CCHECK_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setenv("CCHECK_DEVICE", "cpu")
        yield made


def replacing(recipe: str, models: dict[str, Path]) -> list[str]:
    """--replace for every model that the recipe loads; language models are the server's, under their own names."""
    named = [name for name, kind in models_used(load_recipe(recipe)).items() if kind != "language model"]
    return [word for name in named for word in ("--replace", f"{name}={models[name]}")]


def run(recipe: str, store: str, corpus: Path, replace: list[str], *more: str) -> dict[str, Any]:
    ingested = works("ingest", corpus, "--store", store, "--recipe", recipe, *replace)
    (result,) = works("query", CLAIM, "--store", store, "--recipe", recipe, *replace, "--json", *more).objects
    assert result["recipe"] == recipe
    for pair in replace[1::2]:
        old, _, new = pair.partition("=")
        assert f"{new} stands in for {old}" in result["warnings"], "a stand-in is named"
        assert f"stands in for {old}" in ingested.err
    return result


def measured(recipe: str, number: str, files: dict[str, object], *more: object) -> dict[str, float]:
    """The columns of a table of the recipe's source, from the command that the table prints for the recipe."""
    name, _, ablation = recipe.partition(":")
    made = tables_of(name)[number]
    words = [str(files.get(word, word)) for word in shlex.split(made.command_for(recipe))]
    (found,) = works(*words[1:], *more, "--json", "--quiet").objects
    rows = [row["row"] for row in found["published"] if row["table"] == number]
    own = {row: one for row, one in made.rows.items() if one.command is None and one.recipe is None}
    assert rows == [row for row, one in own.items() if (one.ablation or "") == ablation]
    assert {"cost", "replaced"} <= found.keys() and {"seconds", "seconds_per_claim"} & found.keys()
    return {metric: found["metrics"][metric] for metric in made.metrics}


def test_climatecheck_hybrid(server, store, models, raw):
    replace = replacing("climatecheck-hybrid", models)
    result = run("climatecheck-hybrid", store, raw["climate"], replace)
    assert len(result["evidence"]) == 10
    best = result["evidence"][0]
    assert {"bm25", "sparse", "dense", "rrf", "cross-encoder", "listwise"} >= set(best["scores"]) > {"rrf", "listwise"}
    # alpha = .4 of the cross-encoder's scores scaled to 0..1, .6 of the language model's order, which kept theirs.
    places = [piece["scores"]["listwise"] for piece in result["evidence"]]
    assert places == sorted(places, reverse=True) and places[0] == pytest.approx(1.0)
    assert result["verdict"]["label"] == "NOT_ENOUGH_INFO"
    asked = Counter(request["model"] for request in server.requests)
    assert asked == {"gpt-4.1": 11}  # one order of twenty, ten stances
    assert {request["temperature"] for request in server.requests} == {0}
    shown = next(request for request in server.requests if "evidentiary" in request["messages"][0]["content"])
    assert sum(message["role"] == "assistant" for message in shown["messages"]) == 6, "six rankings are shown"
    files = {"CLAIMS": raw["pairs"], "QRELS": raw["pairs"], "PAIRS": raw["pairs"]}
    scores = measured("climatecheck-hybrid", "2", files, "--store", store, *replace)
    assert 0 <= scores["ClimateCheck-R@10"] <= 1 and scores["ClimateCheck"] >= 0  # by random weights
    assert measured("climatecheck-hybrid", "3", files, *replace)["weighted_recall"] < 1


def test_climatecheck_ensemble(server, store, models, raw):
    replace = replacing("climatecheck-ensemble", models)
    result = run("climatecheck-ensemble", store, raw["climate"], replace)
    (request,) = [one for one in server.requests if one["model"] == "gemini-2.5-pro"]
    assert "climate scientist" in request["messages"][0]["content"] and user_text(request).count('"number": ') == 10
    assert request["max_tokens"] == 65_536 and "temperature" not in request
    assert [piece["stance"]["label"] for piece in result["evidence"]] == ["NOT_ENOUGH_INFO"] * 10
    first, last = (piece["scores"]["ensemble"] for piece in (result["evidence"][0], result["evidence"][-1]))
    assert 5 / 61 >= first >= last > 0  # the sum of 1 / (60 + rank) over five models
    files = {"CLAIMS": raw["pairs"], "QRELS": raw["pairs"], "PAIRS": raw["pairs"]}
    scores = measured("climatecheck-ensemble", "overview", files, "--store", store, *replace)
    assert 0 <= scores["ClimateCheck-R@10"] <= 1
    assert measured("climatecheck-ensemble", "overview-2", files, *replace)["weighted_f1"] < 1
    assert not any("temperature" in request for request in server.requests), "nor where pairs are judged"


def test_checkthat_4b(server, store, models, raw):
    replace = replacing("checkthat-4b", models)
    result = run("checkthat-4b", store, raw["papers"], replace, "-k", "5")
    assert len(result["evidence"]) == 5 and result["verdict"] is None
    assert all("gemma" in piece["scores"] for piece in result["evidence"])
    files = {"CLAIMS": raw["posts"], "QRELS": raw["posts"]}
    scores = measured("checkthat-4b", "1-development", files, "--store", store, *replace)
    assert 0 <= scores["RR@1"] <= scores["RR@5"] <= 1
    assert scores["R@100"] == 1, "71 papers"
    assert server.requests == []
    for number, way in enumerate(("rewrite", "expand"), 1):
        recipe = f"checkthat-4b:{way}"
        ran = ccheck("query", CLAIM, "--store", store, "--recipe", recipe, *replace, "--json")
        assert ran.code == 0 and len(server.requests) == number


def test_checkthat_4b_elasticsearch(server, store, models, raw):
    """With additional documents, which both kinds of store take."""
    recipe = "checkthat-4b-elasticsearch"
    replace = replacing(recipe, models)
    result = run(recipe, store, raw["papers"], replace, "-k", "5")
    assert Counter(request["model"] for request in server.requests) == {"llama-3.2": 2 * 71}
    assert not any("temperature" in request for request in server.requests)
    assert len(result["evidence"]) == 5
    # A misspelt word of a post is found, and one that only the made-up post has.
    for text in ("omg brrr", "tide gagues"):
        ran = ccheck("query", text, "--store", store, "--recipe", recipe, *replace, "--json")
        assert any("bm25" in piece["ranks"] for piece in ran.objects[0]["evidence"]), text
    again = ccheck("ingest", raw["papers"], "--store", store, "--recipe", recipe, *replace)
    assert again.code == 0 and len(server.requests) == 2 * 71, "nothing is asked twice"
    files = {"CLAIMS": raw["posts"], "QRELS": raw["posts"]}
    assert measured(recipe, "5", files, "--store", store, *replace)["RR@5"] > 0
    assert measured(f"{recipe}:hyde", "5", files, "--store", store, *replace)["RR@5"] >= 0
    assert len(server.requests) == 2 * 71 + 6


def test_averitec_questions(server, monkeypatch, store, models, tmp_path):
    """The rows of the task's table, from the pages of each claim."""
    monkeypatch.setattr("ccheck.lab.measure.averitec.open_meteor", lambda: words_shared)
    said = {f"https://example.org/{n}": f"The mayor of town {n} bought bridges. " * 60 for n in range(3)}
    made = [{"_id": url, "url": url, "text": text, "claim_ids": [url[-1]]} for url, text in said.items()]
    pages = jsonl(tmp_path / "pages.jsonl", *made)
    (tmp_path / "dev.json").write_text(json.dumps(ROWS[:3]))
    recipe = "averitec-questions"
    replace = replacing(recipe, models)
    with questioned(Veracity=lambda text: {"reasoning": "So they say.", "label": "Refuted"}) as llm:
        monkeypatch.setenv("OPENAI_BASE_URL", llm.url)
        works("ingest", pages, "--store", store, "--recipe", recipe, *replace)
        scores = measured(recipe, "2", {"CLAIMS": tmp_path / "dev.json"}, "--store", store, *replace)
    assert scores["accuracy"] == pytest.approx(1 / 3) and scores["QA-METEOR"] > 0
    monkeypatch.setenv("CCHECK_LLM_RETRY_SECONDS", "0")
    none = ccheck("evaluate", recipe, "--averitec", tmp_path / "dev.json", "--store", store, *replace, "--llm", "other")
    assert (none.code, none.out) == (6, "") and "no claim could be checked. The first: no questions" in none.err
    kinds = Counter(kind_of(request) for request in llm.requests)
    assert kinds == {"Questions": 3, "Queries": 4, "PassageAnswer": 12, "Veracity": 3}, "no question is asked twice"
    assert {request["model"] for request in llm.requests} == {"Qwen/Qwen3-14B-AWQ"}
    assert not any("temperature" in request for request in llm.requests)
    for request in llm.requests:
        if kind_of(request) == "PassageAnswer":
            sources = {page["url"] for page in passages_of(user_text(request))}
            assert len(sources) == 1, "each claim has its own pages"


@pytest.mark.parametrize("recipe", ["context24-figures", "context24-passages"])
def test_context24(server, models, tmp_path, recipe):
    """Articles are read from their files, so no store takes part."""
    articles = tmp_path / "articles"
    articles.mkdir()
    (articles / "snails.xml").write_text(JATS)
    gold = jsonl(
        tmp_path / "gold.jsonl",
        {
            "claim_id": "1", "article": "snails", "claim": "The moss was eaten at night.", "element_ids": ["g2"],
            "passages": ["Moss was eaten at night, and slime dried by day."],
        },
    )  # fmt: skip
    number = "4" if recipe == "context24-figures" else "5"
    files = {"ARTICLES": articles, "GOLD": gold, "MODEL": models["ms-marco-MiniLM-L6-v2-climatecheck"]}
    if number == "5":
        pytest.importorskip("bert_score", reason="needs the extra bertscore")
    scores = measured(recipe, number, files, *replacing(recipe, models))
    assert all(0 < value <= 1 for value in scores.values())
