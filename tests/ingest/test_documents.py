"""Records becoming documents: fields, cleaning, metadata, dates, limits."""

import json
import unicodedata
from dataclasses import replace
from typing import Any

import pytest

from ccheck.core.errors import InvalidData
from ccheck.core.layout import Chunking, Embedding, Layout
from ccheck.core.types import Document
from ccheck.ingest.documents import Made, clean, digest, last_day, layout_bytes, make_document
from ccheck.ingest.fields import Fields, has_field

USUAL = Fields()
CHUNKING = Chunking(60, 30, 4)
LAYOUT = Layout.with_vectors(Embedding("model", 8, "f" * 64, 32), CHUNKING)


def made(data: dict[str, Any], fields: Fields = USUAL, **options: bool) -> Made:
    return make_document({"text": "Some text."} | data, fields, **options)


def document(data: dict[str, Any], fields: Fields = USUAL, **options: bool) -> Document:
    return made(data, fields, **options).document


def test_fields_by_their_usual_names() -> None:
    record = {"_id": "4983", "title": " A title ", "text": "The text.", "metadata": {"url": "u", "year": 2011}}
    wanted = Document("4983", "A title", "The text.", {"url": "u", "year": 2011}, "2011-12-31")
    assert make_document(record) == Made(wanted)
    for name in "_id id doc_id docid corpus_id corpusid paper_id abstract_id cord_uid".split():
        assert document({name: 17}) == Document("17", "", "Some text.", {})
    assert document({"paper_id": "p", "_id": "x", "id": 3}) == Document(
        "x", "", "Some text.", {"id": 3, "paper_id": "p"}
    )
    assert document({"_id": None, "id": 3}).id == "3"
    scifact = {"doc_id": 5, "title": "T", "abstract": ["One.", "Two."], "structured": False}
    assert make_document(scifact).document == Document("5", "T", "One. Two.", {"structured": False})


def test_fields_by_option_and_titles_left_to_the_metadata() -> None:
    record = {"key": 1.0, "front": {"name": "T", "words": "W", "on": "2015-02"}, "text": "body"}
    fields = Fields("key", "front.name", "front.words", "front.on")
    assert make_document(record, fields).document == Document(
        "1", "T", "W", {"front.on": "2015-02", "text": "body"}, "2015-02-28"
    )
    untitled = make_document({"id": "1", "title": "T", "abstract": "A.", "year": 2020}, Fields(titles=False)).document
    assert (untitled.title, untitled.content, untitled.metadata) == ("", "A.", {"title": "T", "year": 2020})
    assert make_document({"id": "1", "abstract": "A."}, Fields(titles=False)).document.metadata == {}
    as_text = make_document({"_id": "a", "title": "Sea level rose."}, Fields(text="title")).document
    assert (as_text.title, as_text.text, dict(as_text.metadata)) == ("", "Sea level rose.", {})
    both = make_document({"_id": "a", "title": "Seas."}, Fields(text="title", title="title")).document
    assert (both.title, both.text) == ("Seas.", "Seas.")


def test_ids_are_kept_as_given_and_without_one_the_content_makes_one() -> None:
    decomposed = " " + unicodedata.normalize("NFD", "é/#? ")
    assert document({"_id": decomposed}).id == decomposed
    assert document({"_id": 10**30}).id == str(10**30)
    assert document({"_id": "é" * 256}).id == "é" * 256
    assert document({"_id": "007"}, untyped=True).id == "007"
    one, again, other = made({"title": "T"}), made({"title": "T", "year": 2000}), made({"title": "U"})
    assert one.id_made
    assert one.document.id == again.document.id != other.document.id
    assert len(one.document.id) == 32
    assert made({"_id": float("nan")}).id_made


def test_texts() -> None:
    assert document({"text": "", "abstract": "A."}).text == "A."
    assert document({"abstract": "A."}).metadata == {"abstract": "A."}
    assert document({"text": 12}, untyped=True).text == "12"
    for empty in ("", None, " \n\x00", [], ["", None]):
        with pytest.raises(InvalidData, match=r"^empty text$"):
            document({"title": "", "text": empty})
        assert document({"title": "T", "text": empty}).content == "T"  # stored by its title
    assert has_field({"text": None}, "text") and has_field({"a": {"b": None}}, "a.b")
    assert has_field({"metadata": {"abstract": "x"}}, "abstract") and has_field({"a": [{"b": "x"}]}, "a.b")
    assert not has_field({"body": "x"}, "text") and not has_field({"a": "b"}, "a.b")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        *(({"_id": blank}, "empty id") for blank in ("", "  ")),
        ({"_id": True}, "the id must be text or a number, got true"),
        ({"_id": {"a": 1}}, "the id must be text or a number, got"),
        ({"_id": ["a"]}, 'the id must be text or a number, got ["a"]'),
        ({"_id": "é" * 257}, "the id is too long: 514 bytes, at most 512"),
        *(({"_id": f"a{one}"}, "the id contains line breaks, other control") for one in "\n\t\x00\x85\u2028\ud800"),
        *(({"text": wrong}, "must be a string") for wrong in (12, True, ["a", 1.5])),
        ({"text": {"en": "x"}}, "the field 'text' is an object"),
        ({"title": "x" * 12_345}, "the title is too long: 12,345 characters, at most 10,000"),
        ({"text": "x" * 8_000_001}, "the text is too long: 8,000,001 characters, at most 8,000,000"),
        ({f"k{n}": n for n in range(257)}, "too much metadata: 257 fields, at most 256"),
        ({"long": "x" * 70_000}, "the metadata are too long: 70,011 bytes, at most 65,536"),
        ({"k" * 1_001: dict.fromkeys(map(str, range(100)), 1)}, "the name of a field is too long: 1,001 characters"),
        ({"metadata": {"k" * 1_001: {"1": 1}}}, "the name of a field is too long: 1,001 characters"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_document_can_have(data: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidData) as raised:
        document(data)
    assert reason in str(raised.value)


def test_what_is_just_within_the_limits() -> None:
    document({"title": "x" * 10_000, "text": "x" * 8_000_000} | {f"k{n}": n for n in range(256)})


def test_fields_that_the_record_lacks() -> None:
    with pytest.raises(InvalidData, match="no id: the field 'pmid' is empty or absent"):
        document({"_id": "1"}, Fields(id="pmid"))
    with pytest.raises(InvalidData, match=r"no field 'text' or 'abstract' .* '_id', 'body': .*--text-field"):
        make_document({"_id": "1", "body": "x"})


@pytest.mark.parametrize(
    ("data", "flat"),
    [
        ({"a": {"b": {"c": 1}, "d": [1, None, "x "]}}, {"a.b.c": 1, "a.d": [1, "x"]}),
        ({"by": [{"name": "A", "at": {"city": "X"}}, {"name": "B"}]}, {"by.name": ["A", "B"], "by.at.city": ["X"]}),
        ({"authors": [{"name": "A"}, "C"]}, {"authors.name": ["A"], "authors": ["C"]}),
        ({"nested": [[1, 2], [3]]}, {"nested": [1, 2, 3]}),
        ({"none": None, "empty": "", "nothing": [], "nan": float("nan")}, {}),
        ({"big": 2**63, "small": -(2**63)}, {"big": "9223372036854775808", "small": -(2**63)}),
        ({".odd..name.": 1, "": 2}, {"odd.name": 1, "_": 2}),
        ({"metadata": {"year": 2000, "own": "m"}}, {"year": 2000, "own": "m"}),
        ({"flag": True, "metadata": {"flag": False}}, {"flag": True, "metadata.flag": False}),
        ({"a.b": 1, "a": {"b": 2}}, {"a.b": 1}),
        ({"a.b": 1, "a": [{"b": 2}]}, {"a.b": 1}),
    ],
    ids=str,
)
def test_metadata_is_flat_and_of_names_that_meet_the_first_stays(data: dict[str, Any], flat: dict[str, Any]) -> None:
    assert document(data).metadata == flat


def test_numbers_in_tables() -> None:
    texts = ["12", "-3", "0", "0.50", "-0.5", "007", "1e5", "1.", "12 ", "1,000", "٣", "123456789012345", "9" * 16]
    metadata = document({f"k{n}": text for n, text in enumerate(texts)}, untyped=True).metadata
    assert list(metadata.values()) == [
        12, -3, 0, 0.5, -0.5, "007", "1e5", "1.", 12, "1,000", "٣", 123456789012345, "9" * 16,
    ]  # fmt: skip
    assert document({"k": "12"}).metadata == {"k": "12"}
    assert document({"_id": "1.50", "title": "2001"}, untyped=True).title == "2001"
    assert document({"_id": "1.50"}, untyped=True).id == "1.50"


@pytest.mark.parametrize(
    ("dirty", "cleaned"),
    [
        *((" a\r\nb\rc\x0cd\te ", "a\nb\nc\nd\te"), ("nul\x00 \x07bell\x9f", "nul bell")),
        *(("lone \ud800surrogate 😀", "lone surrogate 😀"), ("e\u0301", "é")),
        *(("a\u00a0b\u200dc", "a\u00a0b\u200dc"), ("\ufb01", "\ufb01")),
    ],
)
def test_cleaning(dirty: str, cleaned: str) -> None:
    assert clean(dirty) == cleaned
    assert clean(cleaned) == cleaned


@pytest.mark.parametrize(
    ("date", "day"),
    [
        *((year, "2015-12-31") for year in (2015, 2015.0, "2015")),
        ("2015-02", "2015-02-28"),
        ("2016-02", "2016-02-29"),
        *((day, "2015-02-03") for day in ("2015-2-3", "2015/02/03", "2015.02.03", "20150203", 20150203)),
        *((day, "2015-02-03") for day in (" 2015-02-03T23:59:59.123Z ", "2015-02-03 10:00:00+02:00")),
        *((other, None) for other in ("2015-02-30", "2015-13", "2015-00", "0000", "201502", "in 2015", "3 Feb 2015")),
        *((other, None) for other in ("03/02/2015", 1423000000, 15, 2015.5, True, ["2015"], "٢٠١٥")),
    ],
)
def test_dates(date: Any, day: str | None) -> None:
    assert last_day(date) == day


def test_published() -> None:
    assert document({"year": 2015, "date": "2014-01"}).published == "2014-01-31"
    assert document({"date": "unknown", "year": "2015"}, untyped=True).published == "2015-12-31"
    assert document({"year": 2015}).metadata == {"year": 2015}
    for data, unread in (({"date": "unknown"}, True), ({}, False)):
        assert (made(data).document.published, made(data).date_unread) == (None, unread)
    assert document({"issued": "2013", "year": 2015}, Fields(date="issued")).published == "2013-12-31"


def digest_for(document: Document, layout: Layout) -> str:
    return digest(document, layout_bytes(layout))


def test_digests_change_with_all_that_is_stored() -> None:
    base = Document("1", "T", "X", {"a": 1, "b": [2]}, "2015-12-31")
    assert digest_for(base, LAYOUT) == digest_for(Document("1", "T", "X", {"b": [2], "a": 1}, "2015-12-31"), LAYOUT)
    assert len(digest_for(base, LAYOUT)) == 32
    changes = {"id": "2"}, {"title": "TX", "text": ""}, {"metadata": {"a": "1", "b": [2]}}, {"published": None}
    layouts = [
        Layout(),
        Layout.with_vectors(LAYOUT.embedding, Chunking(60, 30, 5)),
        Layout.with_vectors(Embedding("model", 8, "e" * 64, 32), CHUNKING),
    ]
    others = [digest_for(replace(base, **change), LAYOUT) for change in changes]
    others += [digest_for(base, layout) for layout in layouts]
    assert len({digest_for(base, LAYOUT), *others}) == len(others) + 1
    moved = Layout.with_vectors(Embedding("/a/folder", 8, "f" * 64, 32), CHUNKING)
    assert digest_for(base, moved) == digest_for(base, LAYOUT)


def test_documents_can_always_be_written_as_utf8() -> None:
    dirty = document({"title": "\ud800t", "text": "x\udfff", "k\udc00": ["\ud800v", {"n\udbff": "\udcff."}]})
    json.dumps([dirty.title, dirty.text, dict(dirty.metadata)], ensure_ascii=False).encode()
    assert dirty.metadata == {"k": ["v"], "k.n": ["."]}
