"""Builds the queries for claims: texts that a language model rewrote, and their encodings for each retriever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

from ..core.memory import Memory, memory_key, recall
from ..core.stages import QueryText
from ..core.types import Query, SparseVector, Vector
from .plan import Encoder
from .run import ClaimState, Run

if TYPE_CHECKING:
    from ..core.layout import Embedding, SparseField

T = TypeVar("T")
Role: TypeAlias = Literal["query", "document"]
"""How a text is encoded: some models have two ways."""
Texts: TypeAlias = Mapping[QueryText, tuple[str, ...]]
"""The texts that can stand for a claim in a search: its own, and those that a language model made of it."""


def rewrite_claims(run: Run, states: Sequence[ClaimState]) -> list[Texts]:
    """The texts of each claim. A claim that could not be rewritten has a warning, or an error if required."""
    texts: list[Texts] = [{"claim": (state.text,)} for state in states]
    if run.plan.rewriter is None or not states:
        return texts
    from .rewriting import rewrite

    kinds = {stage.query for stage in run.plan.retrievers.values()} - {"claim"}
    made = rewrite([state.text for state in states], kinds, run.recipe.rewriting, run.plan.rewriter)
    for state, one in zip(states, made, strict=True):
        state.use("rewrite", one.usage)
        if one.error is not None:
            state.warnings.append(f"the search used the claim itself, because it could not be rewritten: {one.error}")
            state.error = one.error if run.recipe.rewriting.required else None
    return [{**own, **one.texts} for own, one in zip(texts, made, strict=True)]


def encode_claims(run: Run, states: Sequence[ClaimState], texts: Sequence[Texts]) -> None:
    """Fill in the queries of claims with these texts, which are encoded together, equal ones once."""
    plan, memory = run.plan, run.memory
    own: list[dict[str, str | Vector | SparseVector]] = [{} for _ in states]
    vectors: dict[str, Vector] = {}
    """The embeddings of the claims themselves, by their text."""

    def embedded(places: Iterable[int], encoded: Iterable[Vector | SparseVector]) -> None:
        for place, vector in zip(places, encoded, strict=True):
            if not isinstance(vector, SparseVector):
                vectors[states[place].text] = vector

    for name, stage in plan.retrievers.items():
        encoder = plan.encoders.get(name)
        for kind in dict.fromkeys((stage.query, "claim")):
            # A claim that nobody rewrote is searched for as it is, and encoded as one.
            places = [
                place for place, some in enumerate(texts) if kind == (stage.query if stage.query in some else "claim")
            ]
            chosen = [texts[place][kind] for place in places]
            if encoder is None:
                if kind != "claim":
                    for place, some in zip(places, chosen, strict=True):
                        own[place][name] = "\n".join(some)
                continue
            if not places:
                continue
            if kind == "hyde" and run.recipe.rewriting.with_claim:
                chosen = [(*some, states[place].text) for place, some in zip(places, chosen, strict=True)]
            encoded = _encoded(encoder, chosen, kind, memory)
            for place, one in zip(places, encoded, strict=True):
                own[place][name] = one
            if encoder.dense is plan.embedder and kind == "claim" and encoder.adapter is None:
                embedded(places, encoded)
    missing = [place for place, state in enumerate(states) if state.text not in vectors]
    if plan.embedder is not None and missing:
        # Sentences are compared with the claim as it is, whatever was searched for.
        embedded(missing, _encoded(Encoder(plan.embedder), [(states[p].text,) for p in missing], "claim", memory))
    for state, asked in zip(states, own, strict=True):
        state.query = Query(state.text, vectors.get(state.text), asked)


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    """How a memory keeps vectors: under which kind, and as which bytes."""

    kind: str
    dump: Callable[[T], bytes]
    load: Callable[[bytes], T]


def _vector(data: bytes) -> Vector:
    import numpy as np

    return np.frombuffer(data, np.float32)


_SPARSE = _Kept("sparse", SparseVector.to_bytes, SparseVector.from_bytes)
_DENSE: _Kept[Vector] = _Kept("embedding", lambda vector: vector.astype("float32").tobytes(), _vector)


def _encoded(
    encoder: Encoder, texts: Sequence[tuple[str, ...]], kind: QueryText, memory: Memory | None
) -> list[Vector | SparseVector]:
    """One for each tuple of texts: of several the mean embedding, of unit length (HyDE's equation 8)."""
    import numpy as np

    role: Role = "document" if kind == "hyde" else "query"
    if encoder.sparse is not None:
        sparse = encoder.sparse
        encode = sparse.encode_documents if role == "document" else sparse.encode_queries
        joined = ["\n".join(some) for some in texts]
        vectors = _each_once(joined, encode, _SPARSE, sparse.spec, role, memory)
        return [vectors[text] for text in joined]
    assert encoder.dense is not None
    embedder = encoder.dense
    by_text = _each_once(
        [text for some in texts for text in some],
        embedder.encode_documents if role == "document" else embedder.encode_queries,
        _DENSE,
        embedder.spec,
        role,
        memory,
    )
    encoded: list[Vector | SparseVector] = []
    for some in texts:
        vector = by_text[some[0]]
        if len(some) > 1:
            mean = np.mean([by_text[text] for text in some], axis=0)
            vector = (mean / max(float(np.linalg.norm(mean)), np.finfo(np.float32).tiny)).astype(np.float32)
        encoded.append(encoder.adapter(vector) if encoder.adapter is not None else vector)
    return encoded


def _each_once(
    texts: Sequence[str],
    encode: Callable[[list[str]], Iterable[T]],
    kept: _Kept[T],
    spec: Embedding | SparseField,
    role: Role,
    memory: Memory | None,
) -> dict[str, T]:
    """Returns the encoding of each distinct text. The model encodes only those that the memory does not have."""
    once = list(dict.fromkeys(texts))
    if memory is None:
        return dict(zip(once, encode(once), strict=True))
    keys = [memory_key(kept.kind, spec.fingerprint, spec.max_tokens, role, text) for text in once]
    made = recall(
        memory, kept.kind, keys, lambda places: list(encode([once[place] for place in places])), kept.dump, kept.load
    )
    return dict(zip(once, made, strict=True))
