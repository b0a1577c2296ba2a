"""Write Climate-FEVER as a retrieval task: its claims, with all of its evidence sentences as documents.

    python benchmarks/climate_fever.py FILE OUTPUT
    cd OUTPUT
    ccheck ingest corpus.jsonl --store store
    ccheck evaluate default late --store store --claims claims.jsonl --qrels qrels.tsv --run runs
    ccheck compare runs/default.run runs/late.run --qrels qrels.tsv

FILE is Climate-FEVER's `claims.jsonl.gz`. A sentence that supports or refutes a claim is relevant to it. Claims without
such sentences are left out. Use this as a second data set for settings that were chosen on SciFact.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
import common


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
def main(file: Path, output: Path) -> None:
    ids: dict[tuple[str, str], str] = {}
    claims: list[dict[str, str]] = []
    judged: list[str] = []
    for record in common.rows(file):
        relevant = set()
        for evidence in record["evidences"]:
            id_ = ids.setdefault((evidence["article"], evidence["evidence"]), f"e{len(ids)}")
            if evidence["evidence_label"] in ("SUPPORTS", "REFUTES"):
                relevant.add(id_)
        if relevant:
            claims.append({"_id": str(record["claim_id"]), "text": record["claim"]})
            judged += [f"{record['claim_id']}\t{id_}\t1" for id_ in sorted(relevant)]
    output.mkdir(parents=True, exist_ok=True)
    documents = [{"_id": id_, "title": article, "text": text} for (article, text), id_ in ids.items()]
    for name, records in (("corpus.jsonl", documents), ("claims.jsonl", claims)):
        (output / name).write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    (output / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged, ""]), encoding="utf-8")
    print(f"{len(documents):,} sentences, {len(claims)} claims with {len(judged):,} that bear on them")


if __name__ == "__main__":
    main()
