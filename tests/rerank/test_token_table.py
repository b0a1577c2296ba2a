"""The table of a model's tokens: the packaged one, and one that is made for another model."""

from __future__ import annotations

import numpy as np
import pytest

from ccheck.core.models import PACKAGED as PACKAGED_MODELS
from ccheck.core.models import find_model
from ccheck.encode.bert_folder import read_bert_folder
from ccheck.encode.numpy_bert import NumpyBert, load_bert
from ccheck.rerank.late import PACKAGED, WIDTH, TokenTable, load_table, make_table

MODEL = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def bert() -> NumpyBert:
    folder = read_bert_folder(find_model(MODEL).path)
    assert folder is not None
    return load_bert(folder)


def never() -> None:
    raise AssertionError("a table is made")


def test_the_packaged_table_is_the_packaged_models(bert, tmp_path):
    table = load_table(bert, PACKAGED_MODELS[find_model(MODEL).name].sha256, tmp_path, never)
    ids = [*bert.token_ids(["sea level has risen since 1900"])[0], 101, 29_000, 30_521]
    alone = bert.encode_alone(ids)
    alone /= np.linalg.norm(alone, axis=1, keepdims=True)
    kept = table.turned(alone)
    assert table.vectors(ids) == pytest.approx(kept, abs=4e-3)  # int8
    assert np.linalg.norm(kept[:6], axis=1).min() > 0.5  # of length 1
    assert table.basis @ table.basis.T == pytest.approx(np.eye(WIDTH), abs=1e-5)
    assert sum(file.stat().st_size for file in PACKAGED.iterdir()) < 4 << 20


class Small:
    """Stands for another model: a vocabulary of 50 tokens, counted how often it reads them."""

    def __init__(self) -> None:
        self.vocabulary, self.reads = 50, 0

    def encode_alone(self, ids):
        self.reads += 1
        return np.random.default_rng(0).normal(size=(len(ids), 128)).astype(np.float32)


def test_the_table_of_another_model_is_made_once_and_kept(tmp_path):
    model, made = Small(), []
    first = load_table(model, "f" * 64, tmp_path / "new" / "tables", lambda: made.append(1))
    again = load_table(model, "f" * 64, tmp_path / "new" / "tables", never)
    assert model.reads == 1 and made == [1] and (again.codes == first.codes).all()
    assert load_table(model, "e" * 64, tmp_path / "new" / "tables").codes.shape == (50, WIDTH)  # other weights
    (file,) = (tmp_path / "new" / "tables").glob("f*")
    for damage in (b"", b"\0" * 64, file.read_bytes()[:-9]):
        file.write_bytes(damage)
        assert (load_table(model, "f" * 64, tmp_path / "new" / "tables").codes == first.codes).all()
    model.vocabulary = 60  # what is kept does not fit
    assert load_table(model, "f" * 64, tmp_path / "new" / "tables").codes.shape == (60, WIDTH)
    (tmp_path / "file").write_bytes(b"")
    assert (load_table(Small(), "f" * 64, tmp_path / "file").codes == first.codes).all()  # where nothing can be kept


def test_products_are_those_of_the_directions_that_are_kept():
    table = make_table(Small())
    full = Small().encode_alone(range(50))
    unit = full / np.linalg.norm(full, axis=1, keepdims=True)
    products = table.turned(unit) @ table.vectors(range(50)).T
    # 50 vectors span 50 directions, fewer than are kept.
    assert products == pytest.approx(unit @ unit.T, abs=5e-3) and isinstance(table, TokenTable)
