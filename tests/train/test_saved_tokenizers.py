"""A trained model's tokenizer is the base's, though special tokens in texts were read as words during training."""

from __future__ import annotations

import json

import pytest
import tiny_training as tiny
from runtimes import on_cpu
from tiny_rerankers import make_encoder
from tiny_stances import rows_of

from ccheck.lab.train.folders import Output
from ccheck.lab.train.options import EmbedderOptions, RerankerOptions, StanceOptions
from ccheck.lab.train.stance_data import stance_data

pytest.importorskip("torch")
pytest.importorskip("peft")

from ccheck.lab.train.embedder import train_embedder
from ccheck.lab.train.reranker import train_reranker
from ccheck.lab.train.stance import train_stance

QUICK = {"epochs": 1, "batch": 16, "precision": "float32"}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A model with a unigram tokenizer, in whose vocabulary special tokens are words too."""
    texts = [*tiny.TEXTS, *(row.text for row in rows_of())]
    folder = tmp_path_factory.mktemp("base") / "model"
    return make_encoder(folder, architecture="xlm-roberta", texts=texts, num_hidden_layers=1)


@pytest.mark.parametrize("kind", ["embedder", "reranker", "stance"])
def test_the_tokenizer_is_saved_as_the_base_has_it(base, tmp_path, kind):
    output = Output(tmp_path / "model")
    if kind == "embedder":
        train_embedder(EmbedderOptions(base=str(base), **QUICK), tiny.DATA, output, on_cpu())
    elif kind == "reranker":
        options = RerankerOptions(base=str(base), eval_depth=2, eval_claims=2, hard=1, random=1, **QUICK)
        train_reranker(options, tiny.DATA, output, on_cpu(), tiny.candidates)
    else:
        chosen = StanceOptions(base=str(base), **QUICK)
        train_stance(stance_data(rows_of(), chosen), chosen, output, on_cpu())
    before, after = (json.loads((folder / "tokenizer.json").read_text()) for folder in (base, output.folder))
    for part in ("normalizer", "pre_tokenizer", "post_processor", "model", "added_tokens"):
        assert after[part] == before[part], part
