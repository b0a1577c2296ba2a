"""Settings of trainings: defaults, then a preset, then a TOML file, then flags.

A preset has the values of a published system; `presets/NAME.toml` says from which section of its paper.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from ...core.errors import InvalidData, NotFound, UsageError, misfits
from ...core.files import read_text
from ...core.table import Table
from ...core.text import did_you_mean

DEFAULT_BASE = "sentence-transformers/all-MiniLM-L6-v2"


class Lora(Table):
    """Low-rank adaptation (Hu et al., ICLR 2022): training learns a small addition to some linear layers.

    `modules` are the last parts of their names, for example `q_proj`. By default they are those of attention.
    `last_layers`: adapt only so many of the last layers. The addition is merged into the weights at the end.
    """

    modules: tuple[str, ...] = ()
    last_layers: int | None = Field(default=None, ge=1)
    r: int = Field(default=8, ge=1, le=1024)
    alpha: float = Field(default=32, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)


class TrainingOptions(Table):
    """The options of all trainings.

    `base`: the model to start from, a folder or a name. `batch`: rows in one batch, `accumulate` batches for each step
    of the optimiser. `warmup`: below 1 a share of all steps, otherwise a number of steps. `clip`: the largest gradient
    norm. `precision`: that of the forward pass; auto is bfloat16 where the device has it, float16 on other GPUs.
    `max_tokens`: by default the model's limit, at most 512. `gradient_checkpointing` saves memory and takes a third
    more time. `metric` chooses the best epoch. `split`: what training and development claims do not share. `dev_share`:
    the share of the claims to measure on, where --dev-claims are not given; 0 trains on all of them and keeps the last
    weights.
    """

    base: str = DEFAULT_BASE
    seed: int = Field(default=0, ge=0, le=2**31)
    epochs: int = Field(default=3, ge=1, le=1000)
    batch: int = Field(default=16, ge=1)
    accumulate: int = Field(default=1, ge=1)
    learning_rate: float = Field(default=2e-5, gt=0)
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = Field(default=0.1, ge=0)
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float = Field(default=1.0, gt=0)
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_tokens: int | None = Field(default=None, ge=8, le=131_072)
    gradient_checkpointing: bool = False
    metric: str = "nDCG@10"
    split: Literal["document", "claim"] = "document"
    dev_share: float = Field(default=0.2, ge=0, lt=1)


class RetrievalOptions(TrainingOptions):
    """The options of trainings on a corpus: of embedders and rerankers.

    `negatives`: a file from ccheck mine. `negatives_from`: with judged, only documents that were judged not to be
    relevant to some claim are negatives. Without `titles` it learns from texts without them, as recipes with
    ingest.titles = false read them.
    """

    negatives: Path | None = None
    negatives_from: Literal["corpus", "judged"] = "corpus"
    titles: bool = True


class EmbedderOptions(RetrievalOptions):
    """Training of an embedding model.

    `multiple-negatives`: each claim is to be nearer to its document than to all others of a batch (Henderson et al.,
    2017), whose size memory does not limit (GradCache, Gao et al., RepL4NLP 2021): `batch` is what counts, `chunk` what
    is computed at a time (as many as `batch`: faster, more memory). `triplet`: nearer by `margin`, in cosine, than to
    one other document. `hard` negatives for each pair are optional for multiple-negatives. `pool`: documents to rank
    when choosing the best epoch, `final_pool` for the figures at the end.
    """

    loss: Literal["multiple-negatives", "triplet"] = "multiple-negatives"
    batch: int = Field(default=64, ge=2)
    chunk: int = Field(default=16, ge=1)
    margin: float = Field(default=0.3, gt=0)
    lora: Lora | None = None
    hard: int = Field(default=1, ge=0)
    pool: int = Field(default=2000, ge=1)
    final_pool: int = Field(default=20_000, ge=1)


class RerankerOptions(RetrievalOptions):
    """Training of a reranker.

    `bce`: relevant or not, each pair by itself. `margin`: the relevant document above another by `margin`, in the
    model's own scores (logits). `softmax`: the relevant one out of a group with its negatives.

    Negatives are documents that the retrieval of a `recipe` finds for the claim in its first `depth` and that are not
    judged relevant, `hard` for each relevant one, and `random` others. `hard_choice`: which of the ranking to take, of
    the first `keep` that are left. `mined_by`: with base, the untrained base reorders the ranking. `negatives_per`:
    with claim, for bce, a claim with several relevant documents has negatives only once. `second_epochs` are on
    negatives that the model of the first phase ranks highest. `eval_depth`: documents to rerank when measuring, for
    `eval_claims` when choosing the best epoch; the figures use all.
    """

    second_epochs: int = Field(default=0, ge=0)
    recipe: str | None = None
    loss: Literal["bce", "margin", "softmax"] = "bce"
    margin: float = Field(default=0.2, gt=0)
    depth: int = Field(default=200, ge=1, le=10_000)
    hard: int = Field(default=4, ge=0)
    hard_choice: Literal["top", "random"] = "top"
    keep: int | None = Field(default=None, ge=1)
    mined_by: Literal["retrieval", "base"] = "retrieval"
    negatives_per: Literal["document", "claim"] = "document"
    random: int = Field(default=4, ge=0)
    eval_depth: int = Field(default=50, ge=2, le=1000)
    eval_claims: int = Field(default=100, ge=1)


class StanceOptions(TrainingOptions):
    """Training of a stance classifier.

    The loss is focal, weighted by class (Lin et al., ICCV 2017): -alpha_y (1 - p_y)^gamma log p_y. A larger `gamma`
    gives right pairs less weight. With `class_weights` alpha is the inverse frequency of a class, scaled to sum to 3;
    otherwise it is 1. Pairs are drawn with weight count^-`balanced`: 1 for equal classes, 0 for classes as they are.
    `max_tokens` of claim and document are read at a time. `split`: with pair, a share of each label's pairs is held
    back. `frozen` trains only pooler and classifier, not the encoder.
    """

    epochs: int = Field(default=10, ge=1, le=1000)
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=5e-5, gt=0)
    max_tokens: int | None = Field(default=256, ge=16, le=131_072)
    metric: Literal["weighted F1", "macro F1"] = "weighted F1"
    split: Literal["document", "claim", "pair"] = "document"  # type: ignore[assignment] # one way more than the others
    dev_share: float = Field(default=0.2, gt=0, lt=1)
    gamma: float = Field(default=2.0, ge=0)
    class_weights: bool = False
    balanced: float = Field(default=0.5, ge=0, le=1)
    frozen: bool = False


T = TypeVar("T", bound=TrainingOptions)


def preset_names(kind: type[TrainingOptions]) -> list[str]:
    """The presets for one kind of training."""
    folder = files(__package__).joinpath("presets")
    names = [entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")]
    prefix = _prefix(kind)
    return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def load_options(kind: type[T], preset: str | None, config: Mapping[str, Any], flags: Mapping[str, Any]) -> T:
    """The settings in force; flags that are None were not given.

    Raises NotFound for an unknown preset, InvalidData for an unknown key, and UsageError for an invalid value.
    """
    values = {**(_preset(kind, preset) if preset else {}), **config}
    values |= {name: value for name, value in flags.items() if value is not None}
    for name in values:
        if name not in kind.model_fields:
            hint = did_you_mean(name, kind.model_fields, f"the settings are {', '.join(kind.model_fields)}")
            raise InvalidData(f"unknown training setting {name!r}: {hint}")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UsageError(f"the setting {misfits(error, 'as a whole')[0]}") from error


def read_config(path: Path) -> dict[str, Any]:
    """A TOML file of settings. Raises NotFound or InvalidData."""
    try:
        return tomllib.loads(read_text(path, "the training settings"))
    except ValueError as error:
        raise InvalidData(f"the training settings {path} are not TOML: {error}") from error


def _preset(kind: type[TrainingOptions], name: str) -> dict[str, Any]:
    names = preset_names(kind)
    if name not in names:
        hint = did_you_mean(name, names, f"choose one of {', '.join(names)}")
        raise NotFound(f"unknown preset {name!r} for this kind of training: {hint}")
    file = files(__package__).joinpath("presets", f"{_prefix(kind)}{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _prefix(kind: type[TrainingOptions]) -> str:
    return f"{kind.__name__.removesuffix('Options').lower()}-"
