"""A network between processes of this machine that can be cut: small TCP proxies, one in front of each port.

A cut loses no byte and closes no connection, as where packets are dropped and sent again later: whoever is on one side
hears nothing of the other until it heals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType


class Partition:
    """Proxies in a thread of their own. Linux only: it looks up whose a connection is in /proc."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open = asyncio.Event()
        self._open.set()
        self._cut: int | None = None
        self._servers: list[asyncio.Server] = []
        self._own: dict[int, int] = {}
        """By the port behind a proxy, the process that listens there."""

    def in_front_of(self, port: int) -> int:
        """The port of a new proxy."""
        return asyncio.run_coroutine_threadsafe(self._listen(port), self._loop).result()

    def belong(self, ports: Sequence[int], processes: Sequence[int]) -> None:
        """Says which process listens on which port."""
        self._own |= dict(zip(ports, processes, strict=True))

    @contextlib.contextmanager
    def around(self, process: int) -> Iterator[None]:
        """Cuts a process off from all others."""
        self._loop.call_soon_threadsafe(self._set, process)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._set, None)

    def _set(self, process: int | None) -> None:
        self._cut = process
        self._open.set() if process is None else self._open.clear()

    async def _listen(self, port: int) -> int:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._join(reader, writer, port)
            writer.close()

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        ends = {self._own.get(port), self._owner(writer.get_extra_info("peername")[1])}
        await self._passage(ends)
        beyond_reader, beyond_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            self._pump(reader, beyond_writer, ends), self._pump(beyond_reader, writer, ends), return_exceptions=True
        )

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ends: set[int | None]) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._passage(ends)
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def _passage(self, ends: set[int | None]) -> None:
        """Waits while one of the ends is cut off."""
        while self._cut in ends and self._cut is not None:
            await self._open.wait()

    def _owner(self, port: int) -> int | None:
        """The process behind a proxy that connects from this port."""
        for table in ("tcp", "tcp6"):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[1].endswith(f":{port:04X}"):
                    link = f"socket:[{columns[9]}]"
                    return next((one for one in self._own.values() if link in sockets(one)), None)
        return None

    def __enter__(self) -> Partition:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def sockets(process: int) -> set[str]:
    """The open files of a process, as /proc names them."""
    folder, found = Path("/proc", str(process), "fd"), set()
    with contextlib.suppress(OSError):
        for one in folder.iterdir():
            with contextlib.suppress(OSError):
                found.add(os.readlink(one))  # noqa: PTH115 - a link to no file
    return found
