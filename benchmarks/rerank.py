"""Local rerankers against FlagEmbedding and sentence-transformers: CPU time, memory, differences, and the limit.

    python benchmarks/rerank.py [FOLDER] [--quick] [--json] [--size small|medium|2b ...] [--device cpu|cuda]

FOLDER contains SciFact's corpus.jsonl.gz (default: scifact in $CCHECK_SHARED_DATA). Without it, the script
makes up abstracts.
The models have random weights and their true architectures: XLM-RoBERTa with 6 layers, and Gemma with 8 layers and a
vocabulary that gives the head the same share of the work as in Gemma-2B (a fifth). --size 2b is the full size of
Gemma-2B and bge-reranker-v2-m3. The default sizes are small and medium. max_length is 512.

Each side has its own process and one thread. A run of ccheck follows each run of a reference, and a ratio compares
their CPU times. A reference runs with its default batch (128; CrossEncoder 32) and with 1, 2, 4, 8, 16 and 32. The
fastest is its best batch; for 600 passages the script uses the best batch of 100, or 4 if 100 was not asked for.
Figures are medians over the turns, with the smallest and the largest in brackets. FlagEmbedding runs its first batch
twice to find out whether it fits. With its default batch, that doubles its time for up to 128 passages.

The limit is the most that arithmetic allows over the reference's best batch: the multiplications of the shapes that it
ran, including padding and the first batch, over those that the exact scores need. These process what passages share
once, each token once and without padding, in the last layer only keys, values and the one position that scores, and one
row of the head. ccheck can exceed the limit if its multiplications cost less than the reference's.

--json: for each kind (decoder, encoder) and size, `model`, and for each number of passages `cpu_ratio` (default batch),
`cpu_ratio_best`, `best_batch`, `limit`, `share` (`cpu_ratio_best` as a share of the limit), `max_difference`,
`memory_ratio` and `memory_ratio_best` (ccheck's peak extra memory over the reference's), `mib`, `cpu_seconds`, and
`CrossEncoder_...` for the encoders' second reference. `..._spread` are the smallest and the largest.
--quick: 20 passages (unless --count is given). The search for the best batch stops once a larger one is slower, and
larger sizes take the batch that was best for the smaller one, in one turn.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import click
import data
from processes import processes, received

from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import ModelStage

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

COUNTS = (20, 100, 600)
TURNS = {20: 3, 100: 2, 600: 1}
DECODERS = {
    "small": {"hidden_size": 256, "intermediate_size": 2048, "head_dim": 32, "vocab_size": 14_300},
    "medium": {"hidden_size": 512, "intermediate_size": 4096, "head_dim": 64, "vocab_size": 28_600},
    "2b": {"hidden_size": 2048, "intermediate_size": 16_384, "head_dim": 256, "vocab_size": 256_000},
}
ENCODERS = {
    "small": {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 12, "num_hidden_layers": 6},
    "medium": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 6},
    "2b": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24},
}
SIDES = {"decoder": ("FlagLLMReranker", "ccheck"), "encoder": ("FlagReranker", "CrossEncoder", "ccheck")}
BATCHES = (1, 2, 4, 8, 16, 32)
DEFAULT = {"FlagLLMReranker": 128, "FlagReranker": 128, "CrossEncoder": 32}


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--quick", is_flag=True, help="20 passages, and a shorter search for the best batch")
@click.option("--json", "as_json", is_flag=True, help="one JSON object on standard output")
@click.option("--size", "sizes", type=click.Choice(list(DECODERS)), multiple=True, default=["small", "medium"])
@click.option("--kind", "kinds", type=click.Choice(list(SIDES)), multiple=True, default=list(SIDES))
@click.option("--count", "counts", type=click.Choice([str(count) for count in COUNTS]), multiple=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--device", default="cpu", show_default=True, help="cuda: both sides in bfloat16")
def main(
    folder: Path | None,
    quick: bool,
    as_json: bool,
    sizes: tuple[str, ...],
    kinds: tuple[str, ...],
    counts: tuple[str, ...],
    threads: int,
    device: str,
) -> None:
    query, passages = texts(folder)
    answer: dict[str, Any] = {kind: {} for kind in kinds}
    chosen = tuple(map(int, counts)) or (COUNTS[:1] if quick else COUNTS)
    best: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for size in sizes:
            for kind in kinds:
                model = make(kind, size, Path(scratch) / f"{kind}-{size}", passages)
                answer[kind][size] = compare(kind, size, model, query, passages, chosen, threads, device, quick, best)
                if kind == "decoder" and device == "cpu" and size == sizes[0]:
                    answer["decoder_bfloat16"] = bfloat16(model, query, passages[: min(100, max(chosen))], threads)
    if as_json:
        click.echo(json.dumps(answer))


def compare(
    kind: str,
    size: str,
    model: Path,
    query: str,
    passages: list[str],
    counts: tuple[int, ...],
    threads: int,
    device: str,
    quick: bool,
    best: dict[str, int],
) -> dict[str, Any]:
    """The figures of a size by number of passages. `best`: each reference's best batch so far, which it changes."""
    config = json.loads((model / "config.json").read_text())
    answer: dict[str, Any] = {"model": f"{model_size(config)}, random weights"}
    with sides(SIDES[kind], model, threads, device) as ask:
        for side in SIDES[kind]:
            ask[side](query, passages[:4], 0)  # warm up
        say(f"{kind}, {size}: {answer['model']}, {threads} threads, {device}")
        of_smaller = dict(best) if quick else {}
        for count in counts:
            answer[str(count)] = row = {}
            for reference in SIDES[kind][:-1]:
                known = best.get(reference, BATCHES[0]) if count == COUNTS[-1] else of_smaller.get(reference)
                pairs = measured(ask, reference, query, passages[:count], known, quick)
                best[reference], found = summary(kind, config, reference, pairs)
                row |= found if reference == SIDES[kind][0] else {f"{reference}_{k}": v for k, v in found.items()}
                say(f"  {count} passages over {reference}: {told(found, DEFAULT[reference])}")
    return answer


Pairs: TypeAlias = dict[int, list[tuple[dict[str, Any], dict[str, Any]]]]
"""By batch, what was measured of the reference and of ccheck behind it."""


def measured(
    ask: dict[str, Callable[..., Any]],
    reference: str,
    query: str,
    passages: list[str],
    known: int | None,
    quick: bool,
) -> Pairs:
    """The reference with its batches and, turn by turn, with its default and its best.

    A batch that holds all passages equals the default.
    """
    pairs: Pairs = {}
    default = DEFAULT[reference]

    def run(batch: int) -> float:
        pairs.setdefault(batch, []).append((ask[reference](query, passages, batch), ask["ccheck"](query, passages, 0)))
        return median(pairs, batch)

    before = float("inf")
    for batch in (known,) if known else BATCHES:
        if batch >= len(passages) or batch == default:
            break
        spent = run(batch)
        if quick and spent > before:
            break
        before = spent
    run(default)
    best = min(pairs, key=lambda batch: median(pairs, batch))
    for _ in range(0 if quick and known else min(2 if quick else 3, TURNS[len(passages)]) - 1):
        for batch in {best} if quick else {best, default}:
            run(batch)
    return pairs


def median(pairs: Pairs, batch: int) -> float:
    return statistics.median(theirs["cpu"] for theirs, _ in pairs[batch])


def summary(kind: str, config: dict[str, Any], reference: str, pairs: Pairs) -> tuple[int, dict[str, Any]]:
    """The best batch, and the figures reported for a reference."""
    best = min(pairs, key=lambda batch: median(pairs, batch))
    found: dict[str, Any] = {"best_batch": best}

    def over(name: str, batch: int, measure: Callable[[dict[str, Any], dict[str, Any]], float]) -> None:
        values = [measure(theirs, ours) for theirs, ours in pairs[batch]]
        found[name], found[f"{name}_spread"] = statistics.median(values), [min(values), max(values)]

    for end, batch in (("", DEFAULT[reference]), ("_best", best)):
        over(f"cpu_ratio{end}", batch, lambda theirs, ours: theirs["cpu"] / ours["cpu"])
        over(f"memory_ratio{end}", batch, lambda theirs, ours: ours["memory"] / theirs["memory"])
        over(f"reference_mib{end}", batch, lambda theirs, ours: theirs["memory"])
    for name in ("memory", "cpu"):
        over({"memory": "mib", "cpu": "cpu_seconds"}[name], best, lambda theirs, ours, name=name: ours[name])
    found["cpu_seconds_by_batch"] = {str(batch): median(pairs, batch) for batch in sorted(pairs)}
    found["max_difference"] = max(
        abs(a - b)
        for runs in pairs.values()
        for theirs, ours in runs
        for a, b in zip(theirs["scores"], ours["scores"], strict=True)
    )
    theirs, ours = pairs[best][0]
    found["limit"] = computed(kind, config, theirs["shapes"]) / needed(kind, config, ours["laid"])
    found["share"] = found["cpu_ratio_best"] / found["limit"]
    return best, found


def told(found: dict[str, Any], default: int) -> str:
    def spread(name: str, digits: int) -> str:
        low, high = found[f"{name}_spread"]
        return f"{found[name]:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

    return (
        f"CPU time {spread('cpu_ratio', 2)} with its batch of {default}, {spread('cpu_ratio_best', 2)} with its best, "
        f"{found['best_batch']} (limit {found['limit']:.2f}, of which {found['share']:.0%}); memory "
        f"{found['mib']:.0f} of {found['reference_mib']:.0f} and {found['reference_mib_best']:.0f} MiB, largest "
        f"difference {found['max_difference']:.1e}"
    )


def widths(kind: str, config: dict[str, Any]) -> tuple[int, int, int, int]:
    """Multiplications of a layer for each id, without attention: of keys and values, of the rest; those of attention
    for each pair of ids; and the head's for each id that it reads."""
    size, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    if kind == "encoder":
        return 2 * size * size, 2 * size * size + 2 * size * inner, 2 * size, size * size + size
    width = heads * config["head_dim"]
    keys = 2 * config["num_key_value_heads"] * config["head_dim"] * size
    return keys, 2 * width * size + 3 * size * inner, 2 * width, size


def computed(kind: str, config: dict[str, Any], shapes: list[tuple[int, int]]) -> float:
    """The multiplications that a reference ran, of batches of so many rows and columns."""
    keys, rest, pair, head = widths(kind, config)
    layers, total = config["num_hidden_layers"], 0.0
    for count, length in shapes:
        total += layers * count * length * (keys + rest + pair * length)
        total += count * length * head * config["vocab_size"] if kind == "decoder" else count * head
    return total


def needed(kind: str, config: dict[str, Any], laid: dict[str, Any]) -> float:
    """The multiplications that the scores need at least; `laid`: the lengths of what is shared, and of each
    sequence that and its own."""
    keys, rest, pair, head = widths(kind, config)
    layers = config["num_hidden_layers"]
    ids = sum(laid["shared"]) + sum(own for _, own in laid["sequences"])
    whole = sum(shared + own for shared, own in laid["sequences"])
    if kind == "encoder":
        pairs = float(sum(own * own for _, own in laid["sequences"]))
    else:
        pairs = sum(length * (length + 1) / 2 for length in laid["shared"])
        pairs += sum(own * shared + own * (own + 1) / 2 for shared, own in laid["sequences"])
    count = len(laid["sequences"])
    return (layers - 1) * (ids * (keys + rest) + pairs * pair) + ids * keys + whole * pair + count * (rest + head)


def bfloat16(model: Path, query: str, passages: list[str], threads: int) -> dict[str, Any]:
    """How bfloat16 on the CPU compares with float32: the order and the time."""
    turns = []
    with sides(("ccheck", "bfloat16"), model, threads, "cpu") as ask:
        for turn in range(3):
            found = {side: ask[side](query, passages, 0) for side in ("ccheck", "bfloat16")}
            turns += [found] if turn else []
    tau = kendall(turns[0]["ccheck"]["scores"], turns[0]["bfloat16"]["scores"])
    ratio = statistics.median(turn["ccheck"]["cpu"] / turn["bfloat16"]["cpu"] for turn in turns)
    say(f"decoder in bfloat16, {len(passages)} passages: Kendall's tau {tau:.4f} to float32, CPU time 1/{ratio:.2f}")
    return {"passages": len(passages), "kendall_tau": tau, "cpu_ratio_over_float32": ratio}


def kendall(a: list[float], b: list[float]) -> float:
    """Kendall's tau-a."""
    pairs = [(i, j) for i in range(len(a)) for j in range(i)]
    return sum((1 if (a[i] - a[j]) * (b[i] - b[j]) > 0 else -1) for i, j in pairs) / len(pairs)


def sides(
    names: tuple[str, ...], model: Path, threads: int, device: str
) -> AbstractContextManager[dict[str, Callable[..., Any]]]:
    """A process for each side. The functions ask it to score and return its measurements."""
    # Each process is forked from one that has imported everything: the imports take longer than some of the runs.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ccheck.rerank.load", "FlagEmbedding", "sentence_transformers"])
    return processes(context, names, serve, model, threads, device)


def serve(name: str, model: Path, threads: int, device: str, pipe: Any) -> None:
    """Score what comes through the pipe until it is closed."""
    import torch

    torch.set_num_threads(threads)
    shapes: list[tuple[int, int]] = []
    score = scorer(name, model, device, shapes)
    for query, passages, batch in received(pipe):
        shapes.clear()
        with peak_memory(device) as peak:
            cpu, wall = time.process_time(), time.perf_counter()
            values, laid = score(query, passages, batch)
            spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        pipe.send({**spent, "scores": values, "laid": laid, "memory": peak[0], "shapes": list(shapes)})


def scorer(
    name: str, model: Path, device: str, shapes: list[tuple[int, int]]
) -> Callable[[str, list[str], int], tuple[list[float], dict[str, Any]]]:
    """How a side scores, with a batch if it has batches; `shapes` gets those of a reference's forward passes."""
    half = device != "cpu"
    if name in ("ccheck", "bfloat16"):
        from ccheck.rerank.load import load_scorer
        from ccheck.rerank.packing import rows

        ours = load_scorer(
            str(model),
            Runtime(Settings(device=device)),
            ModelStage(dtype="bfloat16" if half or name == "bfloat16" else "float32"),
        )
        causal = type(ours.forward).__name__ == "PackedDecoder"

        def score(query: str, passages: list[str], batch: int) -> tuple[list[float], dict[str, Any]]:
            encoded = ours.encode(query, passages)
            values = ours.score(encoded)
            sequences = [one.ids for one in encoded]
            prefixes = [one.prefix if causal else 0 for one in encoded]
            (row,) = rows(sequences, prefixes, 1 << 40)
            spans = [(span.shared_end - span.shared_start, span.end - span.start) for span in row.spans]
            return values, {"shared": [span.end - span.start for span in row.shared], "sequences": spans}

        return score

    def watch(module: Any) -> None:
        forward = module.forward

        def seen(*args: Any, **kwargs: Any) -> Any:
            shapes.append(tuple(kwargs["input_ids"].shape))
            return forward(*args, **kwargs)

        module.forward = seen

    if name == "CrossEncoder":
        import torch
        from sentence_transformers import CrossEncoder

        cross = CrossEncoder(str(model), max_length=512, device=device)
        if half:
            cross.bfloat16()
        watch(next(part for part in cross.modules() if type(part).__name__.endswith("ForSequenceClassification")))

        def predict(query: str, passages: list[str], batch: int) -> tuple[list[float], dict[str, Any]]:
            given = [(query, passage) for passage in passages]
            values = cross.predict(
                given, batch_size=batch or 32, activation_fn=torch.nn.Identity(), show_progress_bar=False
            )
            return [float(value) for value in values], {}

        return predict
    import FlagEmbedding

    options = {"use_bf16": True} if half and name == "FlagLLMReranker" else {"use_fp16": half}
    theirs = getattr(FlagEmbedding, name)(str(model), devices=[device], **options)
    watch(theirs.model)

    def compute(query: str, passages: list[str], batch: int) -> tuple[list[float], dict[str, Any]]:
        given = [[query, passage] for passage in passages]
        return theirs.compute_score(given, max_length=512, batch_size=batch or DEFAULT[name]), {}

    return compute


@contextmanager
def peak_memory(device: str) -> Iterator[list[float]]:
    """The most memory beyond what there was before, in MiB: resident, sampled every 2 ms; on a GPU, what torch took."""
    import psutil

    peak = [0.0]
    if device != "cpu":
        import torch

        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield peak
        torch.cuda.synchronize()
        peak[0] = (torch.cuda.max_memory_allocated() - before) / 2**20
        return
    # What earlier runs freed must not count as memory that was there before.
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    process, done = psutil.Process(), threading.Event()
    start = process.memory_info().rss

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], (process.memory_info().rss - start) / 2**20)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
        peak[0] = max(peak[0], 1.0)


def make(kind: str, size: str, folder: Path, passages: list[str]) -> Path:
    from tiny_rerankers import make_decoder, make_encoder

    some = passages[:300]
    if kind == "decoder":
        sizes = DECODERS[size]
        layers = 18 if size == "2b" else 8
        return make_decoder(
            folder,
            texts=some,
            learn=13_000,
            **{**sizes, "num_hidden_layers": layers, "num_attention_heads": 8, "initializer_range": 0.02},
        )
    return make_encoder(folder, texts=some, learn=8000, initializer_range=0.02, **ENCODERS[size])


def model_size(config: dict[str, Any]) -> str:
    return (
        f"{config['architectures'][0]}, {config['num_hidden_layers']} layers of {config['hidden_size']} "
        f"({config['intermediate_size']} inside)"
    )


def texts(folder: Path | None) -> tuple[str, list[str]]:
    """A claim and 600 abstracts."""
    shared = os.environ.get("CCHECK_SHARED_DATA")
    folder = folder or (Path(shared) / "scifact" if shared else None)
    query = "0-dimensional biomaterials show inductive properties in the repair of damaged cartilage."
    if folder is None:
        say("no SciFact: abstracts are made up")
        chance = random.Random(0)
        words = ["".join(chance.choices("aeioubcdlmnprst", k=chance.randint(2, 9))) for _ in range(3000)]
        return query, [
            " ".join(chance.choices(words, k=chance.randint(100, 250))).capitalize() + "." for _ in range(max(COUNTS))
        ]
    records = itertools.islice(data.rows(folder / "corpus.jsonl.gz"), max(COUNTS))
    return query, [f"{record['title']} {record['text']}" for record in records]


def say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
