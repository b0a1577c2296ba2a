"""`ccheck index size`: what an index of many documents will need."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..core.errors import UsageError
from . import opt
from .common import notice, print_fields, print_json, stdout
from .index_servers import INDEX_TYPES
from .opt import options


def whole_number(_: click.Context, __: click.Parameter, value: str) -> int:
    """A whole number, also written as 1e8 or 100_000_000."""
    try:
        number = float(value.replace(",", ""))
        whole = int(number)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is not a number such as 1e8") from None
    if whole < 1 or whole != number:
        raise click.BadParameter(f"{value!r} is not a whole number above 0")
    return whole


@click.command()
@options(
    click.option(
        "--documents", callback=whole_number, required=True, metavar="N", help="How many documents, such as 1e8."
    ),
    opt.number("--dims", least=0, most=4096, default=384, help="Dimensions of the vectors; 0 for none."),
    opt.decimal("--passages-per-document", least=0.1, default=1.0, help="Average number of passages per document."),
    click.option(
        "--index-type",
        type=click.Choice(INDEX_TYPES),
        default="int8_hnsw",
        show_default=True,
        metavar="TYPE",
        help=f"One of {', '.join(INDEX_TYPES)}.",
    ),
    opt.number("--replicas", least=0, most=16, default=1, help="Copies of each shard."),
    opt.number("--characters", least=1, default=1_500, help="Average number of characters per document."),
    click.option(
        "--vectors-in-source",
        is_flag=True,
        help="For Elasticsearch before 9.2, which also keeps vectors in _source.",
    ),
    click.option(
        "--cpu-rate",
        type=click.FloatRange(0, min_open=True),
        metavar="X",
        help="Passages that your CPU embeds per second.  [default: 27, MiniLM on two cores]",
    ),
    click.option(
        "--gpu-rate",
        type=click.FloatRange(0, min_open=True),
        metavar="X",
        help="Passages that your GPU embeds per second.  [default: unknown]",
    ),
    opt.json,
)
def size(
    *,
    documents: int,
    dims: int,
    passages_per_document: float,
    index_type: str,
    replicas: int,
    characters: int,
    vectors_in_source: bool,
    cpu_rate: float | None,
    gpu_rate: float | None,
    as_json: bool,
) -> None:
    """Estimate the disk, memory, shards and embedding time that an index needs.

    \b
    ccheck index size --documents 1e8 --dims 384
    ccheck index size --documents 1e8 --dims 1024 --index-type bbq_hnsw
    ccheck index size --documents 2e7 --gpu-rate 3000

    The constants were measured on indices of up to 400,000 documents (benchmarks/README.md) and extrapolated. No GPU
    was measured: measure your own and give its rate with --gpu-rate.
    """
    from ..search.elastic import sizing

    if index_type.startswith("bbq") and 0 < dims < 64:
        raise UsageError(f"{index_type} needs 64 dimensions or more, and --dims is {dims}")
    rates = {"cpu_rate": cpu_rate} if cpu_rate is not None else {}
    found = sizing.size(
        documents,
        dims,
        passages_per_document=passages_per_document,
        index_type=index_type,  # type: ignore[arg-type]  # click has checked it
        replicas=replicas,
        characters=characters,
        vectors_in_source=vectors_in_source,
        gpu_rate=gpu_rate,
        **rates,
    )
    said = sizing.advice(found, index_type)  # type: ignore[arg-type]
    if as_json:
        print_json(asdict(found) | {"index_type": index_type, "dims": dims, "replicas": replicas, "advice": said})
        return
    gpu = "not known. Measure your GPU, and give its rate with --gpu-rate"
    if found.gpu_hours is not None:
        gpu = f"{found.gpu_hours:,.1f} hours"
    print_fields(
        stdout(),
        {
            "documents": f"{found.documents:,}, passages: {found.passages:,}",
            "one copy": f"{_bytes(found.primary)}: texts {_bytes(found.text)}, vectors {_bytes(found.vectors)}",
            "all copies": _bytes(found.total),
            "disk": f"{_bytes(found.disk)}, with room to merge a shard and below the server's watermark of 85%",
            "page cache": f"{_bytes(found.page_cache)} beside the heap, so that vectors are searched in memory",
            "shards": str(found.shards),
            "embedding": "" if not found.passages else f"{found.cpu_hours:,.0f} hours on a CPU",
            "on a GPU": gpu if found.passages else "",
        },
    )
    notice(*said)


def _bytes(number: int) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number / 1e6:,.1f} MB"
