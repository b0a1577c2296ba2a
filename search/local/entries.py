"""Documents as a local store takes them: which fit its layout, and how it keeps their units."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from ...core.errors import InvalidData
from ...core.layout import Embedding, Layout
from ...core.types import Entry, Unit, Vector
from .records import UNIT_BITS
from .sparse import check as check_weights


def check_entry(entry: Entry, layout: Layout) -> None:
    """Raise InvalidData for anything that the layout has no place for, and for vectors of the wrong size."""
    whose = f"the document {entry.document.id}"
    for name, passages in entry.passages.items():
        if passages and name not in layout.dense:
            raise InvalidData(f"{whose} comes with vectors {name!r}, for which the store was not prepared")
        for passage in passages:
            _check_vector(passage.vector, layout.dense[name].embedding, f"{whose} comes with", repr(name))
    if entry.sparse is not None:
        if layout.sparse is None:
            raise InvalidData(f"{whose} comes with a sparse vector, for which the store was not prepared")
        check_weights(entry.sparse, layout.sparse.vocabulary, whose)
    for name, units in entry.units.items():
        if units and name not in layout.units:
            raise InvalidData(f"{whose} comes with units {name!r}, for which the store was not prepared")
        numbers = [one.unit.number for one in units]
        if numbers != list(range(len(units))) or len(units) >= 1 << UNIT_BITS:
            raise InvalidData(f"{whose} comes with units {name!r} that are not numbered 0, 1, 2 and so on")
        for one in units:
            if one.unit.granularity != name:
                raise InvalidData(f"{whose} comes with a unit {one.unit.granularity!r} among its units {name!r}")
            _check_vector(one.vector, layout.units[name].embedding, f"{whose} comes with", f"a unit {name!r}")


def _check_vector(vector: Vector | None, model: Embedding | None, comes: str, what: str) -> None:
    if (vector is None) != (model is None):
        raise InvalidData(f"{comes} {'no' if vector is None else 'a'} vector for {what}, unlike the store's layout")
    if vector is not None and model is not None and vector.shape != (model.dimensions,):
        raise InvalidData(
            f"{comes} a vector of shape {vector.shape} for {what}, whose vectors have {model.dimensions} dimensions"
        )


def id_sum(seq: int, id_: str) -> int:
    """Returns the value that a document adds to the checksum over all ids."""
    return xxhash.xxh3_64_intdigest(id_.encode("utf-8", "surrogateescape"), seq)


def packed_units(entry: Entry) -> Mapping[str, Sequence[Sequence[Any]]]:
    """The units of a document as JSON values: [start, end], and the text if it is not in the document."""
    text = entry.document.text
    return {
        name: [[one.unit.start, one.unit.end, *([] if _stands(one.unit, text) else [one.unit.text])] for one in units]
        for name, units in entry.units.items()
        if units
    }


def unpacked_units(granularity: str, text: str, packed: str) -> tuple[Unit, ...]:
    """One granularity of a document with this text, from the JSON of `packed_units`."""
    return tuple(
        Unit(granularity, number, start, end, other[0] if other else text[start:end])
        for number, (start, end, *other) in enumerate(json.loads(packed).get(granularity, ()))
    )


def _stands(unit: Unit, text: str) -> bool:
    return text[unit.start : unit.end] == unit.text
