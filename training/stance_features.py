"""Training of the light stance model: logistic regression over pair features of a frozen embedding model.

The folder is used as a stance classifier's is; `verdict/features.py` evaluates it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidData
from ..models import find_model, fingerprint
from ..types import Document, Stance
from ..verdict.features import (
    COUNTS,
    MODEL_TYPE,
    VERSION,
    FeatureStances,
    embedding,
    pair_features,
    scaled,
    sentences_of,
)
from ..verdict.labels import STANCES
from .card import work_folder
from .loop import Listener, Silent, require_training, write_whole
from .rows import StanceRow
from .stance import StanceData, StanceModel, StanceOptions, measure_groups, measure_rows
from .stance_card import counted, data_lines, figure_lines

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STRENGTHS = (0.03, 0.1, 0.3, 1.0)
"""Inverse strengths of the regularisation, of which the pairs to choose by choose one."""


def train_features(
    data: StanceData,
    options: StanceOptions,
    output: Path,
    *,
    device: str | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> StanceModel:
    """Train and write a folder that `--stance` takes. Of the options `base`, `seed` and `balanced` are heeded.

    Raises MissingExtra, NotFound for a base that can't be had, InvalidData for rows that can't be learned from,
    UsageError for an output that is there already.
    """
    import numpy as np

    require_training()
    listener = listener or Silent()
    # It takes so little time that it begins anew, whatever an earlier one has left.
    digest = hashlib.sha256(repr((options, data)).encode("utf-8", "surrogatepass")).hexdigest()
    left_over = output.with_name(f"{output.name}.training").exists()
    work = work_folder(output, digest, resume=left_over and not overwrite, overwrite=overwrite)
    found = find_model(options.base)
    embed = embedding(found.path, device)
    listener.message(f"embedding {len(data.train) + len(data.dev):,} pairs")
    train, dev = ([row for row in rows if sentences_of(_document(row))] for rows in (data.train, data.dev))
    labels = np.array([STANCES.index(row.label) for row in train])
    if len(set(labels.tolist())) < len(STANCES):
        raise InvalidData(f"the {len(train)} pairs to train on do not have all of {', '.join(STANCES)}")
    rows = pair_features([(row.claim, _document(row)) for row in train], embed)
    others = pair_features([(row.claim, _document(row)) for row in dev], embed)
    counts = rows[:, -COUNTS:].astype(np.float64)
    scale = {"mean": counts.mean(0), "scale": np.where(counts.std(0) > 0, counts.std(0), 1.0)}
    best: tuple[float, float, Any] | None = None
    for strength in STRENGTHS:
        model = _fitted(scaled(rows, scale), labels, strength, options)
        said = [Stance(STANCES[number]) for number in model.predict(scaled(others, scale))]
        value = measure_rows(dev, said, resamples=2).weighted.f1
        listener.measured("features", strength, options.metric, value)
        if best is None or value > best[0]:
            best = value, strength, model
    assert best is not None
    value, strength, model = best
    made = work / "model"
    made.mkdir(exist_ok=True)
    config = {
        "model_type": MODEL_TYPE,
        "version": VERSION,
        "id2label": {str(number): label for number, label in enumerate(STANCES)},
        "embedding": {
            "model": found.name,
            "fingerprint": fingerprint(found.path),
            "dimensions": (rows.shape[1] - COUNTS) // 4,
        },
    }
    write_whole(made / "config.json", json.dumps(config, indent=1))
    _save_weights(made, {**scale, "coefficients": model.coef_, "intercept": model.intercept_})
    measured = measure_groups(FeatureStances(str(made), device), data)
    card = [
        "---",
        f"base_model: {options.base}",
        "pipeline_tag: text-classification",
        "---",
        "",
        "# Stance model of pair features, trained by ccheck",
        "",
        f"Logistic regression over embeddings of `{options.base}`. To use it: `ccheck query CLAIM --stance FOLDER`.",
        "",
        *data_lines(data),
        f"- The strength of the regularisation, C = {strength}, was chosen by {options.metric}, {value:.3f}, on "
        f"{counted(data.dev)}.",
        "",
        *figure_lines(measured),
        "",
    ]
    write_whole(made / "README.md", "\n".join(card))
    numbers = {name: {"model": own.to_dict(), "floor": floor.to_dict()} for name, (own, floor) in measured.items()}
    write_whole(made / "figures.json", json.dumps(numbers, indent=1))
    _put_in_place(work, made, output)
    return StanceModel(output, (), measured)


def _put_in_place(work: Path, made: Path, output: Path) -> None:
    import shutil

    if output.exists():
        output.rename(work / "replaced")
    made.rename(output)
    shutil.rmtree(work)


def _document(row: StanceRow) -> Document:
    return Document(row.doc_id, row.title, row.text)


def _fitted(rows: NDArray[np.float64], labels: NDArray[Any], strength: float, options: StanceOptions) -> Any:
    from sklearn.linear_model import LogisticRegression

    weights = "balanced" if options.balanced else None
    return LogisticRegression(max_iter=3000, C=strength, class_weight=weights, random_state=options.seed).fit(
        rows, labels
    )


def _save_weights(folder: Path, weights: dict[str, NDArray[Any]]) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    save_file(
        {name: np.ascontiguousarray(value, dtype=np.float64) for name, value in weights.items()},
        folder / "model.safetensors",
        {"format": "np"},
    )
