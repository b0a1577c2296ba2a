"""Training of the light stance model: logistic regression over pair features of a frozen embedding model.

The folder is used like a stance classifier's. `verdict/features.py` runs it.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.analysis import clean
from ...core.errors import InvalidData, UsageError
from ...core.files import write_text
from ...core.models import find_model, fingerprint
from ...core.types import Document, Stance
from ...verdict.features import (
    COUNTS,
    MODEL_TYPE,
    VERSION,
    FeatureStances,
    embedding,
    pair_features,
    scaled,
    sentences_of,
)
from ...verdict.labels import STANCES
from .card import counted, features_card
from .folders import finish, work_folder
from .loop import Listener, Silent, require_training
from .options import StanceOptions
from .stance_data import StanceData
from .stance_figures import (
    StanceReport,
    measure_groups,
    measure_rows,
    metric_of,
    most_frequent,
    save_figures,
    stance_notes,
)
from .stance_rows import StanceRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1)
"""The inverse regularisation strengths to choose from."""
FOLDS = 3
"""The strength is chosen in this many folds if no pairs to choose by are given."""


HEEDED = frozenset(("base", "seed", "balanced", "metric", "split", "dev_share"))
"""The settings of `StanceOptions` that apply here."""


def chosen_method(asked: str | None, options: StanceOptions) -> str:
    """`classifier` or `features`. Unasked: `features` where the base is an embedding model, which a classifier of few
    pairs can't match, and nothing is set that only the classifier has.

    Raises UsageError for settings that `features` does not have, and NotFound for a missing base.
    """
    others = sorted(options.model_fields_set - HEEDED)
    if asked == "features" and others:
        raise UsageError(
            f"--method features does not have the setting {', '.join(others)}. Leave it out, or use --method classifier"
        )
    if asked is not None:
        return asked
    return "features" if not others and _is_embedding_model(find_model(options.base).path) else "classifier"


def _is_embedding_model(path: Path) -> bool:
    """Whether the folder is from sentence-transformers, and not a classifier."""
    try:
        made = json.loads((path / "config.json").read_text(encoding="utf-8")).get("architectures") or []
    except (OSError, ValueError, AttributeError):
        made = []
    return (path / "modules.json").is_file() and not any("Classification" in str(name) for name in made)


def train_features(
    data: StanceData,
    options: StanceOptions,
    output: Path,
    *,
    device: str | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> StanceReport:
    """Train and write a folder that `--stance` takes. Of the options those in `HEEDED` count.

    Raises MissingExtra, NotFound for a missing base, InvalidData for unusable rows, and
    UsageError for an output that already exists.
    """
    import numpy as np

    require_training()
    listener = listener or Silent()
    # It takes so little time that it always starts again.
    digest = hashlib.sha256(repr((options, data)).encode("utf-8", "surrogatepass")).hexdigest()
    left_over = output.with_name(f"{output.name}.training").exists()
    work = work_folder(output, digest, resume=left_over and not overwrite, overwrite=overwrite)
    found = find_model(options.base)
    embed = embedding(found.path, device)
    listener.message(f"embedding {len(data.train) + len(data.dev):,} pairs")
    train, dev = ([row for row in rows if sentences_of(_document(row))] for rows in (data.train, data.dev))
    if not data.dev_given:
        # A tenth of the pairs is too few to choose by; in folds all choose, and all are learned from.
        train, dev = [*train, *dev], []
    labels = np.array([STANCES.index(row.label) for row in train])
    if len(set(labels.tolist())) < len(STANCES):
        raise InvalidData(f"the {len(train)} pairs to train on must have all of the labels {', '.join(STANCES)}")
    rows = pair_features([(row.claim, _document(row)) for row in [*train, *dev]], embed)
    parts = [(list(range(len(train))), list(range(len(train), len(rows))))] if dev else _folds(train, options.seed)
    by = counted(dev) if dev else f"{counted(train)}, in {FOLDS} folds"
    values: dict[float, float] = {}
    for strength in STRENGTHS:
        known, said = [], []
        for taken, asked in parts:
            learned = _fitted(rows[taken], labels[taken], strength, options)
            known += [[*train, *dev][number] for number in asked]
            said += [Stance(STANCES[number]) for number in learned.predict(rows[asked])]
        values[strength] = metric_of(measure_rows(known, said, resamples=2), options.metric)
    strength = max(values, key=lambda one: (values[one], -one))
    listener.message(f"regularisation C = {strength:g}: {options.metric} {values[strength]:.4f} on {by}")
    model = _fitted(rows[: len(train)], labels, strength, options)
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
    start = work / "start"
    start.mkdir(exist_ok=True)
    write_text(start / "config.json", json.dumps(config, indent=1))
    _save_weights(start, model.weights)
    most = most_frequent(train)
    measured = measure_groups(FeatureStances(str(start), device), data.groups, most)
    save_figures(measured, start)
    notes = stance_notes(measured, most)
    settings = options.model_dump(mode="json", include=set(HEEDED))
    chosen = f"regularisation C = {strength:g}, chosen by {options.metric}, {values[strength]:.3f}, on {by}"
    card = features_card(settings, data, train, chosen, measured, notes)
    finish(work, output, lambda folder: shutil.copytree(start, folder, dirs_exist_ok=True), card, ())
    return StanceReport(output, (), measured, most, notes)


def _document(row: StanceRow) -> Document:
    return Document(row.doc_id, row.title, row.text)


@dataclass(frozen=True, slots=True)
class _Linear:
    """A fitted model with what its features are standardised by."""

    weights: dict[str, NDArray[np.float64]]
    classes: NDArray[Any]

    def predict(self, rows: NDArray[np.float32]) -> list[int]:
        """The number of the label of each row."""
        values = scaled(rows, self.weights) @ self.weights["coefficients"].T + self.weights["intercept"]
        return [int(self.classes[number]) for number in values.argmax(1)]


def _fitted(rows: NDArray[np.float32], labels: NDArray[Any], strength: float, options: StanceOptions) -> _Linear:
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    counts = rows[:, -COUNTS:].astype(np.float64)
    scale = {"mean": counts.mean(0), "scale": np.where(counts.std(0) > 0, counts.std(0), 1.0)}
    of_label = Counter(labels.tolist())
    weights = {label: (len(labels) / len(of_label) / count) ** options.balanced for label, count in of_label.items()}
    model = LogisticRegression(max_iter=3000, C=strength, class_weight=weights, random_state=options.seed)
    model.fit(scaled(rows, scale), labels)
    return _Linear({**scale, "coefficients": model.coef_, "intercept": model.intercept_}, model.classes_)


def _folds(rows: Sequence[StanceRow], seed: int) -> list[tuple[list[int], list[int]]]:
    """`FOLDS` times the numbers of rows to learn from and of rows to choose by, of other claims and documents.

    Raises InvalidData if what is left to learn from lacks a label.
    """
    words = [" ".join(clean(row.claim).casefold().split()) for row in rows]
    claims = sorted(set(words))
    random.Random(seed).shuffle(claims)  # noqa: S311 - a split, not a secret
    folds = []
    for number in range(FOLDS):
        held = set(claims[number::FOLDS])
        asked = [place for place, claim in enumerate(words) if claim in held]
        documents = {rows[place].doc_id for place in asked}
        taken = [place for place, row in enumerate(rows) if words[place] not in held and row.doc_id not in documents]
        missing = set(STANCES).difference(rows[place].label for place in taken)
        if missing:
            raise InvalidData(
                f"too few of the {len(rows)} pairs have the label {', '.join(sorted(missing))}, or all claims share "
                "documents. Add pairs, or use --dev"
            )
        folds.append((taken, asked))
    return folds


def _save_weights(folder: Path, weights: dict[str, NDArray[Any]]) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    save_file(
        {name: np.ascontiguousarray(value, dtype=np.float64) for name, value in weights.items()},
        folder / "model.safetensors",
        {"format": "np"},
    )
