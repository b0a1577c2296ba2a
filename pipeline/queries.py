"""What the stores are asked for claims: rewritten by a language model, and encoded for each retriever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from ..errors import CcheckError
from ..memory import Memory, memory_key, recall
from ..recipe import Recipe
from ..stages import QueryText
from ..types import Query, SparseVector, Usage, Vector
from .plan import Encoder, Plan

if TYPE_CHECKING:
    from ..layout import Embedding, SparseField
    from .rewriting import Rewritten

T = TypeVar("T")
Role: TypeAlias = Literal["query", "document"]
"""As what a text is encoded: some models have two ways."""


@dataclass(slots=True)
class Questions:
    """What the stores are asked for some claims, with what making it cost."""

    queries: list[Query | CcheckError] = field(default_factory=list)
    warnings: list[tuple[str, ...]] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    vectors: dict[str, Vector] = field(default_factory=dict)
    """The embeddings of the claims by their text, where there is a model."""


def rewritten(plan: Plan, recipe: Recipe, texts: Sequence[str]) -> Sequence[Rewritten | None]:
    """What the plan's language model makes of each claim; None where nobody rewrites."""
    if plan.rewriter is None or not texts:
        return [None] * len(texts)
    from .rewriting import rewrite

    kinds = {stage.query for stage in plan.retrievers.values()} - {"claim"}
    return rewrite(texts, kinds, recipe.rewriting, plan.rewriter)


def questions(
    plan: Plan,
    recipe: Recipe,
    texts: Sequence[str],
    rewritten: Sequence[Rewritten | None],
    memory: Memory | None,
) -> Questions:
    """The queries of all claims; texts are embedded together, each once."""
    found = Questions()
    words: list[dict[QueryText, tuple[str, ...]]] = []
    for text, made in zip(texts, rewritten, strict=True):
        error = made.error if made is not None else None
        words.append({"claim": (text,), **(made.texts if made is not None else {})})
        found.usages.append(made.usage if made is not None else Usage())
        found.warnings.append((f"the claim itself was searched for: {error}",) if error is not None else ())
        found.queries.append(error if error is not None and recipe.rewriting.required else Query(text))
    going = [place for place, query in enumerate(found.queries) if isinstance(query, Query)]
    asked: list[dict[str, str | Vector | SparseVector]] = [{} for _ in texts]
    for name, stage in plan.retrievers.items():
        encoder = plan.encoders.get(name)
        for kind in dict.fromkeys((stage.query, "claim")):
            # A claim that nobody rewrote is searched for as it is, and encoded as one.
            these = [place for place in going if kind == (stage.query if stage.query in words[place] else "claim")]
            chosen = [words[place][kind] for place in these]
            if encoder is None:
                if kind != "claim":
                    for place, some in zip(these, chosen, strict=True):
                        asked[place][name] = "\n".join(some)
                continue
            if not these:
                continue
            if kind == "hyde" and recipe.rewriting.with_claim:
                chosen = [(*some, texts[place]) for place, some in zip(these, chosen, strict=True)]
            encoded = _encoded(encoder, chosen, kind, memory)
            for place, made_of in zip(these, encoded, strict=True):
                asked[place][name] = made_of
            if encoder.dense is plan.embedder and kind == "claim" and encoder.adapter is None:
                found.vectors |= {
                    texts[place]: vector
                    for place, vector in zip(these, encoded, strict=True)
                    if not isinstance(vector, SparseVector)
                }
    missing = [place for place in going if texts[place] not in found.vectors]
    if plan.embedder is not None and missing:
        # Sentences are compared with the claim as it is, whatever was searched for.
        claims = _encoded(Encoder(plan.embedder), [(texts[place],) for place in missing], "claim", memory)
        found.vectors |= {
            texts[place]: vector
            for place, vector in zip(missing, claims, strict=True)
            if not isinstance(vector, SparseVector)
        }
    for place in going:
        found.queries[place] = Query(texts[place], found.vectors.get(texts[place]), asked[place])
    return found


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
        vectors = _each_once(
            joined, encode, "sparse", sparse.spec, role, memory, SparseVector.to_bytes, SparseVector.from_bytes
        )
        return [vectors[text] for text in joined]
    assert encoder.dense is not None
    embedder = encoder.dense
    by_text = _each_once(
        [text for some in texts for text in some],
        embedder.encode_documents if role == "document" else embedder.encode_queries,
        "embedding",
        embedder.spec,
        role,
        memory,
        lambda vector: vector.astype(np.float32).tobytes(),
        lambda data: np.frombuffer(data, np.float32),
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
    kind: str,
    spec: Embedding | SparseField,
    role: Role,
    memory: Memory | None,
    dump: Callable[[T], bytes],
    load: Callable[[bytes], T],
) -> dict[str, T]:
    """What the model makes of each text, of those that the memory does not have."""
    once = list(dict.fromkeys(texts))
    keys = [memory_key(kind, spec.fingerprint, spec.max_tokens, role, text) for text in once]
    made = recall(memory, kind, keys, lambda places: list(encode([once[place] for place in places])), dump, load)
    return dict(zip(once, made, strict=True))
