"""A self-signed certificate for 127.0.0.1."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from needs import absent


@dataclass(frozen=True)
class Certificate:
    file: Path
    key: Path

    @property
    def server(self) -> ssl.SSLContext:
        """What a server needs that has this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        return context


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    if shutil.which("openssl") is None:
        absent("openssl", "makes a certificate with openssl, which is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    subprocess.run(
        (
            f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {made.key} -out {made.file} -days 2 "
            "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
        ).split(),
        check=True,
        capture_output=True,
    )
    return made
