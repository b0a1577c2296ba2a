"""Elements are ranked as the recipe says: by what stands for them, by chunks that cite them, and merged."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from article_files import JATS
from cli_runs import ccheck, works
from PIL import Image
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, PreTrainedTokenizerFast

from ccheck.articles import Article
from ccheck.articles.chunks import Cut
from ccheck.articles.embedding import Bm25Index, Models, TextEncoder, image_finder
from ccheck.articles.figures import FigureRanker, merged, represent
from ccheck.articles.passages import Expressions, PassageRanker, holds, listed, load, packaged
from ccheck.articles.xml import parse_article
from ccheck.core.analysis import terms
from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.grounding_stages import ChunkRun, ElementRun, FiguresStage, MergedRun, PassagesStage
from ccheck.core.models import find_model
from ccheck.core.recipe import load_recipe


@pytest.fixture(scope="module")
def article() -> Article:
    return parse_article(JATS.encode(), "snails.xml")


def ranked(article: Article, claim: str, stage: FiguresStage, models: Models | None = None) -> list[str]:
    found = FigureRanker([article], stage, models).rank(claim, [article.id])
    assert [one.rank for one in found] == list(range(1, len(found) + 1))
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    return [one.element.id for one in found]


def elements(**keys: object) -> FiguresStage:
    return FiguresStage(runs={"one": ElementRun(**keys)})  # type: ignore[arg-type]


def chunks(**keys: object) -> FiguresStage:
    return FiguresStage(runs={"one": ChunkRun(**keys)})  # type: ignore[arg-type]


def test_the_packaged_recipe_ranks_what_the_claim_is_about(article: Article) -> None:
    stage = load_recipe("figures").figures
    assert stage is not None
    words = stage.model_copy(update={"runs": {"elements": stage.runs["elements"]}})
    assert ranked(article, "the moss was eaten at night", words)[0] == "g2"
    assert ranked(article, "shells grow in length each year", words)[0] == "g1"
    assert ranked(article, "the weight in grams at the north coast", words)[0] == "t1"


def test_what_stands_for_an_element(article: Article) -> None:
    cut, first, table = Cut(article), article.elements[0], article.elements[2]
    caption = "Figure 1. Growth of shells. (A) Length by year. (B) Width."
    assert represent(cut, first, ElementRun(text=["caption"], captions=2)) == f"{caption} {caption}"
    assert represent(cut, table, ElementRun(text=["cells"])) == "coast grams north 12"
    assert represent(cut, table, ElementRun(text=["sentences"])) == "Weights are listed in Table 1."
    near = represent(cut, table, ElementRun(text=["sentences"], neighbours=1))
    assert near.startswith("Their shells were thicker in cold water. Weights are listed in Table 1. Moss was eaten")
    assert represent(cut, table, ElementRun(text=["place"])) == "Heavy snails are rare, as Fig. 9 would show."
    assert "Moss was eaten" in represent(cut, first, ElementRun(text=["windows"], tokens=40))
    assert "Moss was eaten" in represent(cut, first, ElementRun(text=["semantic"]))
    # A sentence in the paragraph of its place counts once.
    both = represent(cut, first, ElementRun(text=["place", "sentences"]))
    assert both.count("Snails of the coast grew") == 1


def test_chunks_give_their_ranks_to_what_they_cite(article: Article) -> None:
    by_sentence = chunks(granularity="sentence")
    assert ranked(article, "See both for the slime", by_sentence)[:2] == ["g1", "g2"]
    [first, second, *_] = FigureRanker([article], by_sentence).rank("weights are listed", ["snails"])
    assert (first.element.id, first.score) == ("t1", 1.0)
    assert first.why[0].text == "Weights are listed in Table 1." and first.why[0].granularity == "sentence"
    assert second.score < 1
    captions = chunks(granularity="sentence", captions=True)
    assert ranked(article, "moss left after each night", captions)[0] == "g2"
    stage = chunks(granularity="window", tokens=1024, order="first-mention")
    assert ranked(article, "snails moss shells water night slime weights", stage) == ["g1", "t1", "g2"]


def test_embeddings_with_their_instruction(article: Article) -> None:
    asked: list[str] = []

    def queries(texts: Sequence[str]) -> list[np.ndarray]:
        asked.extend(texts)
        return [np.array([1, 0], np.float32) for _ in texts]

    def documents(texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array([1, 0] if "Weights" in text else [0, 1], np.float32) for text in texts]

    models = Models({"m": TextEncoder(documents, queries)})
    stage = elements(text=["caption"], retriever="dense", model="m", instruction="find: ")
    assert ranked(article, "xyz", stage, models)[0] == "t1"
    assert asked == ["find: xyz"]
    hybrid = elements(text=["caption"], retriever="hybrid", model="m")
    assert set(ranked(article, "moss", hybrid, models)[:2]) == {"t1", "g2"}


def test_statistics_are_those_of_all_articles(article: Article) -> None:
    other = parse_article(JATS.replace("snails", "moss").encode(), "other.xml")
    alone = FigureRanker([article], elements(text=["caption"])).rank("moss", ["snails"])
    among = FigureRanker([article, other], elements(text=["caption"]))
    assert alone[0].score != among.rank("moss", ["snails"])[0].score
    assert {one.article for one in among.rank("moss", ["snails", "other"])} == {"snails", "other"}
    with pytest.raises(NotFound, match="'gone'"):
        among.rank("moss", ["gone"])


def test_merges_of_which_a_run_can_be_one(article: Article) -> None:
    one, two = [("a", 9.0), ("b", 3.0), ("c", 1.0)], [("d", 0.5), ("a", 0.4), ("e", 0.1)]

    def order(merge: str, **keys: object) -> list[str]:
        stage = FiguresStage(runs={"x": ElementRun()}, merge=merge, **keys)  # type: ignore[arg-type]
        return [key for key, _ in merged([one, two], [1.0, 1.0], stage)]

    assert order("round-robin") == ["a", "d", "b", "c", "e"]
    rankings = [[(f"{run}{n}", 1.0) for n in range(4)] for run in "ab"]
    growing = merged(rankings, [1, 1], FiguresStage(runs={"x": ElementRun()}, merge="round-robin"))
    assert [key for key, _ in growing] == ["a0", "b0", "a1", "a2", "b1", "b2", "a3", "b3"]
    # a: 1 + 1/4, b: 1/2, d: 1/2, c: 1/3, e: 1/6
    assert order("rank-and-score") == ["a", "b", "d", "c", "e"]
    assert order("rank-and-score", s=1) == ["a", "d", "b", "c", "e"]
    # a: 1 + .8, d: 1, b: 1/3, e: .2, c: 1/9
    assert order("scores") == ["a", "d", "b", "e", "c"]
    # A run as the hierarchical ones are: it ranks as a stage with the same runs does, and can be merged with others.
    parts = {"sentence": ChunkRun(granularity="sentence"), "paragraph": ChunkRun(granularity="paragraph")}
    inner = MergedRun(runs=parts)  # type: ignore[arg-type]
    claim = "the moss was eaten at night"
    flat = FiguresStage(runs=parts, merge="rank-and-score", s=1)  # type: ignore[arg-type]
    assert ranked(article, claim, FiguresStage(runs={"all": inner})) == ranked(article, claim, flat)
    beside = FiguresStage(runs={"all": inner, "caption": ElementRun(text=["caption"])}, merge="round-robin")
    assert sorted(ranked(article, claim, beside)) == ["g1", "g2", "t1"]


def test_bm25_is_lucenes_also_without_elements_and_words() -> None:
    index = Bm25Index([terms("moss moss snail"), terms("snail"), terms("shell water")])
    [first, second, third] = index.scores(terms("moss"))
    # idf = ln(1 + 2.5 / 1.5), tf = 2 / (2 + 1.2 * (.25 + .75 * 3 / 2))
    assert first == pytest.approx(np.log(1 + 2.5 / 1.5) * 2 / (2 + 1.2 * (0.25 + 0.75 * 3 / 2)))
    assert (second, third) == (0, 0)
    assert list(index.scores(terms("moss moss"))) == pytest.approx([2 * first, 0, 0])
    bare = parse_article(b"<article><body><p>Only text.</p></body></article>", "bare.xml")
    assert FigureRanker([bare], elements()).rank("text", ["bare"]) == []
    article = parse_article(JATS.encode(), "snails.xml")
    assert ranked(article, "???", elements()) == ["g1", "g2", "t1"]


def found(article: Article, claim: str, expressions: Expressions | None = None, **keys: object) -> list[str]:
    ranker = PassageRanker([article], PassagesStage(**keys), expressions=expressions)  # type: ignore[arg-type]
    passages = ranker.find(claim, [article.id])
    assert all(article.text[one.start : one.end] == one.text for one in passages)
    return [one.text for one in passages]


THICKER = "Their shells were thicker in cold water."


def test_a_sentence_comes_with_its_left_neighbour_of_the_paragraph_and_may_need_an_expression(article: Article) -> None:
    before = "Snails of the coast grew by 4 mm a year (Fig. 1A)."
    assert found(article, "thicker in cold water", sentences=1) == [f"{before} {THICKER}"]
    assert found(article, "thicker in cold water", sentences=1, neighbours=0) == [THICKER]
    apart = found(article, "listed weights of the coast", sentences=2, neighbours=0)
    assert set(apart) == {before, "Weights are listed in Table 1."}, "what stands between them is not in a passage"
    (first,) = found(article, "moss was eaten at night", sentences=1)
    assert first == "Moss was eaten at night, and slime dried by day."
    assert all(text != "Weights" for text in found(article, "weights", sentences=10))
    claim = "snails thicker in cold water by day"
    assert found(article, claim, listed(["were thicker"]), sentences=5) == [THICKER]
    assert found(article, claim, listed(["no such words"]), sentences=5) == found(article, claim, sentences=5)


def test_sections_order_and_clauses(article: Article) -> None:
    passages = PassageRanker([article], PassagesStage()).find("heavy snails are rare by night", ["snails"])
    assert passages[0].section == "Weights"
    assert [one.score for one in passages] == sorted((one.score for one in passages), reverse=True)
    assert found(article, "slime dried", sentences=1, clauses=True, neighbours=0) == ["and slime dried by day."]
    clauses = [article.text[start:end] for start, end in Cut(article).clauses]
    assert [one for one in clauses if "Moss was" in one] == ["Moss was eaten at night"]


def test_expressions_are_found_as_whole_words_and_read_from_files(tmp_path: Path) -> None:
    own = listed(["in the absence of", "we tested"])
    assert holds("Grown In the absence of light.", own)
    assert not holds("Here we testedly grew.", own)
    assert ("compared", "with") in packaged() and holds("compared with controls", packaged())
    (file := tmp_path / "own.txt").write_text("we tested\nwe saw\n")
    assert load(file) == {("we", "tested"), ("we", "saw")}
    file.write_text("# nothing yet\n")
    with pytest.raises(InvalidData):
        load(file)
    with pytest.raises(NotFound):
        load(tmp_path / "none.txt")


# -- figures ranked by their images: a CLIP of the true architecture with random weights: the way, not the quality


CLAIM = "moss was eaten at night"
PUBLISHED = "openai/clip-vit-large-patch14"


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the hub has it: weights, tokenizer, and how images are prepared."""
    folder = tmp_path_factory.mktemp("clip")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(find_model("all-MiniLM-L6-v2").path)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = CLIPConfig(
        text_config={**size, "vocab_size": len(tokenizer), "eos_token_id": 102, "max_position_embeddings": 12},
        vision_config={**size, "image_size": 32, "patch_size": 16},
        projection_dim=8,
    )
    CLIPModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    """Figure 1 has the image that the article names, Figure 2 one by the task's name, Table 1 none."""
    (tmp_path / "snails.xml").write_text(JATS)
    noise = np.random.default_rng(0).integers(0, 255, (2, 40, 60, 3), np.uint8)
    Image.fromarray(noise[1]).save(tmp_path / "g1.tif")
    (tmp_path / "figures" / "snails").mkdir(parents=True)
    Image.fromarray(noise[0]).save(tmp_path / "figures" / "snails" / "FIG 2.png")
    return tmp_path / "snails.xml"


def cosine(clip: Path, image: Path) -> float:
    """By the library's own functions."""
    model = CLIPModel.from_pretrained(clip).eval()
    tokenizer, prepare = PreTrainedTokenizerFast.from_pretrained(clip), CLIPImageProcessor.from_pretrained(clip)
    pixels = prepare(Image.open(image).convert("RGB"), return_tensors="pt")["pixel_values"]
    text = tokenizer([CLAIM], return_tensors="pt")
    with torch.inference_mode():
        out = model(input_ids=text["input_ids"], attention_mask=text["attention_mask"], pixel_values=pixels)
    return float((out.image_embeds @ out.text_embeds.T)[0, 0])


def test_images_are_ranked_by_their_cosine_to_the_claim(clip: Path, paper: Path) -> None:
    arguments = ("--recipe", "context24-figures:images", "--replace", f"{PUBLISHED}={clip}", "--json")
    ran = works("figures", paper, CLAIM, *arguments)
    found = {one["task_id"]: one["score"] for one in json.loads(ran.out)}
    images = {"FIG 1": paper.with_name("g1.tif"), "FIG 2": paper.parent / "figures" / "snails" / "FIG 2.png"}
    wanted = {key: cosine(clip, image) for key, image in images.items()}
    assert {key: found[key] for key in wanted} == pytest.approx(wanted, abs=1e-5)
    assert list(found) == ["FIG 2", "FIG 1", "TAB 1"] and wanted["FIG 2"] > wanted["FIG 1"]
    # A file that is not an image is named and left out.
    paper.with_name("g1.tif").write_text("not an image")
    ran = ccheck("figures", paper, CLAIM, *arguments)
    assert [one["task_id"] for one in json.loads(ran.out)] == ["FIG 2", "FIG 1", "TAB 1"]
    assert "g1.tif can't be read" in ran.err


def test_without_images_or_model_it_says_so_or_goes_on_with_words(tmp_path: Path, clip: Path) -> None:
    (tmp_path / "snails.xml").write_text(JATS)
    recipe = tmp_path / "both.toml"
    recipe.write_text(
        '[retrievers.bm25]\n[verdict]\nmethod = "none"\n[figures]\nmerge = "scores"\n'
        '[figures.runs.words]\nkind = "element-guided"\ntext = ["caption"]\n'
        f'[figures.runs.seen]\nkind = "image"\nmodel = "{clip}"\nrequired = false\n'
    )
    ran = ccheck("figures", tmp_path / "snails.xml", CLAIM, "--recipe", recipe, "--json")
    assert ran.code == 0 and "without the run seen: no figure or table has an image here" in ran.err
    assert json.loads(ran.out)[0]["task_id"] == "FIG 2"
    alone = ("figures", tmp_path / "snails.xml", CLAIM, "--recipe", "context24-figures:images")
    assert (ran := ccheck(*alone)).code == 4 and "--images FOLDER" in ran.err
    assert ccheck(*alone, "--images", tmp_path / "none").code == 4
    Image.new("RGB", (9, 9)).save(tmp_path / "g1.png")
    assert (ran := ccheck(*alone)).code == 4 and PUBLISHED in ran.err


def test_images_are_found_by_name_and_nowhere_else(tmp_path: Path) -> None:
    (secret := tmp_path / "secret.png").touch()
    (folder := tmp_path / "images").mkdir()
    (folder / "G1.JPG").touch()
    (folder / "link.png").symlink_to(secret)
    find = image_finder([folder])

    def found(image: str) -> Path | None:
        return find("snails", parse_article(JATS.replace("g1.tif", image).encode(), "snails.xml").elements[0])

    assert found("g1.tif") == found("info:doi/10.1/g1") == folder / "G1.JPG"
    assert found("../secret.png") is None and found(str(secret)) is None and found("link.png") is None
    with pytest.raises(NotFound, match="no folder"):
        image_finder([tmp_path / "none"])
