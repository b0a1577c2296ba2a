"""What every face calls (command line, REST, MCP, page): checks and their record, search, documents, corrections.

    from ccheck.service import open_service
    with open_service("local:papers") as service:
        check = service.check("Sea level has risen 20 cm since 1900.")
        check.id, check.label, service.find(check.id)

No HTTP, no HTML. All methods may be called from any thread.
"""

from .record import Wanted
from .service import Service, open_service
from .types import Check, Correction, Description, Event, How

__all__ = ["Check", "Correction", "Description", "Event", "How", "Service", "Wanted", "open_service"]
