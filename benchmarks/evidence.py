"""Which way of choosing sentences finds SciFact's rationales: lexical, embedding, and mixes of both.

    python benchmarks/evidence.py FOLDER [--model NAME]

FOLDER holds `corpus.jsonl.gz` and `verdicts.jsonl` (claim, abstract, label, 0-based numbers of the rationale's
sentences). The corpus has an abstract's sentences joined by spaces, so the numbers are those of a sentence splitter
that is not known. Counted are the pairs in which two splitters (ccheck's, and one by full stop, space and capital) find
the same number of sentences; the figures over all pairs with ccheck's are printed beside. Claims are parted into two
halves by a hash of their number: the mix is chosen on the first, and the second says how good it is.

hit@k: a sentence of the rationale is among the best k. recall@k: the share of the rationale's sentences that are.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from ccheck.analysis import sentence_spans
from ccheck.search.embedding import DEFAULT_MODEL, load_embedder
from ccheck.types import Document
from ccheck.verdict.evidence import EMBEDDING_SHARE, choose_sentences_many

ALL = 10_000
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
READ = (4, 6, 8, 12)
"""How many of the lexically best sentences the embedding model reads."""
OTHERS = 9
"""Other abstracts beside the one that counts: the rarity of a word is measured over all of a claim's documents."""


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="The embedding model, a folder or a name.")
def main(folder: Path, model: str) -> None:
    corpus = read_corpus(folder)
    rows = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()]
    pairs = [row for row in rows if row["sentences"]]
    embedder = load_embedder(model)
    rng = np.random.default_rng(0)
    ids = list(corpus)
    cases = []
    for pair in pairs:
        others = [corpus[ids[number]] for number in rng.integers(0, len(ids), OTHERS)]
        cases.append((pair["claim"], [corpus[pair["doc_id"]], *others]))
    lexical = [chosen[0] for chosen in choose_sentences_many(cases, ALL, "lexical")]
    # One document is enough here: what an embedding says of a sentence does not depend on the others.
    alone = [(claim, documents[:1]) for claim, documents in cases]
    dense = [chosen[0] for chosen in choose_sentences_many(alone, ALL, "embedding", embedder.encode_documents)]
    spans = [sentence_spans(documents[0].text) for _, documents in cases]
    table = []
    for pair, by_words, by_vector, cut in zip(pairs, lexical, dense, spans, strict=True):
        scores = np.zeros((2, len(cut)))
        row = {start: number for number, (start, _) in enumerate(cut)}
        for method, sentences in enumerate((by_words, by_vector)):
            for sentence in sentences:
                scores[method, row[sentence.start]] = sentence.score
        table.append((scores, [number for number in pair["sentences"] if number < len(cut)]))
    sure = np.array([len(cut) == _sentences(case[1][0].text) for cut, case in zip(spans, cases, strict=True)])
    first = np.array([hashlib.sha256(pair["claim_id"].encode()).digest()[0] % 2 == 0 for pair in pairs])
    print(f"{len(pairs)} pairs, {sure.sum()} of them with certain numbers; {model}; random choice beside")
    print(f"{'share of the embedding':<24}{'first half':^27}{'second half':^27}{'all pairs, numbers uncertain':^29}")
    print(f"{'':<24}" + f"{'hit@1  hit@3  recall@3':^27}" * 3)
    for share, read in [*((share, ALL) for share in SHARES), *((EMBEDDING_SHARE, read) for read in READ)]:
        mixed = [(_mix(scores, share, read), gold) for scores, gold in table]
        figures = np.array([_figures(scores, gold) for scores, gold in mixed])
        name = {0.0: "lexical", 1.0: "embedding"}.get(share, f"mix {share}") + (
            f", of the best {read}" if read < ALL else ""
        )
        cells = [figures[sure & first].mean(0), figures[sure & ~first].mean(0), figures.mean(0)]
        print(f"{name:<24}" + "".join(f"{'  '.join(f'{value:.3f}' for value in cell):^27}" for cell in cells))
    chance = np.array([_chance(len(scores[0]), gold) for scores, gold in table])
    cells = [chance[sure & first].mean(0), chance[sure & ~first].mean(0), chance.mean(0)]
    print(f"{'at random':<24}" + "".join(f"{'  '.join(f'{value:.3f}' for value in cell):^27}" for cell in cells))
    some = cases[:: len(cases) // 20]
    for method in ("lexical", "mix"):
        started, used = time.perf_counter(), time.process_time()
        choose_sentences_many(some, 1, method, embedder.encode_documents)
        wall, cpu = time.perf_counter() - started, time.process_time() - used
        print(
            f"{method}, {1 + OTHERS} documents a claim: {1000 * wall / len(some):.0f} ms a claim, "
            f"{1000 * cpu / len(some):.0f} ms of CPU time"
        )


def read_corpus(folder: Path) -> dict[str, Document]:
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        return {row["_id"]: Document(row["_id"], row["title"], row["text"]) for row in map(json.loads, lines)}


def _sentences(text: str) -> int:
    """How many sentences there are by another splitter."""
    return 1 + len(re.findall(r"(?<=[.?!]) (?=[A-Z])", text.strip()))


def _mix(scores: np.ndarray, share: float, read: int) -> np.ndarray:
    """The scores of a document's sentences, of those that the model does not read 0."""
    mixed = share * scores[1] + (1 - share) * scores[0]
    mixed[np.argsort(-scores[0], kind="stable")[read:]] = 0
    return mixed


def _figures(scores: np.ndarray, gold: Sequence[int]) -> tuple[float, float, float]:
    best = np.argsort(-scores, kind="stable")[:3].tolist()
    return (
        float(bool(gold) and best[0] in gold),
        float(any(number in gold for number in best)),
        len(set(best) & set(gold)) / max(1, len(gold)),
    )


def _chance(sentences: int, gold: Sequence[int]) -> tuple[float, float, float]:
    """What choosing at random gives."""
    miss = 1.0
    for drawn in range(min(3, sentences)):
        miss *= max(0, sentences - len(gold) - drawn) / (sentences - drawn)
    return len(gold) / sentences, 1 - miss, min(3, sentences) / sentences


if __name__ == "__main__":
    main()
