"""Make the stance model that ccheck carries, and measure it on data sets that were left out.

    OMP_NUM_THREADS=1 python benchmarks/packaged_stance.py FOLDER --work WORK --output verdict/packaged

FOLDER contains `scifact/`, `climate-fever/`, `fever/`, `plos/` and `clinical/`. If WORK has no readers yet, this writes
what they learn from (`pairs.json.xz`) and ends: `stance_reader.py WORK` makes them, on another machine with a GPU if
need be. Run again, it writes what the mean of their weights learns last (`last.json.xz`), for `stance_last.py WORK`,
and then goes on with what WORK has. With `--shipped`, it fits the temperature of the model that ships, measures it, and
writes its figures and card.

Three readers are made: one for each group of `stance_data.GROUPS`, without the data sets of that group and a fifth of
the others' claims. The mean of their weights learns the written claims, but for some abstracts, and the judged pairs
again. Its temperature is fitted to what was held out. `COVID-Fact`, the claims as people make them and those about the
demo's papers are only measured: nothing was trained on them. How much of a course ships, and the confidences that
decide, were chosen with them in view.
"""

from __future__ import annotations

import json
import lzma
import pickle
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.metrics import f1_score, precision_recall_fscore_support
from stance_card import write_card
from stance_data import (
    CHECKER,
    DEMO,
    GROUPS,
    LATER,
    MEASURED_ONLY,
    REFUTES,
    SUPPORTS,
    WRITTEN,
    Part,
    a_fifth,
    part_of,
    questions_of_trials,
    read_parts,
)
from stance_last import LAST
from stance_pairs import base_pairs, judged_pairs, texts_of_words, unlabelled_pairs
from stance_reader import PAIRS, TOKENS, packed, unpacked, write_pairs
from stance_swaps import Swaps
from stance_written import CLAIMS, TEST, is_held, written_pairs, written_rows

from ccheck.core.analysis import as_sentence
from ccheck.core.models import find_model
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.types import Document, Label, Stance
from ccheck.encode.bert_folder import read_bert_folder
from ccheck.encode.dense import Embedder
from ccheck.encode.numpy_bert import load_cross_encoder
from ccheck.lab.measure.pairs import StanceRow, risk_coverage
from ccheck.verdict.judge import likeliest
from ccheck.verdict.labels import STANCES
from ccheck.verdict.packaged_model import (
    FOLDER,
    READER,
    PackagedStances,
    PackagedWeights,
    may_support,
    nearest,
    probabilities,
    read_weights,
    stands,
)
from ccheck.verdict.statements import Compared

NEAR_MISSES = Path(__file__).parents[1] / "tests" / "verdict" / "near-misses.jsonl"
EMBEDDING = "sentence-transformers/all-MiniLM-L6-v2"
"""Its vectors tell which words are exchanged in pairs that are made."""
OPEN_BELOW = 0.4
MOST = 800
"""About how many pairs of a data set are measured."""
TRIALS, TRAINED_ONLY = "findings of trials", {"PubMedQA, no conclusion", "FEVER"}
DECISIVE: dict[Label, float] = {"SUPPORTS": 0.86, "REFUTES": 0.84}
ALIKE = 0.9
REWORDED: dict[Label, float] = {"SUPPORTS": 0.71, "REFUTES": 0.77}
"""From which confidence an answer decides. Chosen on the held claims and on `tests/verdict/near-misses.jsonl`, so that
nine in ten are right, and of each set's refuted claims at most 3% are decided as supported."""
Kept = TypeVar("Kept")
Embed = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True)
class Answered:
    """Of some pairs of a data set: the reader's outputs, how what is read stands to the claim, the labels and the
    claims."""

    read: NDArray[np.float64]
    compared: list[Compared]
    labels: NDArray[np.int64]
    claims: NDArray[np.str_]


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), help="Write the model, its figures and its card here.")
@click.option("--shipped", is_flag=True, help="Measure the model in OUTPUT, and write its figures and card.")
@click.option(
    "--work", type=click.Path(path_type=Path), default=Path("build/stance"), help="Keep what takes long here."
)
def main(folder: Path, output: Path | None, shipped: bool, work: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    parts = kept(work / "parts.pickle", lambda: read_parts(folder))
    written = written_rows(folder, CLAIMS)
    parts[WRITTEN] = part_of([row for _, row in written])
    parts |= checked_parts(folder)
    held = a_fifth([question["article"] for question in questions_of_trials(folder)])  # a trial's claims are alike
    apart = {row.doc_id for _, row in written if is_held(row.doc_id)}
    everything = {name: part for name, part in parts.items() if name not in MEASURED_ONLY}
    masks = {name: part.held({TRIALS: held, WRITTEN: apart}.get(name, set())) for name, part in everything.items()}
    if shipped:
        measure_shipped(parts, masks, output or FOLDER, work)
        return
    files = {group: work / f"{group}.safetensors" for group in GROUPS}
    last, readers = work / "last.safetensors", all(file.exists() for file in files.values())
    if not (readers and last.exists()):
        swaps = kept(work / "swaps.pickle", lambda: Swaps(texts_of_words(folder), embedder()))
        base = kept(work / "base.pickle", lambda: base_pairs(folder, swaps))
        learned = {name: part.of(masks[name][1]) for name, part in everything.items()}
        if readers:
            mean_of([*files.values()], work / "all.safetensors")
            pairs = written_pairs(folder, [one for one in written if one[1].doc_id not in apart])
            write_pairs(work / LAST, {"written": pairs, "judged": judged_pairs(folder, learned, swaps, base, held)})
            print(f"{work / LAST} is written. Next: python benchmarks/stance_last.py {work}")
            return
        sets = {
            f"judged {group}": judged_pairs(
                folder, {name: part for name, part in learned.items() if name not in names}, swaps, base, held
            )
            for group, names in GROUPS.items()
        }
        write_pairs(work / PAIRS, {"base": base, "pool": unlabelled_pairs(folder, swaps), **sets})
        print(f"{work / PAIRS} is written. Next: python benchmarks/stance_reader.py {work}")
        return
    left_out = {
        name: answered(name, sampled(everything[name]), files[group])
        for group, names in GROUPS.items()
        for name in names
        if name not in TRAINED_ONLY
    }
    weights = PackagedWeights(
        tokens=TOKENS,
        temperature=fit_temperature([*left_out.values()]),
        threshold=OPEN_BELOW,
        decisive=DECISIVE,
        alike=ALIKE,
        reworded=REWORDED,
        right=0,
        decided=0,
    )
    figures: dict[str, Any] = {
        "left out": {name: measured(stances(one, weights), one.labels, one.claims) for name, one in left_out.items()},
        "controls": controls(parts, work, weights),
    }
    print(json.dumps(figures, indent=1))
    if output is not None:
        with lzma.open(work / PAIRS, "rt", encoding="utf-8") as text:
            learned_from = {name: len(some) for name, some in json.load(text).items()}
        facts: dict[str, Any] = {
            "pairs": {name: len(part.labels) for name, part in everything.items()},
            "base": learned_from["base"],
            "pool": learned_from["pool"],
            "judged": max(learned_from[f"judged {group}"] for group in GROUPS),
        }
        facts |= {
            "run": f"{commit()} {datetime.now(UTC).date()}",
            "threshold": OPEN_BELOW,
        }
        output.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(last, output / READER)
        (output / "model.json").write_text(weights.model_dump_json() + "\n", encoding="utf-8")
        (output / "figures.json").write_text(json.dumps(figures | {"made": facts}), encoding="utf-8")
        measure_shipped(parts, masks, output, work)


def checked_parts(folder: Path) -> dict[str, Part]:
    """The claims that are only measured: as people make them, and about the demo's papers. The last ones, about the
    invented abstracts of the letter y and those that are named by an id, were written when all had been chosen."""
    parts: dict[str, list[StanceRow]] = {CHECKER: [], DEMO: [], LATER: []}
    for _, row in written_rows(folder, TEST):
        name = LATER if row.doc_id.startswith(("y", "scifact:", "trial:")) else CHECKER
        parts[DEMO if row.doc_id.startswith("demo:") else name].append(row)
    return {name: part_of(rows) for name, rows in parts.items()}


def write_figures(folder: Path, weights: PackagedWeights, figures: Mapping[str, Any]) -> None:
    (folder / "model.json").write_text(weights.model_dump_json() + "\n", encoding="utf-8")
    (folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    write_card(folder)


def commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def kept(file: Path, make: Callable[[], Kept]) -> Kept:
    """What takes long is made once."""
    if not file.exists():
        file.write_bytes(pickle.dumps(make()))
    made: Kept = pickle.loads(file.read_bytes())
    return made


def embedder() -> Embed:
    model = Embedder(find_model(EMBEDDING), Runtime(Settings(device="cpu")))
    return model.encode_queries


# -- the readers


def mean_of(files: Sequence[Path], file: Path) -> Path:
    """The reader whose weights are the mean of those in the files (Wortsman et al. 2022, "Model soups")."""
    readers = [unpacked(load_file(one)) for one in files]
    averaged = {name: np.mean([one[name] for one in readers], axis=0) for name in readers[0]}
    save_file(packed(averaged), file)
    return file


def outputs(pairs: Sequence[tuple[str, str]], file: Path) -> NDArray[np.float64]:
    folder = read_bert_folder(find_model(EMBEDDING).path)
    assert folder is not None
    return load_cross_encoder(folder, file, TOKENS)(pairs).astype(np.float64)


def answered(name: str, part: Part, file: Path) -> Answered:
    """What a reader says of the pairs of a data set. `name` is that of the part."""
    read = kept(
        file.with_name(f"{file.stem}, {name}.pickle"),
        lambda: outputs([(as_sentence(pair.claim), pair.evidence) for pair in part.pairs()], file),
    )
    documents = [Document(row.doc_id, row.title, row.text) for row in part.rows]
    compared = [stands(row.claim, one, nearest(row.claim, one)) for row, one in zip(part.rows, documents, strict=True)]
    claims = np.array([row.claim for row in part.rows])
    return Answered(read, compared, part.labels, claims)


def sampled(part: Part, most: int = MOST) -> Part:
    """Whole claims, until there are so many pairs."""
    claims = sorted({row.claim_id for row in part.rows})
    random.Random(2).shuffle(claims)
    counts, some, count = Counter(row.claim_id for row in part.rows), set(), 0
    for claim in claims:
        if count < most:
            some.add(claim)
            count += counts[claim]
    return part.of(np.array([row.claim_id in some for row in part.rows]))


def fit_temperature(sets: Sequence[Answered]) -> float:
    """With which the labels are likeliest. Each data set counts the same."""

    def loss(temperature: float) -> float:
        logs = [log_softmax(one.read / temperature, 1)[np.arange(len(one.read)), one.labels] for one in sets]
        return -float(sum(one.mean() for one in logs))

    return round(float(minimize_scalar(loss, bounds=(0.2, 20), method="bounded").x), 3)


def stances(one: Answered, weights: PackagedWeights) -> list[Stance]:
    """What a reader says of each pair."""
    rows = zip(probabilities(one.read, weights), one.compared, strict=True)
    return [likeliest(row, weights.threshold, supports=may_support(read)) for row, read in rows]


# -- measuring


def measure_shipped(parts: Mapping[str, Part], masks: Mapping[str, Any], folder: Path, work: Path) -> None:
    """Fit the temperature of the model in the folder, and add its figures, as ccheck runs it: on claims that were held
    out, and on what is only measured."""
    held = {name: sampled(parts[name].of(mask[0])) for name, mask in masks.items() if name not in TRAINED_ONLY}
    shutil.copyfile(folder / READER, work / "shipped.safetensors")
    said_of = {name: answered(f"{name}, held", part, work / "shipped.safetensors") for name, part in held.items()}
    weights = read_weights(folder).model_copy(
        update={
            "temperature": fit_temperature([*said_of.values()]),
            "decisive": DECISIVE,
            "alike": ALIKE,
            "reworded": REWORDED,
        }
    )
    (folder / "model.json").write_text(weights.model_dump_json() + "\n", encoding="utf-8")
    judge = PackagedStances(Runtime(), folder)
    figures = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    figures |= {"in field": {}, "measured only": {}}
    only = {name: sampled(parts[name]) for name in MEASURED_ONLY}
    for name, part in sorted((held | only).items()):
        kind = "measured only" if name in MEASURED_ONLY else "in field"
        said = judge.read([(row.claim, Document(row.doc_id, row.title, row.text)) for row in part.rows])
        figures[kind][name] = measured(said, part.labels, np.array([row.claim for row in part.rows]), decides=True)
        print(name, json.dumps(figures[kind][name]))
    rows = [*map(json.loads, NEAR_MISSES.read_text(encoding="utf-8").splitlines())]
    made_up = judge.read([(row["claim"], Document("", "", row["text"])) for row in rows])
    sides = [stance.label == row["label"] for stance, row in zip(made_up, rows, strict=True) if stance.decides]
    elsewhere = figures["measured only"].values()
    pairs, count, right = (sum(one[key] for one in elsewhere) for key in ("pairs", "decided", "decided_right"))
    shown = {"decided": round(count / pairs, 3), "right": round(right / count, 2)}
    learned = parts[WRITTEN].of(masks[WRITTEN][1])
    figures["made"] |= shown | {
        **{name: getattr(weights, name) for name in ("temperature", "decisive", "alike", "reworded")},
        "written": len(learned.rows),
        "abstracts": len({row.doc_id for row in learned.rows}),
        "checked": len(parts[CHECKER].rows),
        "demo": len(parts[DEMO].rows),
        "later": len(parts[LATER].rows),
        "shipped": f"{commit()} {datetime.now(UTC).date()}",
    }
    figures["made"]["made_up"] = {"pairs": len(rows), "decided": len(sides), "right": sum(sides)}
    write_figures(folder, weights.model_copy(update=shown), figures)


def measured(
    said: Sequence[Stance], labels: NDArray[np.int64], claims: NDArray[np.str_], *, decides: bool = False
) -> dict[str, Any]:
    """The figures of some pairs; `decides`: with what decides, too."""
    given = np.array([STANCES.index(stance.label or "NOT_ENOUGH_INFO") for stance in said])
    sure = np.array([stance.confidence for stance in said])
    deciding = np.array([bool(stance.decides) for stance in said])
    right, refuted = given == labels, labels == REFUTES
    bins = np.clip(np.ceil(sure * 10).astype(int) - 1, 0, 9)
    gaps = [abs(right[bins == number].mean() - sure[bins == number].mean()) * (bins == number).mean()
            for number in range(10) if (bins == number).any()]  # fmt: skip
    risk = risk_coverage(sure, right)
    assert risk is not None
    each = precision_recall_fscore_support(labels, given, labels=range(len(STANCES)), zero_division=0)
    made = {
        "pairs": len(right),
        "weighted_f1": _f1(labels, given),
        "interval": [round(float(end), 3) for end in np.percentile(
            [_f1(labels[some], given[some]) for some in resampled(claims)], (2.5, 97.5))],
        "calibration_error": round(float(sum(gaps)), 3),
        "risk_coverage": round(risk, 3),
        "labels": {label: {"precision": round(float(each[0][place]), 3), "recall": round(float(each[1][place]), 3)}
                   for place, label in enumerate(STANCES)},
        "refuted": int(refuted.sum()),
        "refuted_said_supported": int((refuted & (given == SUPPORTS)).sum()),
    }  # fmt: skip
    if decides:
        made |= {"decided": int(deciding.sum()), "decided_right": int(right[deciding].sum()),
                 "refuted_decided_supported": int((refuted & (given == SUPPORTS) & deciding).sum())}  # fmt: skip
    return made


def controls(parts: Mapping[str, Part], work: Path, weights: PackagedWeights) -> dict[str, Any]:
    """Weighted F1 of the left-out readers with a claim alone, with a document alone, and with another document."""
    found = {}
    for group, names in GROUPS.items():
        part = sampled(parts[names[0]], MOST // 5)
        others = random.Random(1).sample(part.near, len(part.near))
        claims = [as_sentence(pair.claim) for pair in part.pairs()]
        ways = {
            "claim alone": [(claim, "") for claim in claims],
            "document alone": [("", evidence) for evidence in part.near],
            "another document": list(zip(claims, others, strict=True)),
            "both": list(zip(claims, part.near, strict=True)),
        }
        file = work / f"{group}.safetensors"
        found[names[0]] = {way: _f1(part.labels, outputs(pairs, file).argmax(1)) for way, pairs in ways.items()}
    return found


def resampled(claims: NDArray[np.str_]) -> Iterator[NDArray[np.int64]]:
    """Places of pairs, of claims drawn with replacement, 500 times."""
    places = [np.flatnonzero(claims == claim) for claim in sorted(set(claims))]
    draw = np.random.default_rng(42)
    for _ in range(500):
        yield np.concatenate([places[number] for number in draw.integers(len(places), size=len(places))])


def _f1(truth: NDArray[np.int64], given: NDArray[np.int64]) -> float:
    return round(float(f1_score(truth, given, average="weighted", zero_division=0)), 3)


if __name__ == "__main__":
    main()
