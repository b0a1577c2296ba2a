"""Figures ranked by their images: a CLIP of the true architecture with random weights: the way, not the quality."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from article_files import JATS
from cli_runs import ccheck
from PIL import Image
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, PreTrainedTokenizerFast

from ccheck.articles.embedding import image_finder
from ccheck.articles.xml import parse_article
from ccheck.core.errors import NotFound
from ccheck.core.models import find_model

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
    ran = ccheck("figures", paper, CLAIM, *arguments)
    assert ran.code == 0, ran.err
    found = {one["task_id"]: one["score"] for one in json.loads(ran.out)}
    wanted = {
        "FIG 1": cosine(clip, paper.with_name("g1.tif")),
        "FIG 2": cosine(clip, paper.parent / "figures" / "snails" / "FIG 2.png"),
    }
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
    secret = tmp_path / "secret.png"
    secret.touch()
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "G1.JPG").touch()
    (folder / "link.png").symlink_to(secret)
    find = image_finder([folder])

    def found(image: str) -> Path | None:
        return find("snails", parse_article(JATS.replace("g1.tif", image).encode(), "snails.xml").elements[0])

    assert found("g1.tif") == found("info:doi/10.1/g1") == folder / "G1.JPG"
    assert found("../secret.png") is None and found(str(secret)) is None and found("link.png") is None
    with pytest.raises(NotFound, match="no folder"):
        image_finder([tmp_path / "none"])
