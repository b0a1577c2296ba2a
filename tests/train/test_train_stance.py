"""Training of stance models: the loss by hand, what is read, a training that is killed, and what it leaves."""

import gzip
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cli_runs import jsonl
from plain_steps import refuse_another_step, tokenizer_of
from runtimes import on_cpu
from safetensors.torch import load_file, save_file
from tiny_rerankers import make_encoder
from tiny_stances import options_for, rows_of
from tiny_training import without_dropout

from ccheck.core.errors import InvalidData
from ccheck.core.stages import VerdictStage
from ccheck.lab.measure.pairs import StanceRows, judge_rows, measure_pairs, read_rows
from ccheck.lab.train.figures import STANCE_METRICS
from ccheck.lab.train.loop import Output
from ccheck.lab.train.options import StanceOptions, load_options, preset_names
from ccheck.lab.train.stance import StanceData, join_files, row_weights, split_rows, stance_data, without_leaks
from ccheck.lab.train.stance import train_stance as train
from ccheck.verdict.classifier import StanceClassifier
from ccheck.verdict.labels import STANCES
from ccheck.verdict.open import open_method


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    texts = [f"{row.claim} {row.title} {row.text}" for row in rows_of()]
    return make_encoder(
        tmp_path_factory.mktemp("base") / "bert", architecture="bert", texts=texts, learn=300, num_hidden_layers=2
    )


def train_stance(data, options, output, **how):
    return train(data, options, Output(output, **how), on_cpu())


def test_rare_labels_are_drawn_more_often():
    labels = [0] * 4 + [1] * 1
    assert row_weights(labels, 1.0) == [0.25] * 4 + [1.0], "all labels alike"
    assert row_weights(labels, 0.5) == [0.5] * 4 + [1.0]


def test_formats(tmp_path):
    seven, eight = {"_id": "7", "title": "T", "text": "Text of seven."}, {"doc_id": 8, "abstract": ["One.", "Two."]}
    corpus = jsonl(tmp_path / "corpus.jsonl", seven, eight)
    files = {
        "plain": '{"claim": "c", "evidence": "e", "label": "Entailment"}\n',
        "verdicts": '{"claim_id": "1", "claim": "c", "doc_id": "7", "label": "NEI", "sentences": [0]}\n',
        "own": '{"id": 1, "claim": "c", "evidence": {"8": [{"sentences": [1], "label": "CONTRADICT"}]}, '
        '"cited_doc_ids": [7, 8]}\n',
        "fever": '{"claim_id": "1", "claim": "c", "claim_label": "DISPUTED", "evidences": [{"evidence_id": "A:1", '
        '"evidence_label": "SUPPORTS", "article": "A", "evidence": "e"}]}\n',
        "mixed": '{"claim": "c", "evidence": "e", "label": "SUPPORTS"}\n'
        '{"claim": "d", "evidence": "e", "label": "CONFLICTING"}\n'
        '{"claim": "d", "doc_id": "7", "label": "DISPUTED"}\n',
        "averitec": '{"claim_id": "1", "claim": "c", "label": "Refuted", "questions": [{"question": "Q?", "answers": '
        '[{"answer": "No"}]}]}\n{"claim": "d", "label": "Conflicting Evidence/Cherrypicking", "questions": '
        '[{"question": "Q?", "answers": []}]}\n',
    }
    found = {}
    for name, text in files.items():
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name == "fever" else text.encode())
        found[name] = read_rows(tmp_path / name, corpus)
    assert [(row.text, row.label) for row in found["plain"].rows] == [("e", "SUPPORTS")]
    read, open_ = tuple(seven.values()), "NOT_ENOUGH_INFO"
    for name, expected in (
        ("verdicts", [(*read, open_, (0,))]),
        ("own", [("8", "", "One. Two.", "REFUTES", (1,)), (*read, open_, ())]),
    ):
        rows = found[name].rows
        assert [(row.doc_id, row.title, row.text, row.label, row.sentences) for row in rows] == expected
    assert [(row.doc_id, row.title, row.label) for row in found["fever"].rows] == [("A:1", "A", "SUPPORTS")]
    assert [(row.text, row.label) for row in found["averitec"].rows] == [("Q? No.", "REFUTES")]
    assert found["averitec"].skipped == 1 and "1 left out" in found["averitec"].describe()
    assert [row.claim for row in found["mixed"].rows] == ["c"] and found["mixed"].skipped == 2
    with pytest.raises(InvalidData, match=r"line 1: .*--corpus"):
        read_rows(tmp_path / "verdicts")
    wrong = {"claim": "c", "evidence": "e", "label": "perhaps"}, {"claim": "", "label": "SUPPORTS"}
    with pytest.raises(InvalidData, match=r"line 1: unknown label 'perhaps'.*line 2: claim is missing"):
        read_rows(jsonl(tmp_path / "bad", *wrong))


def test_what_is_measured_on_is_in_no_other_part():
    rows = rows_of()
    train, dev = split_rows(rows, "document", 0.2, 0)
    assert {row.doc_id for row in train}.isdisjoint(row.doc_id for row in dev)
    assert without_leaks(rows, dev) == train
    data = stance_data(rows, StanceOptions())
    parts = [data.train, data.dev, *data.groups.values()]
    assert sum(map(len, parts)) == len(rows) and set(data.groups) == {"by document", "by claim"}
    given = stance_data(rows, StanceOptions(), dev=dev)
    assert set(given.train) == set(train) and any("not trained on" in message for message in given.messages)
    with pytest.raises(InvalidData, match=r"too few claims.*has 1. Label pairs of more claims.*--dev,.*split=pair"):
        stance_data(rows[:1], StanceOptions())
    two = join_files([StanceRows(tuple(rows[:2]))] * 2)
    assert len({row.claim_id for row in two}) == 4


def test_the_preset_has_the_papers_values():
    assert "climatecheck-hybrid" in preset_names(StanceOptions)
    options = load_options(StanceOptions, "climatecheck-hybrid", {}, {"base": "x"})
    assert (options.epochs, options.learning_rate, options.schedule, options.gamma) == (10, 5e-5, "constant", 2.0)
    assert options.frozen and options.balanced == 1 and options.class_weights
    assert options.batch * options.accumulate == 32


def test_a_step_is_that_of_plain_torch(tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    rows = tuple(rows_of(8))
    texts = [f"{row.claim} {row.title} {row.text}" for row in rows]
    names = {"id2label": dict(enumerate(STANCES)), "label2id": {label: n for n, label in enumerate(STANCES)}}
    made = make_encoder(tmp_path / "made", architecture="bert", texts=texts, num_hidden_layers=2, labels=3, **names)
    base = without_dropout(made, tmp_path / "base")
    how = {"schedule": "constant", "warmup": 0, "weight_decay": 0.1, "clip": 0.05, "balanced": False, "epochs": 1}
    options = options_for(base, batch=8, learning_rate=1e-3, class_weights=True, gamma=2.0, **how)
    train_stance(StanceData(rows, rows, {"rows": rows}), options, tmp_path / "model")
    model = AutoModelForSequenceClassification.from_pretrained(base).train()
    inputs = AutoTokenizer.from_pretrained(base)(
        [f"{row.title}. {row.text}" for row in rows], [row.claim for row in rows], padding=True, return_tensors="pt"
    )
    # 3, 3 and 2 pairs: inverses 1/3, 1/3, 1/2, which sum to 7/6.
    y = torch.tensor([STANCES.index(row.label) for row in rows])
    alpha = torch.tensor([6 / 7, 6 / 7, 9 / 7])[y]
    p = model(**inputs).logits.softmax(-1)[torch.arange(8), y]
    loss = (-alpha * (1 - p) ** 2 * p.log()).mean()
    refuse_another_step(load_file(tmp_path / "model" / "model.safetensors"), model, loss, 0.1, 0.05)


def test_a_trained_folder_is_a_stance_model(base, tmp_path):
    rows = rows_of(240)
    output = tmp_path / "model"
    options = options_for(base, epochs=6, learning_rate=1e-3)
    made = train_stance(stance_data(rows, options), options, output)
    figure = made.figures[0]
    assert (figure.group, figure.metric) == ("by document", "weighted F1")
    assert figure.after > figure.before + 0.1 and figure.after_interval is not None
    assert {file.suffix for file in output.iterdir()} <= {".safetensors", ".json", ".jsonl", ".md", ".txt"}
    assert not output.with_name("model.training").exists() and tokenizer_of(output) == tokenizer_of(base)
    assert "## Figures" in (output / "README.md").read_text() and "by document" in (output / "README.md").read_text()
    assert '"eval_value"' in (output / "log.jsonl").read_text()
    method = open_method(VerdictStage(method="stance", model=str(output)), on_cpu())
    assert isinstance(method, StanceClassifier) and method.max_tokens == 64
    said = [stance.label for stance in judge_rows(method, rows[:30])[0]]
    assert sum(label == row.label for label, row in zip(said, rows, strict=False)) > 15


def test_the_figures_are_those_of_the_model_that_is_saved(base, tmp_path):
    """Unlike one just trained, which drops values out. A pair that can't be judged is wrong, as in `measure_pairs`."""
    dropping = make_encoder(
        tmp_path / "base", architecture="bert", texts=[row.text for row in rows_of()], learn=300,
        num_hidden_layers=1, hidden_dropout_prob=0.9,
    )  # fmt: skip
    options = options_for(dropping, epochs=1)
    data = stance_data(rows_of(), options)
    half = (*rows_of(12), *(replace(row, claim="too long " * 40) for row in rows_of(12)))
    data = replace(data, groups={**data.groups, "half": half})
    made = train_stance(data, options, tmp_path / "model")
    saved = StanceClassifier(str(tmp_path / "model"), on_cpu())
    for name, rows in data.groups.items():
        known = measure_pairs(saved, rows)
        told = {one.metric: one.after for one in made.figures if one.group == name}
        assert told == pytest.approx({metric: known.metrics[key] for metric, key in STANCE_METRICS.items()})
    assert (known.judged, known.pairs, made.figures[-1].claims) == (12, 24, 12)
    low, high = made.figures[-1].difference_interval
    assert low <= made.figures[-1].after - made.figures[-1].before <= high
    assert "half: 12 of 24 pairs without an answer count as wrong" in made.notes


def test_a_classifier_that_learns_nothing_says_the_most_frequent_label(base, tmp_path):
    """Documents that say nothing of their labels: balanced batches made such a model say any label at all."""
    draw = random.Random(3)
    labels = ["SUPPORTS"] * 60 + ["REFUTES"] * 12 + ["NOT_ENOUGH_INFO"] * 24
    draw.shuffle(labels)
    pairs = zip(rows_of(96), labels, strict=True)
    rows = tuple(replace(row, label=label, claim=f"{row.claim} {draw.random()}") for row, label in pairs)
    options = options_for(base, epochs=2, learning_rate=3e-4)
    made = train_stance(StanceData(rows[:64], rows[:64], {"other": rows[64:]}), options, tmp_path / "m")
    said = Counter(stance.label for stance in judge_rows(StanceClassifier(str(made.output), on_cpu()), rows[64:])[0])
    assert made.beside == "always saying SUPPORTS" and said["SUPPORTS"] >= 30
    assert made.notes == ("other: on 32 pairs the model can't be distinguished from always saying SUPPORTS",)
    assert "can't be distinguished from always saying SUPPORTS." in (made.output / "README.md").read_text()


def test_few_pairs_leave_more_to_choose_by():
    few, many = (stance_data(rows_of(count), StanceOptions()) for count in (240, 3000))
    assert len(few.dev) / (len(few.train) + len(few.dev)) == pytest.approx(0.25, abs=0.02)
    assert len(many.dev) / (len(many.train) + len(many.dev)) == pytest.approx(0.1, abs=0.02)


def test_a_frozen_encoder_stays_as_it_is(base, tmp_path):
    options = options_for(base, frozen=True, epochs=1)
    train_stance(stance_data(rows_of(), options), options, tmp_path / "model")
    before, after = (load_file(folder / "model.safetensors") for folder in (base, tmp_path / "model"))
    same = {name: torch.equal(before[name], after[name]) for name in after if before[name].shape == after[name].shape}
    assert all(same[name] for name in same if ".encoder." in name or ".embeddings." in name)
    assert not any(same[name] for name in same if ".pooler." in name)


def test_what_cant_be_trained_says_why(base, tmp_path):
    rows = [row for row in rows_of() if row.label == "SUPPORTS"]
    with pytest.raises(InvalidData, match="SUPPORTS only"):
        train_stance(stance_data(rows, options_for(base)), options_for(base), tmp_path / "model")
    file = shutil.copytree(base, tmp_path / "part") / "model.safetensors"
    weights = load_file(file)
    del weights["bert.encoder.layer.1.output.dense.weight"]
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(InvalidData, match=r"its weights lack bert\.encoder"):
        train_stance(stance_data(rows_of(), options_for(base)), options_for(tmp_path / "part"), tmp_path / "model")
