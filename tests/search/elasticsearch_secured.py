"""A real Elasticsearch with its own security, from the jars: API keys, roles, and TLS with client certificates."""

from __future__ import annotations

import hashlib
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from certificates import Certificate
from elasticsearch_nodes import START_SECONDS, Node, new_node

from ccheck import es_mappings

USER, PASSWORD = "elastic", "a-password-of-the-tests"


@dataclass(frozen=True)
class Secured:
    """A server whose certificate signed itself; whoever shows that certificate is a superuser, too."""

    node: Node
    certificate: Certificate
    http: httpx.Client
    """Requests of the superuser `elastic`."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.node.port}"

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(self.certificate.file.read_text(encoding="ascii"))).hexdigest()

    def key(self, *roles: Mapping[str, Any]) -> str:
        """A new API key with these roles alone."""
        body = {"name": "a key", "role_descriptors": {str(number): role for number, role in enumerate(roles)}}
        return str(self.http.post("/_security/api_key?refresh=true", json=body).raise_for_status().json()["encoded"])


def role(name: str, store: str) -> dict[str, Any]:
    """A role of es_mappings/roles as who reads the documentation makes it: with another name for papers."""
    described: dict[str, Any] = json.loads(json.dumps(es_mappings.read(f"roles/{name}")).replace("papers", store))
    return described


@contextmanager
def secured(certificate: Certificate) -> Iterator[Secured]:
    """A started server with a trial licence; skips the test where the jars can't be run."""
    settings = {
        "discovery.type": "single-node",
        "transport.port": 0,
        "xpack.security.http.ssl": {
            "enabled": True,
            "certificate": certificate.file.name,
            "key": certificate.key.name,
            "certificate_authorities": certificate.file.name,
            "client_authentication": "optional",
        },
        "xpack.security.authc.realms.pki.certificates": {"order": 1, "certificate_authorities": certificate.file.name},
        # The least that the server accepts: no test looks at the strength of its hashes.
        "xpack.security.authc.password_hashing.algorithm": "bcrypt4",
    }
    with new_node(settings=settings, password=PASSWORD) as node:
        config = node.home / "config"
        config.mkdir(parents=True)
        for file in (certificate.file, certificate.key):
            (config / file.name).write_bytes(file.read_bytes())
        (config / "role_mapping.yml").write_text('superuser: ["CN=localhost"]\n', encoding="utf-8")
        node.launch()
        node.await_port()
        trusted = ssl.create_default_context(cafile=str(certificate.file))
        server = f"https://127.0.0.1:{node.port}"
        with httpx.Client(base_url=server, auth=(USER, PASSWORD), verify=trusted, timeout=60) as http:
            deadline = time.monotonic() + START_SECONDS
            while not http.get("/_cluster/health").is_success:
                assert time.monotonic() < deadline, "the node does not answer"
                time.sleep(0.2)
            yield Secured(node, certificate, http)
