"""What every face calls (command line, REST, MCP, page): checks and their record, search, documents, corrections.

    from ccheck.service import open_service
    with open_service("local:papers") as service:
        check = service.check("Sea level has risen 20 cm since 1900.")
        check.id, check.label, service.find(check.id)

No HTTP, no HTML. All methods may be called from any thread.
"""

from typing import TYPE_CHECKING, Any

from .types import Check, Correction, Description, Event, How, Wanted

if TYPE_CHECKING:
    from .service import Service, open_service

__all__ = ["Check", "Correction", "Description", "Event", "How", "Service", "Wanted", "open_service"]


def __getattr__(name: str) -> Any:
    """The service itself loads what checks claims; its values alone don't."""
    if name in ("Service", "open_service"):
        from . import service

        return getattr(service, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
