"""Training embedders: losses computed in the test, a step in plain torch, resumption, what is saved."""

import pytest
import tiny_training as tiny
from cli_runs import jsonl
from runtimes import on_cpu

from ccheck.core.errors import UsageError
from ccheck.lab.train.options import EmbedderOptions, Lora
from ccheck.lab.train.retrieval_data import UNSEEN

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from plain_steps import refuse_another_step, tokenizer_of  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from ccheck.core.models import find_model, fingerprint  # noqa: E402
from ccheck.encode.dense import load_embedder  # noqa: E402
from ccheck.lab.train import embedder  # noqa: E402
from ccheck.lab.train.figures import development_value  # noqa: E402
from ccheck.lab.train.loop import (  # noqa: E402
    Output,
    Phase,
    Training,
)

DATA = tiny.DATA
MINILM = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny.bert(tmp_path_factory.mktemp("base") / "bert")


def options(**changed):
    quick = {"epochs": 1, "batch": 8, "chunk": 3, "warmup": 0, "precision": "float32", "max_tokens": 64}
    return EmbedderOptions(**{**quick, **changed})


def train(output, chosen, **how):
    return embedder.train_embedder(chosen, DATA, Output(output, **how), on_cpu())


def test_the_losses_are_what_they_are_by_hand(base):
    model, _ = embedder.load_base(options(base=str(base)), "cpu")
    angles = torch.deg2rad(torch.tensor([[0.0, 90], [60, 90], [90, 150]]))
    claims, near, far = torch.stack([angles.cos(), angles.sin()], -1)
    triplet = embedder._loss(model, options(loss="triplet", margin=0.3))
    # Cosines .5 and 0 for the first claim, 1 and .5 for the second: losses max(0, .5 - 1 + .3) and max(0, 0 - .5 + .3).
    assert triplet.compute_loss_from_embeddings([claims, near, far], None).item() == 0
    swapped = triplet.compute_loss_from_embeddings([claims, far, near], None).item()
    assert swapped == pytest.approx(((1 - 0) - (1 - 0.5) + 0.3 + (1 - 0.5) - (1 - 1) + 0.3) / 2)
    # A chunk that holds a whole batch leaves nothing to compute twice.
    assert not isinstance(embedder._loss(model, options(chunk=8)), type(embedder._loss(model, options())))


@pytest.mark.parametrize(("loss", "chunk"), [("multiple-negatives", 3), ("multiple-negatives", 8), ("triplet", 3)])
def test_a_step_is_that_of_plain_torch(tmp_path, base, loss, chunk):
    from transformers import AutoModel, AutoTokenizer

    plain = tiny.without_dropout(base, tmp_path / "plain")
    how = {"schedule": "constant", "weight_decay": 0.0, "clip": 100.0, "learning_rate": 1e-3, "max_tokens": None}
    chosen = options(base=str(plain), loss=loss, chunk=chunk, **how)
    rows = embedder.embedder_rows(chosen, DATA)[:8]
    learner = embedder.Embedder(chosen, DATA, Training(tmp_path / "run", chosen, on_cpu()))
    learner.trainer_on(rows, Phase("embedder", 1)).train()
    reference = AutoModel.from_pretrained(plain, add_pooling_layer=False).train()
    tokenizer = AutoTokenizer.from_pretrained(plain)

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
    refuse_another_step(learner.model.transformers_model.state_dict(), reference, value)


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
    value = development_value(ranking, DATA.qrels, claims, "nDCG@10")
    assert value == pytest.approx(figure.after, abs=0.02)
    assert tokenizer_of(out) == tokenizer_of(find_model(MINILM).path)
    # LoRA is merged: names and shapes are the base's, and what was not adapted is as it was.
    old = load_file(find_model(MINILM).path / "model.safetensors")
    new = load_file(out / "model.safetensors")
    assert set(new) == set(old) - {"embeddings.position_ids"}
    assert {name for name in new if not torch.equal(old[name], new[name])} == {
        f"encoder.layer.5.attention.self.{part}.weight" for part in ("query", "key", "value")
    }
    assert {one.suffix for one in out.rglob("*") if one.is_file()} <= {".json", ".jsonl", ".safetensors", ".md", ".txt"}


@pytest.mark.parametrize(
    ("lora", "message"),
    [(Lora(modules=("q_proj",)), "no linear layer q_proj. It has"), (Lora(last_layers=7), "2 layers, not 7")],
)
def test_what_can_not_be_adapted_is_said(tmp_path, base, lora, message):
    with pytest.raises(UsageError, match=message):
        train(tmp_path / "out", options(base=str(base), lora=lora))


def test_negatives_are_mined_judged_or_drawn(tmp_path):
    assert all(row.negatives == () for row in embedder.embedder_rows(options(hard=2), DATA))
    triplets = embedder.embedder_rows(options(loss="triplet", hard=2), DATA)
    assert len(triplets) == 2 * len(embedder.embedder_rows(options(), DATA))
    assert all(len(row.negatives) == 1 for row in triplets)
    claim = DATA.train[0]
    other = next(id_ for id_ in DATA.visible if id_ not in DATA.relevant(claim))
    row = {"claim_id": claim.id, "negatives": [{"id": other, "score": 1.0}]}
    mined = jsonl(tmp_path / "mined.jsonl", row)
    rows = embedder.embedder_rows(options(hard=2, negatives=mined), DATA)
    assert next(row for row in rows if row.claim == claim).negatives[0] == other
    assert all(len(set(row.negatives)) == 2 and DATA.hidden.isdisjoint(row.negatives) for row in rows)
