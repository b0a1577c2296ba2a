"""The fields of an index that ccheck did not make, named in the settings, and what the doctor says of them."""

from __future__ import annotations

from pathlib import Path

import httpx
import numpy as np
import pytest
from cli_runs import ccheck
from elastic_indices import make, node_client, node_store, put  # noqa: F401 (fixtures)
from runtimes import on_cpu
from searching import answer_all
from tiny_embedder import TinyEmbedder

from ccheck.core.errors import InvalidData
from ccheck.core.profiles import StoreProfile
from ccheck.core.settings import Settings, config_files, resolve
from ccheck.core.stages import Bm25
from ccheck.core.types import Query, Ranking
from ccheck.pipeline.agreement import agreement
from ccheck.pipeline.checker import Checker
from ccheck.search import open_store
from ccheck.search.elastic import ElasticStore

MODEL = "all-MiniLM-L6-v2"
TEXTS = ("Mountain glaciers lose more ice each year.", "Oceans rise as they warm.")


@pytest.fixture
def spec(client: httpx.Client, elasticsearch_url: str, elasticsearch_index: str) -> str:
    """An index whose vectors were made by a model that it does not name, with two fields called like texts."""
    from ccheck.encode.dense import load_embedder

    vector = {"type": "dense_vector", "dims": 384, "similarity": "cosine"}
    english = {"fields": {"en": {"type": "text", "analyzer": "english"}}}
    fields = {"heading": {"type": "text"}, "body": {"type": "text", **english}, "text": {"type": "text"}}
    make(client, elasticsearch_index, fields | {"embedding": vector, "year": {"type": "integer"}})
    vectors = load_embedder(MODEL, on_cpu()).encode_documents([f"Heading {text}" for text in TEXTS])
    for number, text in enumerate(TEXTS):
        source = {"heading": "Heading", "body": text, "text": "Notes.", "year": 2000 + number, "secret": "x"}
        put(client, elasticsearch_index, str(number), source | {"embedding": vectors[number].tolist()})
    return f"{elasticsearch_url}/{elasticsearch_index}"


def details(*arguments: str) -> dict[str, tuple[str, str]]:
    ran = ccheck("doctor", "--json", *arguments)
    return {one["part"]: (one["status"], one["detail"]) for one in ran.objects}


def test_a_profile_names_the_fields_of_one_store(spec: str) -> None:
    file = config_files()[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    index = spec.rpartition("/")[2]
    file.write_text(f'[stores.{index}]\ntitle = "heading"\ntext = "body.en"\nmetadata = ["year"]\n')
    with open_store(resolve({"store": spec}, {}).settings) as store:
        (ranking,) = answer_all(store, [Query("ocean heading")], {"bm25": Bm25()}, k=2)
        assert isinstance(ranking, Ranking)
        first = ranking.hits[0].document
        assert (first.id, first.title, first.text, first.metadata) == ("1", "Heading", TEXTS[1], {"year": 2001})
    file.write_text(f'[stores.{index}]\ntext = "none"\n')
    with (
        open_store(resolve({"store": spec}, {}).settings) as store,
        pytest.raises(InvalidData, match="no field 'none'"),
    ):
        store.info()
    (warning,) = (
        one["detail"] for one in ccheck("doctor", "--store", spec, "--json").objects if one["part"] == "store"
    )
    assert "no field 'none'" in warning


def test_the_doctor_shows_the_profile_and_writes_it_on_request(spec: str) -> None:
    found = details("--store", spec)
    fields = "text = text, body; vector = embedding; 384 dimensions"
    assert found["profile"] == ("ok", f"{fields}; model unknown: the vectors are searched once you name it")
    assert "agreement" not in found and "--model" in found["search"][1]
    assert "vectors of 384 dimensions by a model that the index does not name" in found["store"][1]
    assert str(config_files()[0]) in details("--store", spec, "--write-profile")["profile"][1]
    profiles = resolve({}, {}).settings.stores
    assert [one.text for one in profiles.values()] == [("text", "body")]
    assert details("--store", spec, "--write-profile")["store"][1].endswith("remove it first")


def test_the_doctor_writes_the_profile_without_the_model(spec: str) -> None:
    found = details("--store", spec, "--model", "nobody/has-this", "--write-profile")
    assert found["store"][0] == "absent" and "2 documents" in found["store"][1]
    assert "not searched: " in found["store"][1] and str(config_files()[0]) in found["profile"][1]


def test_the_doctor_tests_a_model(spec: str, client: httpx.Client) -> None:
    status, said = details("--store", spec, "--model", MODEL)["agreement"]  # the text is taken from other fields
    assert status == "failed" and ("another model made them" in said or "a model like it" in said)
    index = spec.rpartition("/")[2]
    named = {"CCHECK_STORES": f'{{"{index}": {{"title": "heading", "text": "body", "model": "{MODEL}"}}}}'}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CCHECK_STORES", named["CCHECK_STORES"])
        status, said = details("--store", spec)["agreement"]
        assert status == "ok" and "(of each its title and text) with a mean cosine of 1.000" in said
        (answer,) = ccheck("query", "oceans", "--store", spec, "--json").objects
        assert "dense" in answer["evidence"][0]["ranks"]


def test_the_doctor_writes_down_the_model_that_it_tested(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = details("--store", spec, "--model", MODEL, "--write-profile")
    assert found["agreement"][0] == "failed" and "with the model" not in found["profile"][1]
    config_files()[0].unlink()
    index = spec.rpartition("/")[2]
    monkeypatch.setenv("CCHECK_STORES", f'{{"{index}": {{"title": "heading", "text": "body"}}}}')
    assert details("--store", spec, "--model", MODEL, "--write-profile")["profile"][1].endswith(f"the model {MODEL}")
    monkeypatch.delenv("CCHECK_STORES")  # the file has it all now
    (answer,) = ccheck("query", "oceans", "--store", spec, "--json").objects
    assert "dense" in answer["evidence"][0]["ranks"]
    found = details("--store", spec)
    assert found["profile"][1].startswith("title = heading; text = body; vector = embedding; model = all-MiniLM")
    assert f"vectors of 384 dimensions by {MODEL}" in found["store"][1]


def test_the_doctor_tests_a_model_of_nested_passages(client: httpx.Client, store: ElasticStore) -> None:
    embedder = TinyEmbedder()
    vector = {"type": "dense_vector", "dims": embedder.spec.dimensions, "similarity": "cosine"}
    inner = {"type": "nested", "properties": {"words": {"type": "text"}, "vector": vector}}
    make(client, store.index, {"title": {"type": "text"}, "abstract": {"type": "text"}, "parts": inner})
    made = embedder.encode_documents(list(TEXTS))
    parts = [{"words": text, "vector": one.tolist()} for text, one in zip(TEXTS, made, strict=True)]
    for number in range(2):
        source = {"title": "Title", "abstract": "Another text.", "parts": [{"words": "No vector."}, parts[number]]}
        put(client, store.index, str(number), source)
    put(client, store.index, "none", {"title": "Title", "abstract": "Another text."})
    pairs = store.with_vectors(5)
    assert [one.text for one, _ in pairs] == list(TEXTS)
    found = agreement(pairs, embedder.encode_documents)
    assert found.documents == 2 and found.cosine > 0.99 and found.of == "its text"


def test_a_query_with_another_model_of_the_same_size_is_refused(
    spec: str, client: httpx.Client, tmp_path: Path
) -> None:
    index = spec.rpartition("/")[2]
    profile = StoreProfile(title="heading", text=("body",), vector="embedding", model=MODEL)
    settings = Settings(store=spec, recipe="dense", stores={index: profile}, cache_dir=tmp_path)
    with Checker(settings) as checker:
        assert checker.check("oceans").evidence
    remembered = list((settings.cache_dir / "agreement").iterdir())
    with Checker(settings) as checker:
        checker.store.with_vectors = None  # type: ignore[method-assign, attr-defined]  # nothing is compared twice
        checker.check("oceans")
    assert len(remembered) == 1
    rng = np.random.default_rng(0)
    for number in range(len(TEXTS)):
        client.post(
            f"/{index}/_update/{number}", json={"doc": {"embedding": rng.normal(size=384).tolist()}}
        ).raise_for_status()
    client.post(f"/{index}/_refresh").raise_for_status()
    remembered[0].unlink()
    with Checker(settings) as checker, pytest.raises(InvalidData, match="another model made them"):
        checker.check("oceans")


def test_what_in_place_added_names_its_model_and_is_not_metadata(
    client: httpx.Client, elasticsearch_url: str, elasticsearch_index: str
) -> None:
    properties = {"title": {"type": "text"}, "abstract": {"type": "text"}}
    make(client, elasticsearch_index, properties)
    put(client, elasticsearch_index, "1", {"title": "Sea", "abstract": TEXTS[1]})
    ran = ccheck("index", "enrich", f"{elasticsearch_url}/{elasticsearch_index}", "--in-place", "--yes")
    assert ran.code == 0, ran.err
    ran = ccheck("query", "oceans", "--store", f"{elasticsearch_url}/{elasticsearch_index}", "--json")
    (answer,) = ran.objects
    assert "dense" in answer["evidence"][0]["ranks"] and answer["evidence"][0]["metadata"] == {}, ran.err


def test_an_index_of_pubmeds_shape(client: httpx.Client, store: ElasticStore) -> None:
    inner = {"type": "object", "properties": {"text": {"type": "text"}}}
    make(
        client,
        store.index,
        {"article_title": {"type": "text"}, "abstract": {"type": "text"}, "abstract_semantic": inner},
    )
    for number, text in enumerate(TEXTS):
        parts = [text, "It was measured."]
        copy = {"text": " ".join(parts)}
        source = {"article_title": f"Title {number}", "abstract": parts, "abstract_semantic": copy}
        put(client, store.index, str(number), source)
    one = store.get(["0"])["0"]
    assert (one.title, one.text, one.metadata) == ("Title 0", f"{TEXTS[0]} It was measured.", {})
