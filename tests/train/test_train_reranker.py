"""Training rerankers: losses by hand, a step by plain torch, resumption after a kill, what is saved."""

import json
import math
import signal

import pytest
import tiny_training as tiny
from runtimes import on_cpu
from tiny_rerankers import make_decoder, make_encoder

from ccheck.core.errors import InvalidData, UsageError
from ccheck.core.types import Claim
from ccheck.lab.train.loop import Output
from ccheck.lab.train.options import EmbedderOptions, RerankerOptions, load_options, preset_names
from ccheck.lab.train.retrieval_data import SEEN, UNSEEN, Drawing, draw_negatives, retrieval_data

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from killed import deadly, kill_training  # noqa: E402
from plain_steps import refuse_another_step, tokenizer_of  # noqa: E402
from tiny_rerankers import load_scorer  # noqa: E402

from ccheck.lab.train import reranker  # noqa: E402
from ccheck.lab.train.loop import Phase, Training, last_checkpoint  # noqa: E402

DATA = tiny.DATA
QUICK = {"epochs": 1, "batch": 16, "depth": 10, "hard": 1, "random": 1, "eval_depth": 4, "eval_claims": 3, "warmup": 0}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny.bert(tmp_path_factory.mktemp("base") / "bert")


def options(**changed):
    return RerankerOptions(**{**QUICK, "precision": "float32", **changed})


def train(output, chosen, runtime=None, **how):
    return reranker.train_reranker(chosen, DATA, Output(output, **how), runtime or on_cpu(), tiny.candidates)


def test_the_losses_are_what_they_are_by_hand():
    scores = torch.tensor([2.0, -1.0])
    row = reranker.RerankerRow("claim", ("relevant", "other"))
    sigmoid = [1 / (1 + math.exp(-score)) for score in (2.0, -1.0)]
    margins = torch.tensor([2.0, -1.0, 5.0, 0.0])
    assert reranker.loss_of(margins, [row, row], options(loss="margin", margin=3.5)).item() == pytest.approx(0.5 / 2)
    pairs = [reranker.RerankerRow("claim", ("a",), 1.0), reranker.RerankerRow("claim", ("b",), 0.0)]
    bce = reranker.loss_of(scores, pairs, options(loss="bce"))
    assert bce.item() == pytest.approx(-(math.log(sigmoid[0]) + math.log(1 - sigmoid[1])) / 2)
    groups = [reranker.RerankerRow("claim", ("a", "b", "c")), reranker.RerankerRow("claim", ("a",))]
    softmax = reranker.loss_of(torch.tensor([2.0, -1.0, 0.5, 0.0]), groups, options(loss="softmax"))
    assert softmax.item() == pytest.approx((math.log(sum(map(math.exp, (2.0, -1.0, 0.5)))) - 2.0) / 2)


def rows_of(chosen, count):
    drawn = draw_negatives(DATA, DATA.train, Drawing(0, 1))
    passages = {id_: document.content for id_, document in DATA.documents.items()}
    return reranker.reranker_rows(drawn, passages, chosen)[:count]


def stepped(folder, chosen, rows):
    """The weights after one epoch by ccheck."""
    learner = reranker.Reranker(chosen, DATA, Training(folder, chosen, on_cpu()), tiny.candidates)
    learner.trainer_on(rows, learner.phases[0]).train()
    return learner.model.state_dict()


def test_a_step_is_that_of_plain_torch(tmp_path, base):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    plain = tiny.without_dropout(base, tmp_path / "plain")
    how = {"schedule": "constant", "weight_decay": 0.1, "clip": 0.5, "learning_rate": 1e-3}
    chosen = options(base=str(plain), batch=8, loss="bce", **how)
    rows = rows_of(chosen, 8)
    found = stepped(tmp_path / "run", chosen, rows)
    model = AutoModelForSequenceClassification.from_pretrained(plain).train()
    tokenizer = AutoTokenizer.from_pretrained(plain)
    texts = tokenizer([row.claim for row in rows], [row.passages[0] for row in rows], padding=True, return_tensors="pt")
    labels = torch.tensor([row.label for row in rows])
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(**texts).logits[:, 0], labels)
    refuse_another_step(found, model, loss, weight_decay=0.1, clip=0.5)


def test_two_batches_of_four_make_the_step_of_one_of_eight(tmp_path, base):
    plain = tiny.without_dropout(base, tmp_path / "plain")
    chosen = options(base=str(plain), batch=8, learning_rate=1e-3, schedule="constant")
    rows = rows_of(chosen, 8)
    whole = stepped(tmp_path / "one", chosen, rows)
    halves = stepped(tmp_path / "two", chosen.model_copy(update={"batch": 4, "accumulate": 2}), rows)
    assert tiny.share_apart(halves, whole) < 1e-3


def interrupt():
    raise KeyboardInterrupt


def test_a_training_that_was_killed_goes_on(tmp_path, base):
    chosen = options(base=str(base), epochs=2, second_epochs=1, learning_rate=1e-3, accumulate=2)
    whole = train(tmp_path / "whole", chosen)
    kill_training(chosen, tmp_path / "killed", "first", 5)
    work = tmp_path / "killed.training"
    assert last_checkpoint(work / "first" / "checkpoints").name == "checkpoint-3"
    assert not (tmp_path / "killed").exists()
    state = work / "first" / "checkpoints" / "checkpoint-3" / "trainer_state.json"
    kept = json.loads(state.read_text())
    kept["log_history"][-1]["seconds"] += 1000
    state.write_text(json.dumps(kept))
    # A checkpoint that was not written to its end does not count.
    (work / "first" / "checkpoints" / "checkpoint-5").mkdir()
    with pytest.raises(UsageError, match="--resume"):
        train(tmp_path / "killed", chosen)
    with pytest.raises(UsageError, match=r"other settings or data \(seed was"):
        train(tmp_path / "killed", chosen.model_copy(update={"seed": 5}), resume=True)
    with pytest.raises(KeyboardInterrupt, match="--resume"):
        train(tmp_path / "killed", chosen, deadly("second", 1, interrupt), resume=True)
    assert (work / "first" / "done.json").is_file()
    report = train(tmp_path / "killed", chosen, resume=True)
    assert [one.steps for one in report.phases] == [one.steps for one in whole.phases] and not work.exists()
    assert report.phases[0].seconds > 1000 > report.phases[1].seconds, "with those before it was killed"
    logs = [(tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("whole", "killed")]
    assert len(logs[0]) == len(logs[1]) and any("eval_value" in line for line in logs[0])


def test_an_epoch_that_was_interrupted_goes_on_from_its_step(tmp_path, base, monkeypatch):
    chosen = options(base=str(base), learning_rate=1e-3)
    whole = train(tmp_path / "whole", chosen)
    with pytest.raises(KeyboardInterrupt, match="no checkpoint to resume"):
        train(tmp_path / "out", chosen, deadly("first", 2, interrupt))
    for step in (2, whole.phases[0].steps):  # in the middle, and where the epoch is to be measured
        signalled = deadly("first", step, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt, match="--resume"):
            train(tmp_path / "out", chosen, signalled, resume=True)
        assert last_checkpoint(tmp_path / "out.training" / "first" / "checkpoints").name == f"checkpoint-{step}"
    report = train(tmp_path / "out", chosen, resume=True)
    assert report.phases[0].history == whole.phases[0].history
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "out")]
    assert weights[0] == weights[1]
    monkeypatch.setattr("ccheck.lab.train.loop.SAVE_EVERY_S", 0)
    with pytest.raises(KeyboardInterrupt, match="--resume"):
        train(tmp_path / "out-2", chosen, deadly("first", 5, interrupt))
    kept = (tmp_path / "out-2.training" / "first" / "checkpoints").iterdir()
    assert {one.name for one in kept} == {"checkpoint-3", "checkpoint-4"}


@pytest.mark.parametrize("architecture", ["bert", "xlm-roberta", "deberta-v2"])
def test_what_is_saved_scores_as_what_was_trained(tmp_path, architecture, monkeypatch):
    start = make_encoder(tmp_path / "base", architecture=architecture, texts=tiny.TEXTS, labels=3, num_hidden_layers=2)
    kept = []
    load = reranker.load_rerank_model
    monkeypatch.setattr(reranker, "load_rerank_model", lambda *a: kept.append(load(*a)) or kept[0])
    chosen = options(base=str(start), loss="softmax", learning_rate=1e-3)
    report = train(tmp_path / "out", chosen)
    scorer = load_scorer(str(tmp_path / "out"), device="cpu")
    claim, texts = tiny.claims()[0].text, [document.content for document in tiny.corpus()[:5]] + ["word " * 700]
    encoded = scorer.encode(claim, texts)
    assert [one.ids for one in kept[0].pairs(claim, texts)] == [one.ids for one in encoded]
    with torch.inference_mode():
        trained = kept[0].scores(kept[0].model.eval(), encoded)
    assert scorer.score(encoded) == pytest.approx(trained.tolist(), abs=1e-4)
    assert {one.group for one in report.figures} == {UNSEEN, SEEN}
    assert tokenizer_of(tmp_path / "out") == tokenizer_of(start)
    assert not [file for file in (tmp_path / "out").rglob("*") if file.suffix in (".bin", ".pt", ".pkl")]
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| by document (8) | nDCG@10 |" in card and 'loss = "softmax"' in card


def test_an_embedding_model_gets_a_head(tmp_path, monkeypatch):
    chosen = options(base="all-MiniLM-L6-v2", loss="bce", max_tokens=32, batch=64, random=0, eval_claims=100)
    report = train(tmp_path / "out", chosen)
    assert "the base is not a reranker" in report.notes[0]
    assert report.phases[0].history[0][2] == report.figures[0].before, "of the retrieval, not of the new head"
    scorer = load_scorer(str(tmp_path / "out"), device="cpu")
    assert len(scorer.score(scorer.encode("a claim", ["a text", "another"]))) == 2


def test_the_best_epoch_is_kept(tmp_path, base):
    # What it learns from is noise at this rate: it can't get better forever.
    report = train(tmp_path / "out", options(base=str(base), epochs=4, learning_rate=5e-3, gradient_checkpointing=True))
    history = report.phases[0].history
    values = [value for _, _, value in history[1:]]
    assert report.phases[0].best_step == history[1 + values.index(max(values))][0]


def test_a_second_phase_that_gains_nothing_is_undone(tmp_path, base, monkeypatch):
    monkeypatch.setattr("ccheck.lab.train.ranker.development_value", lambda *given: 0.5)
    chosen = options(base=str(base), learning_rate=1e-3)
    train(tmp_path / "one", chosen)
    both = train(tmp_path / "both", chosen.model_copy(update={"second_epochs": 1}))
    assert "the phase second brought no gain in nDCG@10 and was undone" in both.notes
    assert any("Do without this model" in note for note in both.notes)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "both")]
    assert weights[0] == weights[1]


def test_settings_that_make_no_sense(tmp_path, base):
    decoder = str(make_decoder(tmp_path / "base", texts=tiny.TEXTS, num_hidden_layers=1))
    for changed, message in (
        ({"metric": "nDGC@10"}, "did you mean"),
        ({"max_tokens": 4096}, "at most 512 tokens"),
        ({"base": decoder}, "is a decoder"),
    ):
        for _ in range(2):  # what ended before it began leaves nothing behind that would be in the way
            with pytest.raises(UsageError, match=message):
                train(tmp_path / "out", options(**{"base": str(base), **changed}))


def test_a_loss_that_is_no_number_stops_the_training(tmp_path, base):
    from safetensors.torch import load_file, save_file

    broken = tiny.without_dropout(base, tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    weights["classifier.weight"][:] = float("inf")
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    rows = rows_of(options(), 4)
    chosen = options(base=str(broken))
    training = Training(tmp_path / "work", chosen, on_cpu(), lambda: 0.0)
    learner = reranker.Reranker(chosen, DATA, training, tiny.candidates)
    phase = Phase("first", 1)
    with pytest.raises(UsageError, match="training diverged"):
        training.run(phase, lambda: learner.trainer_on(rows, phase))


def test_no_document_to_measure_on_is_in_training():
    unseen = {id_ for claim in DATA.groups[UNSEEN] for id_ in DATA.qrels[claim.id]}
    assert unseen == DATA.hidden and unseen.isdisjoint(DATA.visible)
    assert not unseen & {id_ for claim in DATA.train for id_ in DATA.qrels[claim.id]}
    ranked = {str(claim.id): list(DATA.documents) for claim in DATA.train}
    for row in draw_negatives(DATA, DATA.train, Drawing(5, 5), ranked):
        assert row.positive in DATA.relevant(row.claim)
        assert len(set(row.negatives)) == 10
        assert DATA.hidden.isdisjoint(row.negatives) and row.positive not in row.negatives


def test_claims_given_to_measure_on_are_in_two_groups():
    claims, qrels = tiny.claims(), tiny.qrels()
    shared = {"x": {"d0-1": 1}, "y": {"d19-2": 1}}
    dev = [Claim("about the first", "x"), Claim("about the last", "y")]
    data = retrieval_data(tiny.corpus(), claims[:-1], qrels, dev=(dev, shared))
    assert [claim.id for claim in data.groups[UNSEEN]] == ["y"]
    assert [claim.id for claim in data.groups[SEEN]] == ["x", "y"]
    assert data.hidden == {"d19-2"} and len(data.train) == len(claims) - 1
    with pytest.raises(InvalidData, match="Check that the ids"):
        retrieval_data(tiny.corpus(), claims, {"other": {"d0-1": 1}})


def test_presets_are_settings():
    ensemble = [f"climatecheck-ensemble-{number}" for number in range(1, 6)]
    assert preset_names(RerankerOptions) == [*ensemble, "climatecheck-hybrid"]
    for kind in (RerankerOptions, EmbedderOptions):
        for name in preset_names(kind):
            load_options(kind, name, {}, {})
    two = load_options(RerankerOptions, "climatecheck-hybrid", {"batch": 4, "seed": 3}, {"batch": 2, "epochs": None})
    assert (two.batch, two.seed, two.epochs, two.second_epochs) == (2, 3, 3, 2)
    with pytest.raises(UsageError, match="the setting epochs"):
        load_options(RerankerOptions, None, {"epochs": -1}, {})
