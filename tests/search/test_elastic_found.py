"""Which fields of an index that ccheck did not make are searched and shown, and what is said of the others."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from cli_runs import ccheck
from elastic_indices import PROSE, make, node_store, put  # noqa: F401 (a fixture)
from elastic_indices import documents_of as search
from elastic_stub import Answer, Stub
from searching import info_of, rank_all

from ccheck.core.errors import CcheckError, InvalidData, NotFound, UsageError
from ccheck.core.layout import Layout
from ccheck.core.profiles import StoreProfile
from ccheck.core.recipe import load_recipe
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import Bm25, Dense, Retriever
from ccheck.core.types import Query
from ccheck.pipeline.plan import Plan, make_plan
from ccheck.search import StoreInfo, parse_filter
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.search.elastic.fields import CONFLICT, Field, fields_of
from ccheck.search.elastic.found import Sample, choose, unified
from ccheck.search.filters import refuse_unfit

TEXT, KEYWORD = Field("text"), Field("keyword")


def chosen(fields: Mapping[str, Field], texts: Mapping[str, Sequence[str]], names: StoreProfile | None = None) -> Any:
    """What is chosen where documents hold these texts; of a field without any no document has it."""

    def sampling(wanted: Sequence[str]) -> dict[str, Sample]:
        return {name: Sample(len(texts.get(name, ())), tuple(filter(None, texts.get(name, ())))) for name in wanted}

    return choose(fields, names or StoreProfile(), sampling, "here")


# -- by name, then by what they hold


@pytest.mark.parametrize(
    ("fields", "texts", "title", "text"),
    [
        # By name, in the order of the names; an identifier is none of them.
        ({"doi": TEXT, "body": TEXT, "abstract": TEXT}, {"doi": ["10.1/x"], "body": [PROSE], "abstract": ["Short."]},
         None, ("abstract", "body")),
        ({"page_content": TEXT, "source": TEXT}, {"page_content": [PROSE], "source": ["a.pdf"]},
         None, ("page_content",)),
        # By length, where no name is known.
        ({"doi": TEXT, "note": TEXT, "plot": TEXT, "aim": TEXT},
         {"doi": ["10.1/x"], "note": ["See there."], "plot": [PROSE * 2], "aim": [PROSE]}, None, ("plot", "aim")),
        # A title can be a keyword, and is no author's name.
        ({"title": KEYWORD, "text": TEXT}, {"title": ["Ice"], "text": [PROSE]}, "title", ("text",)),
        ({"authors.name": TEXT, "doc.title": TEXT, "text": TEXT},
         {"authors.name": ["A. B."], "doc.title": ["Ice"], "text": [PROSE]}, "doc.title", ("text",)),
        ({"authors.name": TEXT, "text": TEXT}, {"authors.name": ["A. B."], "text": [PROSE]}, None, ("text",)),
        ({"name": TEXT, "text": TEXT}, {"name": ["Ice"], "text": [PROSE]}, "name", ("text",)),
        ({"data.title": TEXT, "title": TEXT, "text": TEXT},
         {"data.title": ["No"], "title": ["Ice"], "text": [PROSE]}, "title", ("text",)),
        # In several languages.
        ({"abstract.de": TEXT, "abstract.en": TEXT, "title.de": TEXT, "title.en": TEXT},
         {"abstract.de": ["Eis."], "abstract.en": [PROSE], "title.de": ["Eis"], "title.en": ["Ice sheets"]},
         "title.de", ("abstract.de", "abstract.en")),
        # Nothing but a title.
        ({"title": TEXT, "doi": TEXT}, {"title": ["Ice sheets"], "doi": ["10.1/x"]}, "title", ()),
        # What no document has, or has in its _source, is none.
        ({"abstract": TEXT, "body": TEXT}, {"body": [PROSE]}, None, ("body",)),
        ({"content": TEXT, "body": TEXT}, {"content": ["", ""], "body": [PROSE]}, None, ("body",)),
        # An index without documents.
        ({"story": TEXT}, {}, None, ("story",)),
    ],
)  # fmt: skip
def test_fields_are_chosen(fields, texts, title, text):
    found = chosen(fields, texts)
    assert (found.title, found.text) == (title, text)
    texts = {name for name, one in fields.items() if one == TEXT}
    assert texts - {title, *text, *found.searched["content"]} == found.left_out.keys() - {title}
    assert all(found.left_out.values()) and "title.en" not in found.left_out


def test_texts_in_nested_documents_count_where_the_others_are_short():
    """The words of a keyword (`journal.words`) are no text beside whole passages; a long note is."""
    fields = {"journal": Field("keyword", words=("journal.words",)), "parts.body": Field("text", nested=True)}
    found = chosen(fields, {"journal": ["Annals of Ice"], "parts.body": [PROSE * 2]})
    assert found.text == ("parts.body",) and "3 words on average" in found.left_out["journal"]
    found = chosen(fields | {"note": TEXT}, {"note": [PROSE], "parts.body": [PROSE * 2]})
    assert found.text == ("note",) and "the index has other texts" in found.left_out["parts.body"]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (KEYWORD, "it is keyword, in which BM25 finds no words"),
        (Field("keyword", nested=True), "nested keyword, in which BM25 finds no words"),
        (Field("text", indexed=False), "its words are not indexed"),
        (Field("text", in_source=False), "not kept in _source"),
        (Field(CONFLICT, why="the indices differ: it is text in a, keyword in b"), "text in a, keyword in b"),
    ],
)
def test_a_field_that_can_not_be_searched_is_left_out_with_a_notice(field, said):
    found = chosen({"abstract": field, "body": TEXT}, {"body": [PROSE]})
    assert found.text == ("body",) and said in found.left_out["abstract"]
    if not field.nested:  # as chunks often are, beside a text
        (notice,) = found.notices
        assert notice.startswith("the field abstract of here is left out: ") and said in notice
    alone = chosen({"abstract": field, "title": TEXT}, {"title": ["Ice sheets"]})
    assert len(alone.notices) == 1 and said in alone.notices[0]
    with pytest.raises(InvalidData, match=r"no text field that .* .abstract: .*add one, such as|here keeps no _source"):
        chosen({"abstract": field}, {})
    with pytest.raises(InvalidData, match="the field abstract of here, which the settings name, can't be used"):
        chosen({"abstract": field, "body": TEXT}, {"body": [PROSE]}, StoreProfile(text=("abstract",)))


def test_indices_that_differ_in_what_nobody_searches_need_no_notice():
    for other, count in ((KEYWORD, 0), (Field("dense_vector", 3), 1)):
        differing = unified({"a": {"doi": TEXT}, "b": {"doi": other}})
        found = chosen({**differing, "body": TEXT}, {"body": [PROSE]})
        assert f"{other.type} " in found.left_out["doi"] and len(found.notices) == count


def test_an_identifier_alone_is_no_text():
    with pytest.raises(InvalidData, match="no text field"):
        chosen({"doi": TEXT}, {"doi": ["10.1000/182", "10.1000/183"]})
    assert chosen({"doi": TEXT}, {"doi": ["10.1/1"]}, StoreProfile(text=("doi",))).text == ("doi",)


def test_what_the_settings_name_must_be_shown():
    with pytest.raises(InvalidData, match="can't be shown: its text is not in _source"):
        chosen({"body": TEXT, "all": TEXT}, {"all": ["", ""], "body": [PROSE]}, StoreProfile(text=("all",)))
    for names, said in (
        (StoreProfile(title="year"), "it is long: it holds no text"),
        (StoreProfile(vector="body"), "it is text: it holds no vectors"),
        (StoreProfile(text=("none",)), "no field 'none'. Its text fields are body"),
    ):
        with pytest.raises(InvalidData, match=said):
            chosen({"body": TEXT, "year": Field("long")}, {"body": [PROSE]}, names)
    assert not chosen({"abstract": KEYWORD, "body": TEXT}, {"body": [PROSE]}, StoreProfile(text=("body",))).notices


VECTOR, RAW = Field("dense_vector", 3), Field("text", keyword="t.raw")


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (TEXT, KEYWORD, "it is text in a, keyword in b"),
        (VECTOR, Field("dense_vector", 4), "dense_vector of 3 dimensions in a, dense_vector of 4 dimensions in b"),
        (VECTOR, Field("dense_vector", 3, "l2_norm"), "dense_vector of 3 dimensions (l2_norm) in b"),
        (TEXT, Field("text", nested=True), "nested text in b"),
        # What one of them lacks, both lack.
        (TEXT, Field("match_only_text"), TEXT),
        (Field("integer"), Field("long"), Field("integer")),
        (TEXT, Field("text", indexed=False), Field("text", indexed=False)),
        (TEXT, Field("text", in_source=False), Field("text", in_source=False)),
        (RAW, Field("text", keyword="t.exact"), TEXT),
        (RAW, RAW, RAW),
    ],
)
def test_indices_that_differ(one, other, said):
    (found,) = unified({"a": {"t": one}, "b": {"t": other}, "c": {"t": one}}).values()
    if isinstance(said, str):
        assert found.type == CONFLICT and said in found.why and " in c" in found.why
    else:
        assert found == said


def test_an_alias_whose_indices_differ(client, store):
    for number, type_ in ((1, "text"), (2, "keyword")):
        properties = {"abstract": {"type": type_}, "body": {"type": "text"}, "year": {"type": type_}}
        make(client, f"{store.index}-{number}", properties, aliases={store.index: {}})
        source = {"abstract": "Glaciers.", "body": "Glaciers melt.", "year": "2001"}
        put(client, f"{store.index}-{number}", f"p{number}", source)
    make(client, f"{store.index}-3", {"kop": {"type": "text"}}, aliases={store.index: {}})
    put(client, f"{store.index}-3", "p3", {"kop": "Glaciers."})
    assert {one.text for one in search(store, "glaciers")} == {"Glaciers melt."}
    abstract, hidden = info_of(store).notices
    assert "keyword in" in abstract and f"documents in {store.index}-3 (1), which have no body." in hidden
    with pytest.raises(UsageError, match="year has a different type in each index"):
        refuse_unfit([parse_filter("year=2001")], store.fields(), store.name)


def test_texts_that_are_not_in_source(client, store):
    properties = {
        "title": {"type": "keyword"},
        "content": {"type": "text"},
        "story": {"type": "text", "copy_to": "content"},
        "body": {"type": "text", "store": True},
        "doi": {"type": "text"},
        "parts": {"type": "nested", "properties": {"text": {"type": "text"}}},
    }
    make(client, store.index, properties, mappings={"_source": {"excludes": ["bod*"]}})
    paper = {"title": "Ice", "story": PROSE, "body": "Elsewhere.", "doi": "10.1/x", "parts": [{"text": "A part."}]}
    put(client, store.index, "p", paper)
    (found,) = search(store, "glaciers")
    assert (found.title, found.text) == ("Ice", PROSE)
    info = info_of(store)
    assert (info.details["title field"], info.details["text fields"]) == ("title", "story")
    said = info.details["left out"]
    for one in (
        "content (its text is not in _source",
        "body (its text is not kept in _source",
        "doi (does not look like a text field, 1 words",
        "parts.text (it is in nested documents",
        "title (shown as the title, but not searched: it is keyword",
    ):
        assert one in said, (one, said)
    assert len(info.notices) == 2
    with pytest.raises(NotFound, match="no text in title"):
        search(store, "Ice", {"bm25": Bm25(fields={"title": 1.0})})


def test_the_choice_stays_while_the_mapping_does(client, store):
    make(client, store.index, {"one": {"type": "text"}, "two": {"type": "text"}})
    assert store.info() is not None  # there is no document to look at yet
    put(client, store.index, "p", {"one": PROSE, "two": "Short."})
    store._known = None
    assert search(store, "glaciers")[0].text == PROSE
    for number in range(30):
        put(client, store.index, f"q{number}", {"one": "Short.", "two": PROSE})
    store._known = None
    assert [one.text for one in search(store, "short")].count(PROSE) == 0


def test_source_patterns_of_a_mapping():
    properties = {"a": {"type": "text"}, "b": {"properties": {"c": {"type": "text"}}}}

    def kept(source: dict[str, Any]) -> set[str]:
        return {name for name, one in fields_of({"_source": source, "properties": properties}).items() if one.in_source}

    assert kept({}) == kept({"includes": []}) == {"a", "b.c"}
    assert kept({"excludes": ["b"]}) == kept({"includes": ["a"]}) == kept({"excludes": ["b.*"]}) == {"a"}
    assert kept({"includes": ["b*"], "excludes": ["a"]}) == {"b.c"}
    assert kept({"enabled": False}) == kept({"mode": "disabled"}) == set()
    assert kept({"mode": "synthetic"}) == {"a", "b.c"}


def semantic(stub: Stub, properties: Mapping[str, Any], source: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A server with inference, which the test nodes have not: what is asked of it is kept."""
    asked: list[dict[str, Any]] = []

    def answer(body: bytes) -> Answer:
        responses = []
        for line in body.splitlines()[1::2]:
            asked.append(json.loads(line))
            hit = {"_index": "papers", "_id": "p", "_score": 17.5, "_source": source}
            responses.append({"status": 200, "hits": {"hits": [hit]}, "_shards": {"failed": 0}})
        return 200, {"responses": responses}

    stub.answers["GET", "/papers"] = [(200, {"papers": {"mappings": {"properties": dict(properties)}}})]
    stub.answers["GET", "/papers/_count"] = [(200, {"count": 1})]
    stub.answers["POST", "/papers/_msearch"] = [answer]
    return asked


SEMANTIC = {"type": "semantic_text", "inference_id": "elser"}


@pytest.mark.parametrize(
    ("properties", "source", "words"),
    [
        ({"content": SEMANTIC}, {"content": PROSE}, False),
        # As older indices keep it: the text beside what was made of it.
        ({"content": SEMANTIC}, {"content": {"text": PROSE, "inference": {"chunks": []}}}, False),
        ({"content": SEMANTIC, "body": {"type": "text", "copy_to": "content"}}, {"body": PROSE}, True),
    ],
)
def test_semantic_text_is_searched_by_the_servers_own_inference(stub, properties, source, words):
    asked = semantic(stub, properties | {"year": {"type": "integer"}}, source)
    with ElasticStore(Connection(stub.url), "papers") as store:
        filters = [parse_filter("year>2000")]
        (document,) = search(store, "ice is lost", {"dense": Dense(field="content", depth=7)}, filters=filters)
        assert document.text == PROSE
        query = {"semantic": {"field": "content", "query": "ice is lost"}}
        later = [{"range": {"year": {"gt": "2000"}}}]
        assert asked[-1]["retriever"] == {"standard": {"query": query, "filter": later}}
        both: dict[str, Retriever] = {"bm25": Bm25(), "dense": Dense(field="content")}
        if words:
            (document,) = search(store, "ice is lost", both)
            assert not any("rrf" in body.get("retriever", {}) for body in asked)
        else:
            with pytest.raises(NotFound, match="no text in content that BM25"):
                search(store, "ice is lost", both)
        found = rank_all(store, [Query("ice")], {"dense": Dense(field="content")})
        assert found == [{"dense": [("p", 17.5)]}]
        stub.answers["POST", "/papers/_search"] = [(200, {"aggregations": {"passages": {"doc_count": 0}}})]
        info = info_of(store)
        assert (info.semantic, info.words, info.dimensions) == (("content",), words, None)
        assert "content" in info.details["semantic fields"]


def test_an_error_while_looking_is_an_error(stub):
    semantic(stub, {"body": {"type": "text"}}, {})
    refused = {"status": 403, "error": {"type": "security_exception", "reason": "unauthorized"}}
    stub.answers["POST", "/papers/_msearch"] = [(200, {"responses": [refused]})]
    with ElasticStore(Connection(stub.url), "papers") as store, pytest.raises(CcheckError, match="unauthorized"):
        store.info()


def planned(model: str | None = None, **info: Any) -> Plan:
    """The plan of the default recipe for an index that ccheck did not make."""
    about = StoreInfo("here", 3, 3, Layout(), made_here=False, **info)
    recipe = load_recipe("default").model_copy(update={"rerankers": {}})
    return make_plan(recipe, about, "here", Runtime(Settings(embedding_model=model)), strict=False, judges=False)


def test_semantic_text_is_searched_without_a_model():
    for dimensions in (None, 384):
        plan = planned(dimensions=dimensions, semantic=("content",))
        assert plan.retrievers["dense"].field == "content" and plan.encoders == {} and plan.warnings == ()  # type: ignore[union-attr]
    named = planned("all-MiniLM-L6-v2", dimensions=384, semantic=("content",))
    assert named.retrievers["dense"].field is None and named.encoders.keys() == {"dense"}  # type: ignore[union-attr]
    alone = planned(semantic=("content",), words=False)
    assert alone.retrievers.keys() == {"dense"} and "without bm25" in alone.warnings[0]
    with pytest.raises(NotFound, match="no text field in which BM25 finds words"):
        planned(words=False)


def doctor(store: str, *arguments: str) -> tuple[int, list[tuple[str, str, str]]]:
    ran = ccheck("doctor", "--store", store, "--json", *arguments)
    found = [(one["part"], one["status"], one["detail"]) for one in ran.objects]
    return ran.code, [one for one in found if one[0] in ("store", "search")]


def test_doctor_says_what_was_chosen_and_why(client, elasticsearch_url, elasticsearch_index):
    vector = {"type": "dense_vector", "dims": 3, "similarity": "cosine"}
    fields = {"abstract": {"type": "keyword"}, "story": {"type": "text"}, "doi": {"type": "text"}, "vector": vector}
    make(client, elasticsearch_index, fields)
    put(client, elasticsearch_index, "p", {"abstract": "A.", "story": PROSE, "doi": "10.1/x", "vector": [1, 0, 0]})
    code, ((_, status, said), *notices) = doctor(f"{elasticsearch_url}/{elasticsearch_index}")
    assert (code, status) == (0, "ok")
    for one in ("1 document;", "text fields: story", "doi (does not look like a text field", "searched with bm25"):
        assert one in said, (one, said)
    assert [status for _, status, _ in notices] == ["absent", "absent"]
    assert "abstract" in notices[0][2] and "--model" in notices[1][2]


def test_doctor_refuses_what_a_query_refuses(client, elasticsearch_url, elasticsearch_index):
    store = f"{elasticsearch_url}/{elasticsearch_index}"
    vector = {"type": "dense_vector", "dims": 3, "similarity": "cosine"}
    make(client, elasticsearch_index, {"body": {"type": "text"}, "vector": vector})
    wrong = ("--model", "all-MiniLM-L6-v2")
    for before, arguments, said in (
        (None, (), "is empty"),
        ({"body": PROSE, "vector": [1, 0, 0]}, wrong, "have 3 dimensions"),
        ("_close", (), "closed"),
    ):
        if isinstance(before, dict):
            put(client, elasticsearch_index, "p", before)
        elif before:
            client.post(f"/{elasticsearch_index}/{before}").raise_for_status()
        asked = ccheck("query", "sea level", "--store", store, *arguments, "--verdict", "none", "--rerank", "none")
        code, ((_, status, detail), *_) = doctor(store, *arguments)
        assert asked.code != 0 and said in " ".join(asked.err.split()), asked.err
        assert status == "failed" and said in detail
        assert code == asked.code
