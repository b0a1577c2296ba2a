"""Make the packaged embedding model of a BERT-type model's folder: each matrix in int8 with a scale for each row.

python scripts/packaged_embedder.py MODEL encode/packaged
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ccheck.core.models import find_model
from ccheck.encode.bert_folder import SCALE, in_int8, read_bert_folder, read_weights

COPIED = ("config.json", "modules.json", "sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json")


def main(model: str, out: Path) -> None:
    source = find_model(model).path
    folder = read_bert_folder(source)
    if folder is None:
        sys.exit(f"{model} is not a BERT-type model that numpy runs")
    tensors: dict[str, np.ndarray] = {}
    for name, values in read_weights(folder).items():
        if values.ndim < 2 or min(values.shape) < folder.dimensions:
            tensors[name] = values
        else:
            tensors[name], tensors[name + SCALE] = in_int8(values)
    (out / "1_Pooling").mkdir(parents=True, exist_ok=True)
    for name in (*COPIED, "1_Pooling/config.json"):
        shutil.copyfile(source / name, out / name)
    save_file(tensors, out / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
