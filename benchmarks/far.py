"""How much farther than the nearest document one lies that supports or refutes a claim, in cosines.

    python benchmarks/far.py FOLDER [--model NAME]

The documents of all data sets of the packaged stance model lie in one collection, and each claim of some 300 pairs of
each set looks for its ten nearest. What lies farther than `Calibrated.near` is not read. The same limits are tried on
all sets, and each is printed by itself. FOLDER is as for `packaged_stance.py`.

With .1 of bge-small-en-v1.5, 16 to 81% of the ten are read, and of those that support or refute the claim .99 to 1 are
kept (of Climate-FEVER's single sentences .90); with .2 of all-MiniLM-L6-v2 23 to 81%, and .985 to 1 (.97) are kept
(2026-11-28).
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from packaged_stance import TRAINED_ONLY, checked_parts, sampled
from stance_data import read_parts

from ccheck.core.runtime import Runtime
from ccheck.encode.dense import DEFAULT_MODEL, load_embedder
from ccheck.encode.numpy_bert import unit_length

FOUND, PAIRS = 10, 300
LIMITS = {DEFAULT_MODEL: (0.06, 0.08, 0.1, 0.12)}
OTHERS = (0.15, 0.2, 0.25, 0.3)


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--model", default=DEFAULT_MODEL, show_default=True)
def main(folder: Path, model: str) -> None:
    parts = {
        name: part for name, part in (read_parts(folder) | checked_parts(folder)).items() if name not in TRAINED_ONLY
    }
    sets = {name: sampled(part, PAIRS).rows for name, part in parts.items()}
    texts = {(name, row.doc_id): f"{row.title}\n{row.text}".strip() for name, rows in sets.items() for row in rows}
    places = {document: place for place, document in enumerate(texts)}
    embedder = load_embedder(model, Runtime())
    documents = unit_length(embedder.encode_documents(list(texts.values())))
    print(f"{len(texts):,} documents, {model}. Of the {FOUND} nearest, the share that is read, and of those among them")
    print("that support or refute the claim, the share that is kept")
    for name, rows in sets.items():
        claims = list(dict.fromkeys(row.claim for row in rows))
        cosines = unit_length(embedder.encode_queries(claims)) @ documents.T
        nearest = -np.sort(-cosines)[:, :FOUND]
        gaps = nearest[:, :1] - nearest
        told = [(claims.index(row.claim), places[name, row.doc_id]) for row in rows if row.label != "NOT_ENOUGH_INFO"]
        found = [nearest[one, 0] - cosines[one, at] for one, at in told if cosines[one, at] >= nearest[one, -1]]
        shares = [
            f"{limit}: {np.mean(gaps <= limit):.2f} {np.mean(np.array(found) <= limit):.3f}"
            for limit in LIMITS.get(model, OTHERS)
        ]
        print(f"{name:<28} {len(found):4} of {len(told):4}  {'   '.join(shares)}", flush=True)


if __name__ == "__main__":
    main()
