"""One connection of the client, which reads answers within a limit."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elastic_transport import Urllib3HttpNode
from urllib3 import HTTPHeaderDict, Timeout
from urllib3.exceptions import ReadTimeoutError

from ...core.errors import ServerError
from ...core.http import Counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from elastic_transport import NodeConfig
    from urllib3 import BaseHTTPResponse

CONNECT_SECONDS = 5.0
"""The longest time for a connection and its TLS handshake: a server of plain http can wait for ever for that to end."""
MOST_BYTES = 512 << 20
"""Decoded bytes of an answer: a thousand documents of half a megabyte each. An error has far fewer, see `Counted`."""
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class _Answer:
    """The parts of an answer that the client reads."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class LimitedNode(Urllib3HttpNode):
    """The client's own connection, which otherwise takes as much memory as the server's answer decodes to.

    It decodes block by block and ends the connection at the limit: `TooLarge` is then the cause of the client's error.
    """

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config)
        urlopen, server = self.pool.urlopen, f"{config.scheme}://{config.host}:{config.port}"

        def limited(method: str, target: str, **options: Any) -> _Answer:
            seconds = options.pop("timeout", None)
            seconds = float(seconds) if isinstance(seconds, int | float) else float(config.request_timeout or 60)
            options["timeout"] = Timeout(connect=min(seconds, CONNECT_SECONDS), read=seconds)
            started = time.monotonic()
            try:
                response = urlopen(method, target, preload_content=False, **options)
            except ReadTimeoutError as error:
                if config.scheme == "https" and time.monotonic() - started < seconds:
                    raise ServerError(
                        f"no secure connection to {server}: it did not answer the TLS handshake within "
                        f"{CONNECT_SECONDS:g} s. Does its URL start with http://?"
                    ) from error
                raise
            try:
                counted, blocks = Counted(server, response.status, MOST_BYTES), []
                for block in response.stream(_BLOCK, decode_content=True):
                    counted.add(len(block))
                    blocks.append(block)
            except BaseException:
                response.close()
                raise
            response.release_conn()
            return _Answer(response.status, _headers(response, data := b"".join(blocks)), data)

        self.pool.urlopen = limited  # type: ignore[assignment]


def _headers(response: BaseHTTPResponse, data: bytes) -> Mapping[str, str]:
    """The headers of an answer. A proxy's error page may claim to be JSON, or claim nothing: the client could not read
    it, and its status, which says whether to ask again, would be lost."""
    if response.status < 400:
        return response.headers
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        headers = HTTPHeaderDict(response.headers)
        headers["content-type"] = "text/plain"
        return headers
    return response.headers
