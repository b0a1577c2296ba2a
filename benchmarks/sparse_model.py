"""Train a small sparse encoder (SPLADE's architecture) from the packaged MiniLM and a corpus, without labels.

    python benchmarks/sparse_model.py CORPUS.jsonl[.gz] FOLDER [--steps 200]

It stands in for naver/splade-v3 if the hub can't be reached. MiniLM comes without the head that predicts words, so the
script builds one from the identity, MiniLM's own word embeddings, and a bias that leaves a text's own words and their
nearest ones. Titles then learn to find their abstracts, with sentence-transformers' SpladeLoss. Figures are slightly
better on collections whose titles were used for training. Training sees no claims.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

from ccheck.core.models import find_model
from ccheck.ingest import Record, read

BIAS = -5.0
"""A word's own logit is about 6.3 ± 3.0, another's 0.0 ± 1.1."""
TOKENS = 96


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16)
    given = parser.parse_args()

    import torch
    from datasets import Dataset
    from sentence_transformers import SparseEncoder, SparseEncoderTrainer, SparseEncoderTrainingArguments
    from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss
    from transformers import AutoTokenizer, BertForMaskedLM

    torch.manual_seed(0)
    source = find_model("all-MiniLM-L6-v2").path
    mlm = BertForMaskedLM.from_pretrained(source)
    with torch.no_grad():
        head = mlm.cls.predictions
        head.transform.dense.weight.copy_(torch.eye(mlm.config.hidden_size))
        head.transform.dense.bias.zero_()
        head.bias.fill_(BIAS)
        head.decoder.bias.fill_(BIAS)
    with tempfile.TemporaryDirectory() as start:
        mlm.save_pretrained(start)
        AutoTokenizer.from_pretrained(source).save_pretrained(start)
        model = SparseEncoder(start, device="cpu")
    model.max_seq_length = TOKENS

    records = (one.data for one in read([str(given.corpus)]) if isinstance(one, Record))
    wanted = given.steps * given.batch
    pairs = [(one["title"], one["text"]) for one in records if one.get("title") and one.get("text")]
    pairs = list(itertools.islice(itertools.cycle(pairs), wanted))
    data = Dataset.from_dict({"anchor": [title for title, _ in pairs], "positive": [text for _, text in pairs]})
    loss = SpladeLoss(
        model,
        SparseMultipleNegativesRankingLoss(model),
        query_regularizer_weight=1e-3,
        document_regularizer_weight=5e-4,
    )
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SparseEncoderTrainingArguments(
            output_dir=scratch,
            max_steps=given.steps,
            per_device_train_batch_size=given.batch,
            learning_rate=2e-5,
            warmup_steps=given.steps // 10,
            logging_steps=10,
            report_to=[],
            save_strategy="no",
            seed=0,
            use_cpu=True,
        )
        SparseEncoderTrainer(model=model, args=arguments, train_dataset=data, loss=loss).train()
    model.max_seq_length = 256
    model.save_pretrained(str(given.folder))
    print(f"{given.folder}: {given.steps} steps of {given.batch} titles and abstracts")


if __name__ == "__main__":
    main()
