"""Send malformed requests to `ccheck serve rerank`: which statuses does it return, and does it stay up?

    python benchmarks/hostile_requests.py [--count 1000] [--seed 0]

Starts the server with a small encoder with random weights and sends seeded mutations of valid requests to every path:
missing or unknown keys, wrong types, very long or deep values, invalid JSON, wrong lengths and media types, and
truncated heads. The exit code is 1 if a request got a 5xx, a complete request got no answer, or a valid request at the
end is not answered.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from tiny_rerankers import make_encoder

TEXTS = ["tea with milk", "the sea level", "sea level rise"]
REQUESTS: dict[str, dict[str, Any]] = {
    "/rerank": {"query": "sea", "texts": TEXTS, "raw_scores": True, "return_text": True, "truncate": False, "top_n": 2},
    "/v1/rerank": {"query": "sea", "documents": TEXTS, "top_n": 2, "return_documents": True, "model": "tiny"},
    "/v2/rerank": {"query": "sea", "documents": TEXTS, "top_n": 2, "model": "tiny"},
}
VALUES: list[Any] = [
    *(None, True, -1, 0, 1e308, 2**70, "", "\x00", "\ud800", "[SEP]" * 50, "\u202e\u0301" * 500, "x" * 100_000),
    *([], [[]], [None], [{}], ["a"] * 5_000, {}, {"a": {"b": []}}, [["sea", "tea"]], "Infinity"),
]
SECONDS = 60


@click.command()
@click.option("--count", default=1_000, show_default=True, help="Number of requests to send.")
@click.option("--seed", default=0, show_default=True, help="Random seed.")
def main(count: int, seed: int) -> None:
    chance = random.Random(seed)
    statuses: Counter[str] = Counter()
    wrong: list[str] = []
    with served() as url:
        for _ in range(count):
            path = chance.choice(list(REQUESTS))
            answer, said = sent(url, path, chance)
            statuses[answer] += 1
            if answer.startswith("5") or answer == "no answer":
                wrong.append(f"{answer}: {path} {said[:200]!r}")
        right = httpx.post(f"{url}/rerank", json=REQUESTS["/rerank"], timeout=SECONDS).status_code
    print(f"{count} requests, seed {seed}: " + ", ".join(f"{n} {status}" for status, n in sorted(statuses.items())))
    print(f"a right request afterwards: {right}", *wrong, sep="\n")
    raise SystemExit(1 if wrong or right != 200 else 0)


def sent(url: str, path: str, chance: random.Random) -> tuple[str, bytes]:
    """What answered one hostile request, and its body."""
    body = json.dumps(mutated(REQUESTS[path], chance)).encode("utf-8", "surrogatepass")
    headers = {"content-type": "application/json"}
    kind = chance.randrange(8)
    if kind == 0:  # invalid JSON
        body = bytes(byte if chance.random() > 0.05 else chance.randrange(256) for byte in body)
    elif kind == 1:
        body = body[: chance.randrange(len(body))]
    elif kind == 2:
        body = b"[" * 50_000 + body
    elif kind == 3:
        headers = {"content-type": chance.choice(["text/plain", "application/xml", "multipart/form-data", "\u00e9"])}
    elif kind == 4:
        path = chance.choice([f"{path}?raw_scores=maybe&model=%00", f"{path}/", f"{path}%2e%2e", "/../etc/passwd"])
    elif kind == 5:
        return cut_short(url, path, body, chance), body
    try:
        headers = {name: value.encode() for name, value in headers.items()}
        answer = httpx.post(f"{url}{path}", content=body, headers=headers, timeout=SECONDS)
    except httpx.HTTPError as error:
        return "no answer", f"{type(error).__name__} ".encode() + body
    return str(answer.status_code), body


def mutated(request: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The request with some keys left out, unknown, or of other values."""
    made: dict[str, Any] = {}
    for key, value in request.items():
        drawn = chance.random()
        if drawn < 0.15:
            continue
        made[key] = chance.choice(VALUES) if drawn < 0.5 else value
    if chance.random() < 0.2:
        made[chance.choice(["", "Query", "__class__", "x" * 10_000])] = chance.choice(VALUES)
    return made


def cut_short(url: str, path: str, body: bytes, chance: random.Random) -> str:
    """What answered a request whose head or length is wrong, and which ends in the middle: silence is right, too."""
    host = httpx.URL(url)
    lengths = [b"-1", b"1e3", b"99999999999999999999", str(len(body) + 9).encode(), b"0", b"4, 5"]
    head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %s\r\n\r\n" % (
        path.encode(),
        chance.choice(lengths),
    )
    with socket.create_connection((host.host, host.port), timeout=SECONDS) as connection:
        connection.sendall((head + body)[: chance.randrange(1, len(head) + len(body))])
        connection.shutdown(socket.SHUT_WR)
        try:
            line = connection.recv(100)
        except OSError:
            line = b""
    return line.split(b" ")[1].decode("ascii", "replace") if line.startswith(b"HTTP/1.1 ") else "closed"


@contextmanager
def served() -> Iterator[str]:
    """The URL of a server of a small encoder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        model = make_encoder(Path(folder) / "tiny")
        command = [
            sys.executable,
            "-m",
            "ccheck",
            "serve",
            "rerank",
            "--model",
            str(model),
            "--port",
            str(port),
            "--canary",
            "repeat",
        ]
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                        break
                if process.poll() is not None:
                    raise SystemExit((Path(folder) / "log").read_text())
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    main()
