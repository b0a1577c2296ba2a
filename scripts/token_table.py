"""Make the table of tokens for late interaction, as `rerank/late.py` reads it: five minutes.

python scripts/token_table.py FEVER ROLES OUTPUT.safetensors

FEVER is a file with a `claim` in each line (pairs.jsonl.gz), ROLES one with abstracts of trials (their `title` and
`sections`). all-MiniLM-L6-v2 makes the tokens' vectors. It and the packaged embedding model read the claims and
sentences, so that the vectors that the one gives to tokens in context can be estimated from what the other makes of
them. What was tried on SciFact's training claims, nDCG@10 without a reranker .758: the last layer alone .757, the
middle and the last .765, with the token's own vector .772, four more layers .772; estimates of unit length .770; and,
fitted to tell each FEVER claim's evidence from others', .761. If all-MiniLM-L6-v2 reads the claim itself: .772, and on
Climate-FEVER, where nothing was chosen, .504 instead of .499.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from more_itertools import chunked
from safetensors.numpy import save_file

from ccheck.core.analysis import sentence_spans
from ccheck.core.fingerprints import file_hash
from ccheck.core.models import find_model
from ccheck.encode.bert_folder import BertFolder, Floats, in_int8, read_bert_folder
from ccheck.encode.dense import DEFAULT_MODEL, MINILM
from ccheck.encode.numpy_bert import NumpyBert, load_bert, unit_length
from ccheck.rerank.late import TokenTable

WIDTH = 96
"""Directions that are kept: .7488 in nDCG@10 on SciFact, against .7477 with all 384 and .7461 with 64, with
all-MiniLM-L6-v2 in place of the packaged embedding model."""
CLAIMS, SENTENCES = 6000, 7000
RIDGE = 1e-6
"""Of the mean square of what is read."""


def main() -> None:
    fever, roles, out = map(Path, sys.argv[1:])
    folder, other = (_folder(name) for name in (DEFAULT_MODEL, MINILM))
    table, basis = make_table(load_bert(other))
    random = np.random.default_rng(0)
    claims = random.permutation(sorted({row["claim"] for row in _rows(fever)}))[:CLAIMS]
    sentences = random.permutation(sorted(set(_sentences(roles))))[:SENTENCES]
    claims = estimate(load_bert(folder), load_bert(other), [*claims, *sentences], table, basis)
    tensors = {"codes": table.codes, "scales": table.scales, "claims": claims.astype(np.float16)}
    save_file(tensors, out, {"weights": file_hash(folder.path / "model.safetensors")})


def make_table(bert: NumpyBert) -> tuple[TokenTable, Floats]:
    """Let the model read each of its tokens alone: about a minute. Without an estimate; the directions, shape [width,
    dimensions], beside it."""
    ((first, last),) = bert.read([""])
    alone = bert.each([(first, token, last) for token in range(bert.vocabulary)], lambda states: states[1])
    vectors = unit_length(np.array(alone))
    # Without a mean to subtract: products with vectors that are not in the table are to stay what they are.
    _, directions = np.linalg.eigh(vectors.T.astype(np.float64) @ vectors)
    basis = np.ascontiguousarray(directions[:, ::-1].T[:WIDTH], np.float32)
    return TokenTable(*in_int8(vectors @ basis.T), np.zeros((0, WIDTH), np.float32)), basis


def estimate(bert: NumpyBert, other: NumpyBert, texts: list[str], table: TokenTable, basis: Floats) -> Floats:
    """See `TokenTable.claims`."""
    size = 2 * bert.encode([""]).shape[1] + WIDTH + 1
    squares, products = np.zeros((size, size)), np.zeros((size, WIDTH))
    for some in chunked(texts, 128):
        for text, ids, wanted in zip(some, bert.token_ids(some), other.encode_tokens(some), strict=True):
            states = bert.claim_states(text)[: len(wanted)]
            read = np.concatenate([states, table.vectors(ids[: len(states)]), np.ones((len(states), 1))], 1)
            squares += read.T @ read
            products += read.T @ (unit_length(wanted[: len(states)]) @ basis.T)
    made: Floats = np.linalg.solve(squares + RIDGE * np.trace(squares) / size * np.eye(size), products)
    return made


def _folder(name: str) -> BertFolder:
    folder = read_bert_folder(find_model(name).path)
    assert folder is not None
    return folder


def _sentences(file: Path) -> Iterator[str]:
    for row in _rows(file):
        for text in (row["title"], *(section["text"] for section in row["sections"])):
            yield from (text[start:end] for start, end in sentence_spans(text))


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        yield from map(orjson.loads, lines)


if __name__ == "__main__":
    main()
