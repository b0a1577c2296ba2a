"""Training embedders and query adapters: losses by hand, a step by plain torch, resumption, what is saved."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import tiny_training as tiny
from runtimes import on_cpu
from weights import saved_weights

from ccheck.core.errors import InvalidData, NotFound, UsageError
from ccheck.encode.adapter import load_adapter
from ccheck.lab.train.options import AdapterOptions, EmbedderOptions, Lora
from ccheck.lab.train.retrieval_data import UNSEEN

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from killed import kill_training  # noqa: E402

from ccheck.core.models import find_model, fingerprint  # noqa: E402
from ccheck.encode.dense import load_embedder  # noqa: E402
from ccheck.lab.train import adapter, embedder  # noqa: E402

DATA = tiny.DATA
MINILM = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny.bert(tmp_path_factory.mktemp("base") / "bert")


def options(**changed):
    quick = {"epochs": 1, "batch": 8, "chunk": 3, "warmup": 0, "precision": "float32", "max_tokens": 64}
    return EmbedderOptions(**{**quick, **changed})


def train(output, chosen, **how):
    return embedder.train_embedder(chosen, DATA, output, device="cpu", **how)


# -- losses


def test_the_losses_are_what_they_are_by_hand(base):
    def unit(degrees):
        return [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]

    model, _ = embedder.load_base(options(base=str(base)), "cpu")
    claims, near, far = (torch.tensor([unit(angle) for angle in angles]) for angles in ((0, 90), (60, 90), (90, 150)))
    triplet = embedder._loss(model, options(loss="triplet", margin=0.3))
    # Cosines .5 and 0 for the first claim, 1 and .5 for the second: losses max(0, .5 - 1 + .3) and max(0, 0 - .5 + .3).
    assert triplet.compute_loss_from_embeddings([claims, near, far], None).item() == 0
    swapped = triplet.compute_loss_from_embeddings([claims, far, near], None).item()
    assert swapped == pytest.approx(((1 - 0) - (1 - 0.5) + 0.3 + (1 - 0.5) - (1 - 1) + 0.3) / 2)
    many = embedder._loss(model, options(scale=20.0))
    cosines = [[0.5, 0.0], [math.cos(math.radians(30)), 1.0]]
    by_hand = [math.log(sum(math.exp(20 * cos) for cos in row)) - 20 * row[i] for i, row in enumerate(cosines)]
    found = many.calculate_loss([[claims], [near]], with_backward=False)
    assert found.item() == pytest.approx(sum(by_hand) / 2, rel=1e-4)
    # A chunk that holds a whole batch leaves nothing to compute twice.
    whole = embedder._loss(model, options(scale=20.0, chunk=8))
    assert not isinstance(whole, type(many))
    assert whole.compute_loss_from_embeddings([claims, near], None).item() == pytest.approx(found.item(), rel=1e-6)


def test_the_adapters_loss_is_what_it_is_by_hand():
    queries, documents = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.6, 0.8], [0.0, 1.0], [1.0, 0.0]])
    weight = torch.tensor([[0.0, 1.0], [1.0, 0.0]])  # swaps: the claim is [0, 1] then
    others = torch.tensor([[False, False, True]])
    found = adapter.adapter_loss(weight, queries, documents, torch.tensor([0]), others, 10.0, 0.01)
    by_hand = math.log(math.exp(8) + math.exp(10)) - 8 + 0.01 * 4
    assert found.item() == pytest.approx(by_hand, rel=1e-5)


# -- one step


@pytest.mark.parametrize(("loss", "chunk"), [("multiple-negatives", 3), ("multiple-negatives", 8), ("triplet", 3)])
def test_a_step_is_that_of_plain_torch(tmp_path, base, loss, chunk):
    from transformers import AutoModel, AutoTokenizer

    plain = tiny.without_dropout(base, tmp_path / "plain")
    how = {"schedule": "constant", "weight_decay": 0.0, "clip": 100.0, "learning_rate": 1e-3}
    chosen = options(base=str(plain), loss=loss, chunk=chunk, **how)
    rows = embedder.embedder_rows(chosen, DATA)[:8]
    model, _ = embedder.load_base(chosen, "cpu")
    embedder._trainer(model, chosen, DATA, rows, tmp_path / "run", "cpu", 1, 1e-3).train()
    reference = AutoModel.from_pretrained(plain, add_pooling_layer=False).train()
    tokenizer = AutoTokenizer.from_pretrained(plain)
    optimizer = torch.optim.AdamW(reference.parameters(), lr=1e-3, weight_decay=0)

    def embed(texts):
        given = tokenizer(texts, padding=True, return_tensors="pt")
        mask = given["attention_mask"][..., None]
        states = reference(**given).last_hidden_state
        return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)

    texts = {id_: document.content for id_, document in DATA.documents.items()}
    claims, near = embed([row.claim.text for row in rows]), embed([texts[row.positive] for row in rows])
    if loss == "triplet":
        far = embed([texts[row.negatives[0]] for row in rows])
        value = torch.relu((claims * far).sum(1) - (claims * near).sum(1) + 0.3).mean()
    else:
        value = torch.nn.functional.cross_entropy(20 * claims @ near.T, torch.arange(len(rows)))
    value.backward()
    optimizer.step()
    found = model.transformers_model.state_dict()
    # Adam's first step is the sign of the gradient, so what is nearly no gradient says nothing.
    for name, parameter in reference.named_parameters():
        sure = parameter.grad.abs() > 1e-5
        assert torch.allclose(found[name][sure], parameter.detach()[sure], atol=1e-5), name


# -- whole trainings

TRAIN = """
from ccheck.lab.train.embedder import train_embedder
from ccheck.lab.train.options import EmbedderOptions
from tiny_training import DATA
train_embedder(EmbedderOptions.model_validate_json(options), DATA, output, device="cpu", listener=listener)
"""


def test_a_training_that_was_killed_goes_on(tmp_path, base):
    lora = Lora(modules=("query",))
    chosen = options(base=str(base), epochs=3, learning_rate=1e-3, lora=lora, weak_pairs=24)
    whole = train(tmp_path / "whole", chosen)
    kill_training(TRAIN, chosen.model_dump_json(), tmp_path / "killed", "embedder", 8)
    report = train(tmp_path / "killed", chosen, resume=True)
    assert [phase.phase for phase in report.phases] == ["weak", "embedder"]
    for one, other in zip(report.phases, whole.phases, strict=True):
        assert one.steps == other.steps and [row[:2] for row in one.history] == [row[:2] for row in other.history]


def test_a_phase_that_gains_nothing_is_undone(tmp_path, base):
    weak = options(base=str(base), weak_pairs=16, weak_learning_rate=1e-3, epochs=0)
    alone = train(tmp_path / "weak", weak)
    assert [(phase.phase, phase.steps) for phase in alone.phases] == [("weak", 2)]
    both = train(tmp_path / "both", weak.model_copy(update={"epochs": 1, "learning_rate": 1e-30}))
    assert [phase.gained for phase in both.phases[1:]] == [False]
    assert "the phase embedder brought no gain in nDCG@10 and was undone" in both.notes
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("weak", "both")]
    assert weights[0] == weights[1] and alone.figures == both.figures
    # The second phase changes nothing of whether there is a gain over the base.
    for name, report in (("weak", alone), ("both", both)):
        use, leave = f"to use it, run ccheck ingest CORPUS --model {tmp_path / name}", "Use the base"
        assert [use in report.notes, not any(leave in note for note in report.notes)] == [alone.phases[0].gained] * 2
    with pytest.raises(UsageError, match="epochs and weak_pairs are both 0"):
        train(tmp_path / "none", options(epochs=0))


def test_the_packaged_model_is_trained_and_used(tmp_path):
    chosen = options(base=MINILM, learning_rate=1e-4, batch=32, lora=Lora(last_layers=1, dropout=0.0), hard=0)
    report = train(tmp_path / "out", chosen)
    out = tmp_path / "out"
    (phase,) = report.phases
    assert phase.gained == (f"to use it, run ccheck ingest CORPUS --model {out}" in report.notes)
    trained = load_embedder(str(out), on_cpu())
    assert trained.spec.dimensions == 384 and trained.spec.max_tokens == 256
    assert trained.spec.fingerprint != fingerprint(find_model(MINILM).path)
    claims, documents = DATA.groups[UNSEEN], [*DATA.documents.values()]
    queries = trained.encode_queries([claim.text for claim in claims])
    found = trained.encode_documents([document.content for document in documents])
    ranking = embedder.nearest(claims, queries, [document.id for document in documents], found)
    figure = next(one for one in report.figures if (one.group, one.metric) == (UNSEEN, "nDCG@10"))
    value = embedder.development_value(ranking, DATA.qrels, claims, "nDCG@10")
    assert value == pytest.approx(figure.after, abs=0.02)
    # LoRA is merged: names and shapes are the base's, and what was not adapted is as it was.
    old = saved_weights(find_model(MINILM).path / "model.safetensors")
    new = saved_weights(out / "model.safetensors")
    assert set(new) == set(old) - {"embeddings.position_ids"}
    assert {name for name in new if not torch.equal(old[name], new[name])} == {
        f"encoder.layer.5.attention.self.{part}.weight" for part in ("query", "key", "value")
    }
    assert {one.suffix for one in out.rglob("*") if one.is_file()} <= {".json", ".safetensors", ".md", ".csv", ".txt"}


# -- rows


def test_negatives_are_mined_judged_or_drawn(tmp_path):
    assert all(row.negatives == () for row in embedder.embedder_rows(options(hard=2), DATA))
    triplets = embedder.embedder_rows(options(loss="triplet", hard=2), DATA)
    assert len(triplets) == 2 * len(embedder.embedder_rows(options(), DATA))
    assert all(len(row.negatives) == 1 for row in triplets)
    claim = DATA.train[0]
    mined = tmp_path / "mined.jsonl"
    other = next(id_ for id_ in DATA.visible if id_ not in DATA.relevant(claim))
    mined.write_text(json.dumps({"claim_id": claim.id, "negatives": [{"id": other, "score": 1.0}]}) + "\n")
    rows = embedder.embedder_rows(options(hard=2, negatives=mined), DATA)
    assert next(row for row in rows if row.claim == claim).negatives[0] == other
    assert all(len(set(row.negatives)) == 2 and DATA.hidden.isdisjoint(row.negatives) for row in rows)


def test_weak_rows_do_not_show_what_is_to_be_found():
    pairs = embedder.weak_rows(options(weak_pairs=1000), DATA)
    triplets = embedder.weak_rows(options(weak_pairs=1000, loss="triplet"), DATA)
    # A title and a sentence of each document that training may see.
    assert len(pairs) == len(triplets) == 2 * len(DATA.visible)
    assert [(row.claim, row.positive, *row.texts[:1]) for row in triplets] == [
        (row.claim, row.positive, *row.texts) for row in pairs
    ]
    for row in triplets:
        (negative,) = row.negatives
        document, other = DATA.documents[row.positive], DATA.documents[negative]
        assert negative != row.positive and DATA.hidden.isdisjoint((row.positive, negative))
        if row.claim.id == f"weak:title:{row.positive}":
            assert row.claim.text == document.title and row.texts == (document.text, other.text)
        else:
            assert row.claim.id == f"weak:sentence:{row.positive}" and row.claim.text in document.text
            assert row.claim.text not in row.texts[0] and row.texts[0].startswith(f"{document.title}\n")
            assert row.texts[1] == other.content


# -- the adapter


def test_an_adapter_is_trained_and_used(tmp_path):
    chosen = AdapterOptions(base=MINILM, epochs=3, precision="float32", learning_rate=1e-3)
    report = adapter.train_adapter(chosen, DATA, tmp_path / "out", device="cpu")
    again = adapter.train_adapter(chosen, DATA, tmp_path / "again", device="cpu")
    assert report.figures == again.figures
    said = [note for note in report.notes if note.startswith("to use it")]
    assert said == [
        f'to use it, set adapter = "{tmp_path / "out"}" in the table of a recipe\'s dense retriever. The store must '
        f"be made with {MINILM}"
    ]
    files = [(tmp_path / name / "adapter.safetensors").read_bytes() for name in ("out", "again")]
    assert files[0] == files[1]
    model = load_embedder(MINILM, on_cpu())
    adapt = load_adapter(tmp_path / "out", model.spec.fingerprint)
    claims, documents = DATA.groups[UNSEEN], [*DATA.documents.values()]
    queries = model.encode_queries([claim.text for claim in claims])
    adapted = adapt(queries)
    assert adapted.dtype == np.float32 and np.allclose(np.linalg.norm(adapted, axis=1), 1, atol=1e-6)
    assert not np.allclose(adapted, queries, atol=1e-3)
    assert np.allclose(adapt(queries[0]), adapted[0], atol=1e-6)
    found = model.encode_documents([document.content for document in documents])
    ranking = embedder.nearest(claims, adapted, [document.id for document in documents], found)
    figure = next(one for one in report.figures if (one.group, one.metric) == (UNSEEN, "nDCG@10"))
    value = embedder.development_value(ranking, DATA.qrels, claims, "nDCG@10")
    assert value == pytest.approx(figure.after, abs=0.02)
    assert not (tmp_path / "out.training").exists()
    with pytest.raises(InvalidData, match="made for all-MiniLM-L6-v2"):
        load_adapter(tmp_path / "out", "0" * 64)
    with pytest.raises(InvalidData, match="384 dimensions"):
        adapt(np.ones(3, np.float32))


def test_an_adapter_that_gained_nothing_says_so(tmp_path):
    chosen = AdapterOptions(base=MINILM, epochs=1, precision="float32", learning_rate=1e-12)
    report = adapter.train_adapter(chosen, DATA, tmp_path / "out", device="cpu")
    assert not report.phases[0].gained
    assert "no epoch improved nDCG@10 over the model without an adapter. Do not use the adapter" in report.notes
    assert not any(note.startswith("to use it") for note in report.notes)


def test_an_adapter_that_is_none(tmp_path):
    from safetensors.numpy import save_file

    with pytest.raises(NotFound, match=r"holds no adapter .*ccheck train adapter"):
        load_adapter(tmp_path, "f")
    with pytest.raises(NotFound, match=r"does not exist.*looked up next to the recipe"):
        load_adapter(tmp_path / "absent", "f")
    with pytest.raises(NotFound, match=r"holds a model, not an adapter.*ccheck ingest CORPUS --model"):
        load_adapter(find_model(MINILM).path, "f")
    settings = {"kind": "linear", "dimensions": 2, "fingerprint": "f"}
    (tmp_path / "adapter.json").write_text(json.dumps(settings))
    (tmp_path / "adapter.safetensors").write_bytes(b"nothing")
    with pytest.raises(NotFound, match="is a file: name the folder"):
        load_adapter(tmp_path / "adapter.safetensors", "f")
    with pytest.raises(InvalidData, match="can't be read"):
        load_adapter(tmp_path, "f")
    for weight in (np.eye(3, dtype=np.float32), np.eye(2), np.full((2, 2), np.nan, np.float32)):
        save_file({"weight": weight}, tmp_path / "adapter.safetensors")
        with pytest.raises(InvalidData, match=r"finite numbers .* \(it holds \d x \d in float\d\d\)"):
            load_adapter(tmp_path, "f")
    for broken in ("[]", "{}", "nothing", json.dumps({**settings, "kind": "other"})):
        (tmp_path / "adapter.json").write_text(broken)
        with pytest.raises(InvalidData):
            load_adapter(tmp_path, "f")


def test_an_adapter_takes_no_lora(tmp_path):
    with pytest.raises(UsageError, match="lora"):
        adapter.train_adapter(AdapterOptions(lora=Lora()), DATA, tmp_path / "out", device="cpu")
