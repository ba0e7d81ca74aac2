"""Certificates of clients: with authorities set, only those connect who have one of theirs."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from timewright.doors.cli.door import check_bind
from timewright.doors.http.server import Server
from timewright.errors import InvalidInput, NotAllowed
from timewright.settings import Settings

TLS = Path(__file__).parents[2] / "targets" / "data" / "tls"
SERVER, ITS_AUTHORITY = TLS / "good.pem", TLS / "ca.pem"


def certificate(folder: Path, name: str, *, of: str = "", days: int = 1) -> Path:
    """A certificate for clients in a file with its key; signed by the one in another file, or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer: Any = key
    issuer = own
    if of:
        text = (folder / f"{of}.pem").read_bytes()
        signer = serialization.load_pem_private_key(text, None)
        issuer = x509.load_pem_x509_certificate(text).subject
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(issuer, own, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=10))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=not of, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    form, nothing = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file = folder / f"{name}.pem"
    pem = serialization.Encoding.PEM
    file.write_bytes(key.private_bytes(pem, form, nothing) + made.public_bytes(pem))
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority for clients, and clients with certificates of it, of nobody, and of long ago."""
    folder = tmp_path_factory.mktemp("clients")
    certificate(folder, "authority")
    certificate(folder, "client", of="authority")
    certificate(folder, "expired", of="authority", days=-1)
    certificate(folder, "stranger")
    return folder


async def well(scope: Any, receive: Any, send: Any) -> None:
    """Answers every request alike."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    authority = str(folder / "authority.pem")
    server = Server(bind="127.0.0.1", port=0, tls=(str(SERVER), ""), client_ca=authority)
    server.start(well)
    yield server
    server.stop()


def status(server: Server, certificate: Path | None) -> int:
    """What a client with that certificate is answered."""
    context = ssl.create_default_context(cafile=ITS_AUTHORITY)
    if certificate is not None:
        context.load_cert_chain(certificate)
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=60)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_client_with_a_certificate_of_the_authorities_is_answered(server: Server, folder: Path) -> None:
    assert status(server, folder / "client.pem") == 204


@pytest.mark.parametrize("name", ["", "stranger", "expired"])
def test_a_client_without_one_does_not_get_as_far_as_asking(server: Server, folder: Path, name: str) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        status(server, folder / f"{name}.pem" if name else None)


def test_authorities_that_cannot_be_read_are_refused_at_the_start(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for odd in (tmp_path / "nothing.pem", empty):
        with pytest.raises(InvalidInput) as refusal:
            Server(bind="127.0.0.1", port=0, tls=(str(SERVER), ""), client_ca=str(odd))
        assert refusal.value.field == "tls_client_ca"


def test_certificates_of_clients_need_tls_of_our_own() -> None:
    with pytest.raises(NotAllowed) as refusal:
        check_bind(Settings(tls_client_ca="clients.pem", behind_proxy=True))
    assert refusal.value.field == "tls_client_ca"
