"""Real Elasticsearch servers for the tests: a pytest plugin, started lazily and once a session.

A server comes from the environment, else from testcontainers where a Docker engine answers, else from the jars on
Maven Central (``elasticsearch_host/``); where none of these can be had, the test is skipped and says what is absent.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from uuid import uuid4

import httpx
import pytest
from filelock import FileLock
from needs import absent

Licence = Literal["trial", "basic"]

HOST = Path(__file__).parents[1] / "elasticsearch_host"
ENVIRONMENT = dict(os.environ)  # as it was before any test changed it
START_SECONDS = 300  # the first start downloads the jars
STOP_SECONDS = 30
HEAP = "512m"
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""They halve the CPU time of a start. No node of the tests lives long enough to gain from the second compiler."""


def pom_property(name: str) -> str:
    """A property of elasticsearch_host/pom.xml, which names the servers' versions."""
    found = re.search(rf"<{name}>(.+?)</{name}>", (HOST / "pom.xml").read_text(encoding="utf-8"))
    assert found, name
    return found[1]


VERSION = pom_property("elasticsearch.version")
VERSION_8 = pom_property("elasticsearch.previous")


@dataclass(eq=False)
class Node:
    """One server from the jars, on 127.0.0.1. A context manager that stops it.

    `settings` are those of elasticsearch.yml, where the node has any; with a password it has security.
    """

    licence: Licence
    home: Path
    port: int
    version: str
    settings: Mapping[str, object] | None = None
    password: str | None = None
    _process: subprocess.Popen[bytes] | None = None
    _written_before = 0

    @property
    def log(self) -> Path:
        return self.home / "node.log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, stdin: int = subprocess.PIPE) -> None:
        """Starts the server and waits until it answers."""
        self.launch(stdin)
        try:
            await_answer(self.await_port())
        except BaseException:
            self.kill()
            raise

    def launch(self, stdin: int = subprocess.PIPE) -> None:
        """Starts the server; `await_port` says when it listens. It ends when `stdin` does: with us, unless given."""
        (self.home / "config").mkdir(parents=True, exist_ok=True)
        if self.settings is not None:
            (self.home / "config" / "elasticsearch.yml").write_text(json.dumps(self.settings), encoding="utf-8")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [HOST / "run", str(self.port), self.licence, self.home, self.version],
                stdin=stdin,  # never written to
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **ENVIRONMENT,
                    "ELASTICSEARCH_HOST_PASSWORD": self.password or "",
                    "ELASTICSEARCH_HOST_HEAP": HEAP,
                    "ELASTICSEARCH_HOST_FOLLOW": "stdin",
                    "JDK_JAVA_OPTIONS": f"{JAVA_OPTIONS} {ENVIRONMENT.get('JDK_JAVA_OPTIONS', '')}".strip(),
                },
                start_new_session=True,
            )
            self._written_before = log.tell()

    @property
    def runs(self) -> bool:
        return self._process is not None

    def kill(self) -> None:
        """Ends the server as a crash does."""
        self.stop(signal.SIGKILL)

    def leave(self) -> None:
        """Leaves the server to others, who may use it for longer: we neither stop it nor wait for its end."""
        assert self._process is not None
        self._process.returncode = 0  # else a Popen warns when it is collected before its program ends
        self._process = None

    def freeze(self) -> None:
        """Stops its threads: connections stay open, and nobody answers."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def await_port(self) -> str:
        """The URL, once the server listens there."""
        process, deadline = self._process, time.monotonic() + START_SECONDS
        assert process is not None
        while time.monotonic() < deadline:
            ended = process.poll() is not None
            output = self.log.read_bytes()[self._written_before :].decode(errors="replace")
            if found := re.search(r"^listening on 127\.0\.0\.1:(\d+)$", output, re.MULTILINE):
                self.port = int(found[1])
                return self.url
            if ended:
                raise RuntimeError(f"Elasticsearch ended with {process.returncode}; {self._log_tail()}")
            time.sleep(0.1)
        raise RuntimeError(f"Elasticsearch did not start within {START_SECONDS} s; {self._log_tail()}")

    def _log_tail(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([f"the end of {self.log}:", *lines[-30:]])

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> None:
        """Ends the server, by default in order."""
        process, self._process = self._process, None
        if process is None:
            return
        for each in (sent, signal.SIGKILL):
            try:
                os.killpg(process.pid, signal.SIGCONT)  # a frozen one hears nothing but SIGKILL
                os.killpg(process.pid, each)
                process.wait(STOP_SECONDS)
                break
            except ProcessLookupError:
                process.wait()
                break
            except subprocess.TimeoutExpired:
                continue
        if process.stdin is not None:
            process.stdin.close()


_nodes: list[Node] = []
_temporary_homes: list[Path] = []
_served: set[str] = set()


def start_node(licence: Licence = "trial", home: Path | None = None, version: str = VERSION) -> Node:
    """A started server of the caller's own, for tests that kill it, with a temporary home unless given.

    Skips the test where the jars can't be run. What still runs when the session ends is stopped.
    """
    node = new_node(licence, home, version)
    node.start()
    return node


def new_node(
    licence: Licence = "trial",
    home: Path | None = None,
    version: str = VERSION,
    settings: Mapping[str, object] | None = None,
    password: str | None = None,
) -> Node:
    """The same, not started yet, with settings for elasticsearch.yml or security if you like."""
    if missing := absent_for_jars():
        absent("elasticsearch", f"needs an Elasticsearch of its own, from jars: {'; '.join(missing)}")
    if home is None:
        home = Path(tempfile.mkdtemp(prefix="elasticsearch-"))
        _temporary_homes.append(home)
    node = Node(licence, home, 0, version, settings, password)
    _nodes.append(node)
    return node


def absent_for_jars() -> list[str]:
    """What ./run lacks on this machine, each with how to get it."""
    missing = []
    if shutil.which("mvn") is None:
        missing.append("no mvn on the PATH (Debian: apt-get install maven)")
    java = subprocess.run([HOST / "find-java"], capture_output=True, text=True, env=ENVIRONMENT)
    if java.returncode:
        missing.append(java.stderr.strip())
    return missing


def await_answer(url: str) -> None:
    """Waits until the server at the URL answers and its primary shards are there."""
    asked = {"wait_for_status": "yellow", "timeout": "30s"}
    until_healthy(lambda: httpx.get(f"{url}/_cluster/health", params=asked, timeout=60).raise_for_status())


def until_healthy(ask: Callable[[], object]) -> None:
    """Asks until there is an answer."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            ask()
            return
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def docker_answers() -> bool:
    """Whether testcontainers is installed and there is a Docker engine for it."""
    if find_spec("testcontainers") is None or shutil.which("docker") is None:
        return False
    asked = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        return subprocess.run(asked, capture_output=True, timeout=20).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@contextmanager
def container(licence: Licence, version: str) -> Iterator[str]:
    """The URL of the official image, run for as long as the context lasts."""
    from testcontainers.core.container import DockerContainer

    image = DockerContainer(f"docker.elastic.co/elasticsearch/elasticsearch:{version}")
    image.with_env("discovery.type", "single-node").with_env("xpack.security.enabled", "false")
    image.with_env("xpack.license.self_generated.type", licence).with_env("ES_JAVA_OPTS", f"-Xms{HEAP} -Xmx{HEAP}")
    with image.with_exposed_ports(9200) as running:
        url = f"http://{running.get_container_host_ip()}:{running.get_exposed_port(9200)}"
        await_answer(url)
        yield url


@contextmanager
def shared_node(licence: Licence, version: str, home: Path) -> Iterator[Node]:
    """A server that all of xdist's processes use: the first one starts it in its `home`.

    Its standard input is a named pipe that each process holds open while it uses the server. So the server ends with
    the last of them, however they end.
    """
    shared = home.parents[1] / f"shared-{licence}-{version}"
    shared.mkdir(exist_ok=True)
    pipe, started = shared / "users", shared / "started"
    with FileLock(shared / "lock"):
        if started.exists():
            using = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            node = Node(licence, home, int(started.read_text()), version)
        else:
            os.mkfifo(pipe)
            reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
            using = os.open(pipe, os.O_WRONLY)
            os.set_blocking(reading, True)
            node = Node(licence, home, 0, version)
            node.start(reading)
            node.leave()
            os.close(reading)
            started.write_text(str(node.port))
    try:
        yield node
    finally:
        os.close(using)


@contextmanager
def server(variable: str, licence: Licence, version: str, home: Path) -> Iterator[str]:
    """The URL of a server from the environment, else a container, else the jars; skips where none can be had."""
    if given := ENVIRONMENT.get(variable):
        try:
            httpx.get(given, timeout=60).raise_for_status()
        except httpx.HTTPError as error:
            pytest.fail(f"{variable} names {given}, which does not answer: {error}", pytrace=False)
        _served.add(given.rstrip("/"))
        yield given.rstrip("/")
    elif docker_answers():
        with container(licence, version) as url:
            _served.add(url)
            yield url
    elif missing := absent_for_jars():
        absent(
            "elasticsearch",
            f"no Elasticsearch {version} ({licence}): {variable} is not set;"
            f" no Docker engine with testcontainers answers; from jars: {'; '.join(missing)}",
        )
    else:
        with (
            shared_node(licence, version, home)
            if "PYTEST_XDIST_WORKER" in ENVIRONMENT
            else start_node(licence, home, version) as node
        ):
            _served.add(node.url)
            yield node.url


@pytest.fixture(scope="session")
def elasticsearch_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose licence allows everything, `rrf` among it."""
    with server("ELASTICSEARCH_URL", "trial", VERSION, tmp_path_factory.mktemp("elasticsearch")) as url:
        yield url


@pytest.fixture(scope="session")
def elasticsearch_basic_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the free basic licence, which answers 403 to `rrf`."""
    variable = "CCHECK_TEST_ELASTICSEARCH_BASIC_URL"
    with server(variable, "basic", VERSION, tmp_path_factory.mktemp("elasticsearch-basic")) as url:
        yield url


@pytest.fixture(scope="session")
def elasticsearch_8_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The oldest server that ccheck supports, with a trial licence."""
    variable = "CCHECK_TEST_ELASTICSEARCH_8_URL"
    with server(variable, "trial", VERSION_8, tmp_path_factory.mktemp("elasticsearch-8")) as url:
        yield url


@pytest.fixture
def elasticsearch_index() -> Iterator[str]:
    """A name for a test's own index or alias; all indices and index templates that begin with it, and its record of
    checks, are deleted after."""
    name = f"ccheck-test-{uuid4().hex[:12]}"
    yield name
    for url in _served:
        delete_indices(url, f"{name}*")
        delete_indices(url, f"ccheck-checks-{name}*")


def delete_indices(url: str, pattern: str) -> None:
    """Deletes the indices and index templates that a pattern names; a server refuses to delete indices by a pattern."""
    with httpx.Client(base_url=url, timeout=60) as client:
        found = client.get(f"/_cat/indices/{pattern}", params={"h": "index", "expand_wildcards": "all"})
        for index in found.raise_for_status().text.split():
            client.delete(f"/{index}").raise_for_status()
        for templates in ("_index_template", "_component_template"):
            deleted = client.delete(f"/{templates}/{pattern}")
            if deleted.status_code != httpx.codes.NOT_FOUND:
                deleted.raise_for_status()


def pytest_unconfigure() -> None:
    """Leaves no server behind, however the session ended."""
    while _nodes:
        _nodes.pop().stop()
    while _temporary_homes:
        shutil.rmtree(_temporary_homes.pop(), ignore_errors=True)
