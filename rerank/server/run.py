"""Before the server starts: its extra, and the name of its model."""

from __future__ import annotations

from pathlib import Path

from ...core.errors import UsageError, require


def require_server() -> None:
    """Raises MissingExtra without FastAPI and uvicorn."""
    require("the reranking server", "server", "fastapi", "uvicorn", "prometheus_client")


def named_model(given: str) -> tuple[str, str]:
    """What requests call a model, and its place: `NAME`, `FOLDER` (called by its last part), or `ALIAS=` one of them.

    Raises UsageError for an alias of nothing.
    """
    alias, equals, rest = given.partition("=")
    if not equals or Path(given).expanduser().exists() or "/" in alias:
        alias, rest = "", given
    if not rest:
        raise UsageError(f"--model {given}: the name of the model is missing; write --model ALIAS=NAME")
    folder = Path(rest).expanduser()
    return alias or (folder.resolve().name if folder.exists() else rest), rest
