"""Late interaction by hand, with the packaged model, static and in context."""

import math

import numpy as np
import pytest
from cli_runs import ccheck
from runtimes import Kept, on_cpu

from ccheck.core.errors import NotFound, UsageError
from ccheck.core.models import find_model
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import LateStage
from ccheck.encode.bert_folder import read_bert_folder
from ccheck.encode.numpy_bert import load_bert, unit_length
from ccheck.rerank.late import LateReranker, load_late_encoder, maxsim, rarity
from ccheck.rerank.open import open_reranker

MODEL = "all-MiniLM-L6-v2"
PACKAGED = "ccheck/bge-small-en-v1.5-int8"
CLAIM = "Global sea level rose 20 cm"
PASSAGES = [
    "Sea level. Tide gauges show that the global mean sea level has risen by about 20 centimetres since 1900.",
    "Cats sleep for most of the day, and hunt at night.",
    "Coral reefs are bleached when the sea is too warm for some weeks.",
]


@pytest.fixture(scope="module")
def late() -> LateReranker:
    return LateReranker(load_late_encoder(PACKAGED, on_cpu()), PACKAGED)


@pytest.fixture(scope="module")
def in_context() -> LateReranker:
    return LateReranker(load_late_encoder(MODEL, on_cpu(), documents="contextual"), MODEL)


@pytest.mark.parametrize("window", [1, 2, 5, 48, 100])
def test_stretches_leave_no_token_out(window):
    rng = np.random.default_rng(window)
    claim, passages = rng.normal(size=(4, 8)), [rng.normal(size=(length, 8)) for length in (1, 0, 4, 5, 48, 49, 73)]
    weights = [1.0, 2.0, 1.0, 0.5]

    def by_hand(passage):
        starts = range(0, len(passage), max(1, window // 2))
        best = [[float((passage[at : at + window] @ token).max()) for token in claim] for at in starts]
        return max((float(np.dot(weights, one)) / 4.5 for one in best), default=0.0)

    assert maxsim(claim, passages, weights, window) == pytest.approx(list(map(by_hand, passages)), abs=1e-5)
    assert maxsim(claim[:0], passages, weights, window) == [0.0] * len(passages)


def test_rare_tokens_count_more_by_hand():
    passages = [{1, 2}, {1}, {1, 3}]
    weights = rarity([1, 2, 9, 3], passages, special={3})
    assert weights == pytest.approx([1 + math.log(4 / 3.5), 1 + math.log(4 / 1.5), 1 + math.log(4 / 0.5), 1.0])


def test_token_embeddings_are_the_models_own(in_context):
    """Against transformers alone: the last layer's states without [CLS] and [SEP]."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModel, AutoTokenizer

    path = find_model(MODEL).path
    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path).eval()

    def states(text):
        with torch.no_grad():
            found = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 1:-1]
        return torch.nn.functional.normalize(found, dim=-1)

    whole = LateReranker(in_context._encoder, "whole", window=0, idf=False)
    claim = states(CLAIM)
    by_hand = [float((claim @ states(text).T).max(1).values.mean()) for text in PASSAGES]
    assert whole(CLAIM, PASSAGES).values == pytest.approx(by_hand, abs=1e-3)  # documents are kept in float16


def test_a_documents_tokens_are_those_of_the_table(late):
    """By hand: another model reads each token of the document alone. The table keeps 96 directions and is in int8."""
    other = load_bert(read_bert_folder(find_model(MODEL).path))
    ((first, last),) = other.read([""])

    def products(vectors):
        return vectors @ vectors.T / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vectors, axis=1)[:, None]

    (ids,) = other.token_ids(PASSAGES[:1])
    alone = np.array(other.each([(first, token, last) for token in ids], lambda states: states[1]))
    assert np.abs(products(late._encoder.documents(PASSAGES[:1])[0].vectors) - products(alone)).mean() < 0.1


def test_a_claims_tokens_are_near_to_what_the_other_model_makes_of_them(late):
    """The table's directions are not kept, but the cosines between two tokens of a claim are much the same."""
    claim = "Vitamin D prevents colds in adults who smoke, and coffee lowers the risk of liver cancer in women over 60"
    (states,) = load_bert(read_bert_folder(find_model(MODEL).path)).encode_tokens([claim])
    read, apart = late._encoder.query(claim), ~np.eye(len(states), dtype=bool)
    assert read.ids == late._encoder.documents([claim])[0].ids
    cosines = (unit @ unit.T for unit in map(unit_length, (states, read.vectors.copy())))
    assert np.corrcoef([one[apart] for one in cosines])[0, 1] > 0.87  # .89; .59 by the tokens alone
    # What the embedding model made of the claim when it encoded it is not made again.
    embedder = load_bert(read_bert_folder(find_model(PACKAGED).path))
    embedder.encode_claims(["Corals are bleached", CLAIM])
    kept = embedder.claim_states(CLAIM)
    assert np.shares_memory(kept, embedder.claim_states(CLAIM))
    assert kept[:, 384:] == pytest.approx(embedder.encode_tokens([CLAIM])[0], abs=1e-5)


@pytest.mark.parametrize("documents", ["late", "in_context"])
def test_what_bears_on_the_claim_comes_first(documents, request):
    late = request.getfixturevalue(documents)
    scores = late(CLAIM, PASSAGES)
    assert np.argmax(scores.values) == 0 and not scores.logits and not any(scores.cut)
    assert all(0 <= value <= 1 for value in scores.values)
    assert late(CLAIM, PASSAGES[::-1]).values == pytest.approx(scores.values[::-1], abs=1e-6)  # and from what is kept
    assert late(CLAIM, []).values == ()
    assert late(CLAIM, ["", PASSAGES[0]]).values[0] == 0.0
    assert late("", PASSAGES).values == (0.0, 0.0, 0.0)


def test_long_documents_are_cut_and_said_to_be():
    short = LateReranker(load_late_encoder(MODEL, on_cpu(), documents="contextual", max_tokens=32), "short")
    # In context two special tokens count.
    assert short(CLAIM, [" ".join(["word"] * 31), " ".join(["word"] * 30)]).cut == (True, False)
    with pytest.raises(UsageError, match="512 tokens at most"):
        load_late_encoder(MODEL, on_cpu(), documents="contextual", max_tokens=513)
    static = LateReranker(load_late_encoder(PACKAGED, on_cpu(), max_tokens=32), "static")
    long = " ".join(["word"] * 5000)
    assert static(CLAIM, [f"{long} {CLAIM}", " ".join(["word"] * 32)]).cut == (True, False)
    whole = LateReranker(load_late_encoder(PACKAGED, on_cpu()), "whole")(CLAIM, [f"{long} {CLAIM}", long])
    assert whole.cut == (False, False) and whole.values[0] > whole.values[1] + 0.2


def test_what_is_no_such_model_is_an_error(tmp_path):
    with pytest.raises(NotFound):
        load_late_encoder(str(tmp_path / "nothing"), on_cpu())
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NotFound, match="safetensors"):
        load_late_encoder(str(tmp_path), on_cpu())
    (tmp_path / "model.safetensors").write_bytes(b"")
    for documents in ("static", "contextual"):
        with pytest.raises(UsageError, match="not a BERT-type"):
            load_late_encoder(str(tmp_path), on_cpu(), documents=documents)


def test_a_model_without_a_table_is_an_optional_part_that_is_missing(embedded, tmp_path):
    """So the recipe's reranker, which is not required, is left out, with a warning."""
    with pytest.raises(NotFound, match=r'no table of the tokens .*documents = "contextual"'):
        load_late_encoder(MODEL, on_cpu())
    recipe = tmp_path / "other.toml"
    recipe.write_text(f'name = "other"\nextends = "default"\n[rerankers.late]\nmodel = "{MODEL}"\n')
    ran = ccheck("query", CLAIM, "--store", embedded, "--recipe", recipe, "--verdict", "none", "--json")
    assert ran.code == 0 and "not reranked: ccheck has no table" in ran.objects[0]["warnings"][-1], ran.err


def test_a_memory_keeps_scores_by_all_that_they_depend_on():
    reranker = open_reranker(LateStage(), Runtime(Settings(), memory=Kept()))
    three, two = reranker(CLAIM, PASSAGES).values, reranker(CLAIM, PASSAGES[:2]).values
    assert three[:2] != two  # rarity is among the passages
    reranker._reranker = None  # from now on the memory alone can answer
    assert reranker(CLAIM, PASSAGES).values == three and reranker(CLAIM, PASSAGES[:2]).values == two


def test_from_the_command_line(embedded, minilm):
    asked = ("query", "sea level has risen 20 cm since 1900", "--store", embedded, "--verdict", "none", "--json")
    ways = ((), ("--rerank", "late"), ("--recipe", "late"))
    by_default, by_flag, by_recipe = (ccheck(*asked, *way).objects[0]["evidence"] for way in ways)
    assert [piece["doc_id"] for piece in by_default] == [piece["doc_id"] for piece in by_flag]
    assert {"bm25", "dense", "rrf", "late"} <= by_recipe[0]["scores"].keys() and "rrf" in by_recipe[0]["ranks"]
    scores = [piece["score"] for piece in by_recipe]
    assert scores == sorted(scores, reverse=True) and 0 < scores[0] <= 1
    few = ccheck(*asked, "--rerank", "late", "--rerank-depth", 3).objects[0]["evidence"]
    assert sum("late" in piece["scores"] for piece in few) == 3
