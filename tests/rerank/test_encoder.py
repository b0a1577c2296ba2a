"""Encoders that score pairs: the same scores as a plain forward pass, FlagReranker's and CrossEncoder's."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from reranker_pairs import HOSTILE, PASSAGES, QUERIES, flag_embedding, score, unchanged_by_others
from tiny_rerankers import TEXTS, load_scorer, make_encoder, pairs_from_ids

from ccheck.rerank.tokens import longest_first

pytest.importorskip("sentence_transformers", reason="the models extra is not installed")

PACKED = ("xlm-roberta", "roberta", "bert", "electra")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("encoders")
    made = {name: make_encoder(root / name, architecture=name) for name in (*PACKED, "deberta-v2", "modernbert")}
    made["electra"] = make_encoder(root / "projected", architecture="electra", embedding_size=32)
    return made


def plain_scores(folder: Path, query: str, passages: list[str], length: int) -> list[float]:
    """One forward pass of transformers for each passage; the query is cut to 3/4 of the length, then the passage.

    The ids are FlagReranker's: `<s>` query `</s></s>` passage `</s>`.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    first = tokenizer(query, add_special_tokens=False)["input_ids"][: length * 3 // 4]
    values = []
    for passage in passages:
        text = passage.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        second = tokenizer(text, add_special_tokens=False)["input_ids"][: length - len(first) - 4]
        ids = [0, *first, 2, 2, *second, 2]
        with torch.no_grad():
            values.append(model(torch.tensor([ids])).logits[0, 0].item())
    return values


@pytest.mark.parametrize("length", [32, 512])
@pytest.mark.parametrize("query", QUERIES)
def test_scores_are_those_of_a_plain_forward_pass(folders: dict[str, Path], query: str, length: int) -> None:
    scorer = load_scorer(str(folders["xlm-roberta"]), device="cpu", max_tokens=length, batch_tokens=700)
    passages = [passage for passage in PASSAGES if "<pad>" not in passage]  # core/test_special_tokens.py has those
    values = score(scorer, QUERIES[query], passages)
    expected = plain_scores(folders["xlm-roberta"], QUERIES[query], passages, length)
    assert values == pytest.approx(expected, abs=1e-4)
    assert len(set(values)) > 10


@pytest.mark.parametrize("length", [64, 512])
@pytest.mark.parametrize("query", ["short", "long"])
def test_scores_are_flag_embeddings(folders: dict[str, Path], query: str, length: int) -> None:
    flag = flag_embedding()
    folder = str(folders["xlm-roberta"])
    unknown = ["kr☃ppel-like", "☃", "mouse☃rat sea"]
    passages = [*TEXTS, TEXTS[0], "sea " * 700, ". ".join(TEXTS) * 5, "tea\nwith  milk", "", *unknown]
    reference = flag.FlagReranker(folder, devices=["cpu"])
    pairs_from_ids(reference.tokenizer)
    expected = reference.compute_score([[QUERIES[query], passage] for passage in passages], max_length=length)
    scorer = load_scorer(folder, device="cpu", max_tokens=length)
    assert score(scorer, QUERIES[query], passages) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", [*PACKED, "deberta-v2", "modernbert"])
def test_scores_are_cross_encoders(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Also where it cuts a pair, the longer half first, and after it saved the model."""
    import torch
    from sentence_transformers import CrossEncoder

    # The tokenizers refuse the one, and read a special token in the other.
    passages = [passage for passage in PASSAGES if "\ud800" not in passage and "<pad>" not in passage]
    cross = CrossEncoder(str(folders[name]), max_length=64, device="cpu")
    cross.save_pretrained(str(tmp_path / "saved"))
    scorer = load_scorer(str(tmp_path / "saved"), device="cpu", max_tokens=64)
    for query in ("short", "long"):
        pairs = [(QUERIES[query], passage) for passage in passages]
        expected = cross.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
        assert score(scorer, QUERIES[query], passages) == pytest.approx(expected.tolist(), abs=1e-4)


def test_pairs_are_cut_as_the_tokenizers_library_cuts_them(folders: dict[str, Path]) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folders["bert"])
    chance = random.Random(1)
    for _ in range(200):
        first, second, length = chance.randint(1, 40), chance.randint(1, 40), chance.randint(6, 60)
        types = tokenizer("sea " * first, "sea " * second, truncation=True, max_length=length)["token_type_ids"]
        assert longest_first(first, second, length - 3) == (types.count(0) - 2, types.count(1) - 1)


@pytest.mark.parametrize("name", ["xlm-roberta", "bert", "deberta-v2"])
def test_what_is_scored_beside_it_changes_no_score(folders: dict[str, Path], name: str) -> None:
    scorer = load_scorer(str(folders[name]), device="cpu", batch_tokens=300)
    unchanged_by_others(scorer, ("sea level", "statins", ""), [*TEXTS, *HOSTILE])
    assert scorer.score(scorer.encode("sea", [])) == []


def test_many_threads_tokenise_at_a_time(folders: dict[str, Path]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    scorer = load_scorer(str(folders["bert"]), device="cpu")
    expected = scorer.encode("sea level", PASSAGES)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: scorer.encode("sea level", PASSAGES), range(40)))
    assert all(one == expected for one in found)
