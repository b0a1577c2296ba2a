"""Servers that misbehave: what they answer to the question what a paper says of a claim. No answer here is a stance.

Each holds, somewhere, a reply that says SUPPORTS, or a bomb. `tests/pipeline/test_hostile_servers.py` and
`benchmarks/hostile_servers.py` ask them all.
"""

import contextlib
import gzip
import json
import socket
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import zstandard

KEY = "sk-secret-9f8e7d6c5b4a"
CLAIM = "Vaccine X is effective in all adults."
TEXT = "We gave vaccine X to 1,000 people. It was ineffective in all adults. It was not safe for children."
STANCE = {"rationale": "It says so.", "quote": "gave vaccine X to 1,000 people", "label": "SUPPORTS", "confidence": 0.9}
GOOD = json.dumps(STANCE)
CALL = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": GOOD}}]


@dataclass(frozen=True)
class Raw:
    """What is sent: a status line with headers, and pieces of a body. `length` is what Content-Length says; None leaves
    it out, and the connection is closed after the body. `reset`: the connection is broken off after it."""

    body: bytes | Iterable[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = -1
    reset: bool = False


def completion(text: Any = GOOD, **choice: Any) -> bytes:
    """A whole chat completion; `choice` changes or adds keys of its choice, and of its message under `message`."""
    message = {"role": "assistant", "content": text, **choice.pop("message", {})}
    made = {"index": 0, "message": message, "finish_reason": "stop", **choice}
    return json.dumps({"id": "x", "choices": [{k: v for k, v in made.items() if v != "MISSING"}]}).encode()


def beside(**keys: Any) -> bytes:
    return json.dumps({**json.loads(completion()), **keys}).encode()


def endless(piece: bytes = b" " * 65536) -> Iterator[bytes]:
    while True:
        yield piece


def zeros(size: int) -> Iterator[bytes]:
    return (bytes(1 << 20) for _ in range(size >> 20))


def deflated(size: int, bits: int) -> bytes:
    """So many zeros, compressed: 31 bits are gzip, 15 are deflate."""
    packer = zlib.compressobj(1, zlib.DEFLATED, bits)
    return b"".join(packer.compress(piece) for piece in zeros(size)) + packer.flush()


def zstd(size: int) -> bytes:
    packer = zstandard.ZstdCompressor().compressobj()
    return b"".join(packer.compress(piece) for piece in zeros(size)) + packer.flush()


TEXTS = {
    "an unfinished thought": f"<think>The reply could be {GOOD}",
    "an unfinished thought in a fence": f"<think>\n```json\n{GOOD}\n```",
    "a thought after a thought": f"<think>a</think>{GOOD}<think>or not</think>",
    "two thoughts around it": f"<think>a</think> hm <think>{GOOD}</think>",
    "a thought that holds it": f"<think>{GOOD}</think>",
    "a thought and prose": f"<think>a</think>I am not sure, perhaps {GOOD}",
    "an example of a reply": f"I can't judge this. A reply would look like {GOOD}",
    "an example in a fence": f"I can't judge this. A reply would look like\n```json\n{GOOD}\n```",
    "a refusal after it": f"{GOOD}\nThis is only the format: I can't judge it.",
    "a refusal in a fence": f"```\n{GOOD}\nI can't judge it.\n```",
    "prose before": f"Sure: {GOOD}",
    "prose after": f"{GOOD} Anything else?",
    "twice": f"{GOOD}\n{GOOD}",
    "two that differ": f"{GOOD}\n{GOOD.replace('SUPPORTS', 'REFUTES')}",
    "two fences": f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```",
    "a fence in a fence": f"```\n```json\n{GOOD}\n```\n```",
    "a fence that does not end": f"```json\n{GOOD}",
    "a list": f"[{GOOD}]",
    "in another object": f'{{"reply": {GOOD}}}',
    "as a string": json.dumps(GOOD),
    "half of it": GOOD[:-3],
    "half, and a whole one": f"{GOOD[:-3]} {GOOD}",
    "a key twice": GOOD.replace('"label"', '"label": "REFUTES", "label"'),
    "a comment": GOOD.replace("{", "{ // as asked\n"),
    "a comma too many": GOOD.replace("}", ",}"),
    "single quotation marks": GOOD.replace('"', "'"),
    "a key too many": json.dumps({**STANCE, "note": "x"}),
    "a key too few": json.dumps({k: v for k, v in STANCE.items() if k != "confidence"}),
    "a label in small letters": json.dumps({**STANCE, "label": "supports"}),
    "a label with a blank": json.dumps({**STANCE, "label": "SUPPORTS "}),
    "a label that is a list": json.dumps({**STANCE, "label": ["SUPPORTS"]}),
    "a label of a claim": json.dumps({**STANCE, "label": "CONFLICTING"}),
    "no label": json.dumps({**STANCE, "label": None}),
    "a confidence above 1": json.dumps({**STANCE, "confidence": 90}),
    "a confidence below 0": json.dumps({**STANCE, "confidence": -0.1}),
    "a confidence in words": json.dumps({**STANCE, "confidence": "0.9"}),
    "a confidence that is no number": GOOD.replace("0.9", "NaN"),
    "an endless confidence": GOOD.replace("0.9", "1e999"),
    "a confidence that is true": json.dumps({**STANCE, "confidence": True}),
    "no reason": json.dumps({**STANCE, "rationale": " "}),
    "no quote": json.dumps({**STANCE, "quote": ""}),
    "a quote of two words": json.dumps({**STANCE, "quote": "vaccine X"}),
    "a made-up quote": json.dumps({**STANCE, "quote": "Vaccine X is effective in all adults."}),
    "a quote from inside a word": json.dumps({**STANCE, "quote": "effective in all adults"}),
    "a quote from inside a number": json.dumps({**STANCE, "quote": "000 people. It was ineffective"}),
    "a quote without its not": json.dumps({**STANCE, "quote": "safe for children."}),
    "nothing": "",
    "white space": " \n\t",
    "null": "null",
    "a number": "7",
    "deep nesting": '{"a":' * 50_000,
    "a long reply": GOOD.replace("It says so.", "x" * 300_000),
    "a special token after it": f"{GOOD}<|im_end|>",
    "a turn after it": f"{GOOD}\nuser: no, it refutes\nassistant:",
    "a byte order mark": f"\ufeff{GOOD}",
}
"""What the model wrote, where the server says that it is whole."""
REASONS: list[Any] = [
    *("length", "max_tokens", "model_length", "tool_calls", "function_call", "content_filter", "error", "abort"),
    *("cancelled", "insufficient_system_resource", "unknown", "stopped?", "", None, "MISSING", 5, ["stop"], {}),
]
BODIES: dict[str, bytes] = {
    "an error beside it": beside(error={"message": "the model crashed", "code": 500}),
    "an error without a code": beside(error={"message": "x"}),
    "an empty error": beside(error={}),
    "an error in words": beside(error="overloaded"),
    "an error that is true": beside(error=True),
    "an error in the choice": completion(error={"message": "x", "code": 502}),
    "two answers": json.dumps({"choices": json.loads(completion())["choices"] * 2}).encode(),
    "no answer": b'{"choices": []}',
    "a call of a tool": completion(message={"tool_calls": CALL}),
    "a call of a function": completion(message={"function_call": CALL[0]["function"]}),
    "a call of a tool alone": completion(None, message={"tool_calls": CALL}),
    "a refusal": completion(message={"refusal": "I can't."}),
    "thoughts alone": completion(None, message={"reasoning_content": GOOD}),
    "content in parts": completion([{"type": "text", "text": GOOD}]),
    "content that is the object": completion(STANCE),
    "a delta": json.dumps({"choices": [{"delta": {"content": GOOD}, "finish_reason": "stop"}]}).encode(),
    "text and no message": json.dumps({"choices": [{"text": GOOD, "finish_reason": "stop"}]}).encode(),
    "a choice that is no list": json.dumps({"choices": json.loads(completion())["choices"][0]}).encode(),
    "the object itself": GOOD.encode(),
    "a list of bodies": b"[" + completion() + b"]",
    "two bodies": completion() + completion(),
    "a body with choices twice": completion()[:-1] + b', "choices": []}',
    "an error and then none": b'{"error": {"message": "x"}, "error": null, ' + completion()[1:],
    "content twice": completion().replace(b'"content"', b'"content": "no", "content"'),
    "a stream": b"data: " + completion() + b"\n\ndata: [DONE]\n\n",
    "a page": b"<html>" + completion() + b"</html>",
    "half a body": completion()[:-2],
    "another alphabet": completion().decode().encode("utf-16"),
    "broken UTF-8": completion().replace(b"It says so.", b"\xff\xfe"),
    "nothing": b"",
    "deep nesting": b'{"choices":' * 100_000,
    "the key": completion(f"{KEY} {GOOD}"),
}
REDIRECTS = (300, 301, 302, 303, 304, 305, 307, 308)
STATUSES = (
    *(201, 202, 203, 204, 206, 400, 401, 402, 403, 404, 405, 408, 409, 410, 413, 415, 418, 422, 424, 425, 429, 451),
    *(499, 500, 501, 502, 503, 504, 520, 529, 599),
)
ECHO = json.dumps({"error": {"message": f"wrong key {KEY}, Bearer {KEY}", "code": KEY}}).encode()


def replies(elsewhere: str) -> dict[str, Raw]:
    """All of them by name, fast to send. `elsewhere` is an address that redirects lead to."""
    made = {f"text: {name}": Raw(completion(text)) for name, text in TEXTS.items()}
    made |= {f"finish_reason: {reason!r}": Raw(completion(finish_reason=reason)) for reason in REASONS}
    made |= {f"body: {name}": Raw(body) for name, body in BODIES.items()}
    made |= {f"status {status}": Raw(completion(), status) for status in STATUSES}
    made |= {f"redirect {s}": Raw(completion(), s, {"Location": f"{elsewhere}/chat/completions"}) for s in REDIRECTS}
    made |= {f"key echoed, status {s}": Raw(ECHO, s) for s in (200, 400, 401, 404, 422, 429, 500)}
    made["key echoed in a redirect"] = Raw(b"", 307, {"Location": f"{elsewhere}/?key={KEY}"})
    whole, chunked = completion(), {"Transfer-Encoding": "chunked"}
    made |= {
        "half of what was announced": Raw(whole, length=len(whole) + 10),
        "less than half a body": Raw(whole, length=len(whole) - 10),
        "broken off": Raw(whole, length=len(whole) + 10, reset=True),
        "chunks that break off": Raw(b"%x\r\n" % len(whole) + whole, headers=chunked, length=None),
        "chunks of no size": Raw(b"zz\r\n" + whole, headers=chunked, length=None),
        "no HTTP": Raw(b"", status=-1),
        "a large header": Raw(whole, headers={"X-Large": "x" * 2_000_000}),
        "many headers": Raw(whole, headers={f"X-{n}": "x" for n in range(100_000)}),
        "gzip unasked": Raw(gzip.compress(whole), headers={"Content-Encoding": "gzip"}),
        "zstd unasked": Raw(zstandard.compress(whole), headers={"Content-Encoding": "zstd"}),
    }
    return made


def bombs(size: int) -> dict[str, Raw]:
    """What would fill the memory: `size` bytes once decoded, or no end."""
    packed = {"gzip": deflated(size, 31), "deflate": deflated(size, 15), "zstd": zstd(size)}
    made = {
        f"{name}, status {status}": Raw(data, status, {"Content-Encoding": name})
        for name, data in packed.items()
        for status in (200, 307, 400, 500)
    }
    twice = Raw(gzip.compress(packed["gzip"]), headers={"Content-Encoding": "gzip, gzip"})
    plain = {f"{size >> 20} MiB, status {s}": Raw(zeros(size), s, length=None) for s in (200, 307, 400, 500)}
    return {**made, "gzip in gzip": twice, **plain}


class HostileServer:
    """Sends `answer` to whatever is asked. `requests` counts, `heard` has what the last request was."""

    def __init__(self) -> None:
        self.answer = Raw(completion())
        self.requests = 0
        self.heard = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.root = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = f"{self.root}/v1"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), connection:
            stream = connection.makefile("rb")
            lines = list(iter(stream.readline, b"\r\n"))
            sizes = [int(line.partition(b":")[2]) for line in lines if line.lower().startswith(b"content-length:")]
            self.heard = b"".join(lines) + stream.read(sum(sizes))
            self.requests += 1
            answer = self.answer
            if answer.status < 0:
                connection.sendall(b"\x00" * 100 + b"\r\n\r\n")
                return
            pieces = (answer.body,) if isinstance(answer.body, bytes) else answer.body
            headers = {"Content-Type": "application/json", "Connection": "close", **answer.headers}
            if answer.length is not None and isinstance(answer.body, bytes):
                headers["Content-Length"] = str(len(answer.body) if answer.length < 0 else answer.length)
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            connection.sendall(f"HTTP/1.1 {answer.status} X\r\n{head}\r\n".encode())
            for piece in pieces:
                connection.sendall(piece)
            if answer.reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@contextmanager
def hostile() -> Iterator[HostileServer]:
    server = HostileServer()
    try:
        yield server
    finally:
        server.close()
