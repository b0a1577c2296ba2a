"""How much training a stance model helps, on claims about documents that were not trained on.

    python benchmarks/stance_training.py FOLDER [--data NAME]... [--seed N]... [--classifier] [--epochs N] [--weak N]

FOLDER contains `scifact/` and `climate-fever/`, as for `benchmarks/stance.py`. For each seed, a third of each data
set's claims is held out by document (evidence sentences, abstracts). Every line measures the same pairs: the most
frequent label; TF-IDF of the pair with logistic regression; u, v, |u - v|, u * v of the whole document's embedding with
logistic regression; the pair features of `ccheck train stance --method features`; and, with --classifier, a fine-tuned
sequence classifier. The script prints weighted and macro F1 with 95% intervals from a bootstrap over claims.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import numpy as np
from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from ccheck.core.models import find_model
from ccheck.core.types import Stance
from ccheck.lab.train.options import StanceOptions
from ccheck.lab.train.stance import train_stance
from ccheck.lab.train.stance_data import stance_data
from ccheck.lab.train.stance_features import train_features
from ccheck.lab.train.stance_figures import judge_rows, measure_rows
from ccheck.lab.train.stance_rows import StanceRow, read_rows
from ccheck.verdict.features import FeatureStances, embedding
from ccheck.verdict.labels import STANCES

SHARE = 0.33
FILES = {
    "scifact": ("scifact/verdicts.jsonl", "scifact/corpus.jsonl.gz"),
    "climate-fever": ("climate-fever/claims.jsonl.gz", None),
}


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--data", "names", type=click.Choice(list(FILES)), multiple=True, help="Use only these data sets.")
@click.option("--seed", "seeds", type=int, multiple=True, default=[0], help="Random seed of the split.")
@click.option("--base", default="all-MiniLM-L6-v2", help="Model to start from.")
@click.option("--classifier", is_flag=True, help="Fine-tune a classifier too: minutes to hours without a GPU.")
@click.option("--epochs", type=int, default=10, help="Epochs of the classifier.")
@click.option("--weak", type=int, default=0, help="Number of weak pairs to train the classifier on first.")
def main(
    folder: Path, names: tuple[str, ...], seeds: tuple[int, ...], base: str, classifier: bool, epochs: int, weak: int
) -> None:
    embed = embedding(find_model(base).path, "cpu")
    for name in names or FILES:
        file, corpus = FILES[name]
        read = read_rows(folder / file, folder / corpus if corpus else None)
        print(f"\n{name}: {read.describe()}")
        for seed in seeds:
            options = StanceOptions(base=base, seed=seed, dev_share=SHARE, epochs=epochs, weak_pairs=weak)
            data = stance_data(read.rows, options)
            train, test = [*data.train, *data.dev], list(data.groups["by document"])
            print(f"seed {seed}: {len(train)} pairs to train on, {len(test)} to measure on")
            labels = np.array([STANCES.index(row.label) for row in train])
            most = STANCES[np.bincount(labels).argmax()]
            show("most frequent label", test, [Stance(most)] * len(test))
            show("TF-IDF of the pair", test, _learned(*_tfidf(train, test), labels))
            show("u, v, |u - v|, u * v of the document", test, _learned(*_pairs(train, test, embed), labels))
            with tempfile.TemporaryDirectory() as scratch:
                made = train_features(data, options, Path(scratch) / "features", device="cpu")
                show("pair features", test, judge_rows(FeatureStances(str(made.folder), "cpu"), test))
                if classifier:
                    from ccheck.verdict.classifier import StanceClassifier

                    tuned = train_stance(data, options, Path(scratch) / "classifier", device="cpu")
                    show("fine-tuned classifier", test, judge_rows(StanceClassifier(str(tuned.folder), "cpu"), test))


def show(name: str, rows: list[StanceRow], said: list[Stance]) -> None:
    figures = measure_rows(rows, said)
    parts = [
        f"{value:.3f} [{figures.intervals[key][0]:.3f}, {figures.intervals[key][1]:.3f}]"
        for key, value in (("weighted_f1", figures.weighted.f1), ("macro_f1", figures.macro.f1))
    ]
    print(f"    {name:<38}weighted {parts[0]}  macro {parts[1]}", flush=True)


def _learned(train: object, test: object, labels: np.ndarray) -> list[Stance]:
    model = LogisticRegression(max_iter=3000, class_weight="balanced").fit(train, labels)
    return [Stance(STANCES[number]) for number in model.predict(test)]


def _text(row: StanceRow) -> str:
    return f"{row.title} {row.text}".strip()


def _tfidf(train: list[StanceRow], test: list[StanceRow]) -> tuple[object, object]:
    parts = []
    for text in (lambda row: row.claim, _text):
        vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2).fit(map(text, train))
        parts.append([vectorizer.transform(map(text, rows)) for rows in (train, test)])
    return hstack([part[0] for part in parts]), hstack([part[1] for part in parts])


def _pairs(train: list[StanceRow], test: list[StanceRow], embed) -> tuple[object, object]:
    made = []
    for rows in (train, test):
        u, v = embed([row.claim for row in rows]), embed([_text(row) for row in rows])
        made.append(np.hstack([u, v, np.abs(u - v), u * v]))
    return made[0], made[1]


if __name__ == "__main__":
    main()
