"""TLS client certificates."""

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

from timewright.errors import InvalidInput, NotAllowed
from timewright.interfaces.cli.process.http_server import check_bind
from timewright.interfaces.http.server import ServerThread
from timewright.settings import Settings

TLS = Path(__file__).parents[3] / "targets" / "http" / "data" / "tls"
SERVER, ITS_AUTHORITY = TLS / "good.pem", TLS / "ca.pem"


def certificate(folder: Path, name: str, *, of: str = "", days: int = 1) -> Path:
    """Create a client certificate with its key, signed by another one or by itself."""
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
    """A CA, and client certificates that are valid, self-signed and expired."""
    folder = tmp_path_factory.mktemp("clients")
    certificate(folder, "authority")
    certificate(folder, "client", of="authority")
    certificate(folder, "expired", of="authority", days=-1)
    certificate(folder, "stranger")
    return folder


async def well(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request with 200."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def server(folder: Path) -> Iterator[ServerThread]:
    authority = str(folder / "authority.pem")
    server = ServerThread(bind="127.0.0.1", port=0, tls=(str(SERVER), ""), client_ca=authority)
    server.start(well)
    yield server
    server.stop()


def status(server: ServerThread, certificate: Path | None) -> int:
    """Return the status for a client with this certificate."""
    context = ssl.create_default_context(cafile=ITS_AUTHORITY)
    if certificate is not None:
        context.load_cert_chain(certificate)
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=60)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_client_with_a_valid_certificate_is_accepted(server: ServerThread, folder: Path) -> None:
    assert status(server, folder / "client.pem") == 204


@pytest.mark.parametrize("name", ["", "stranger", "expired"])
def test_a_client_without_a_valid_certificate_cannot_connect(
    server: ServerThread, folder: Path, name: str
) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        status(server, folder / f"{name}.pem" if name else None)


def test_an_unreadable_ca_file_is_refused_at_startup(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for odd in (tmp_path / "nothing.pem", empty):
        with pytest.raises(InvalidInput) as refusal:
            ServerThread(bind="127.0.0.1", port=0, tls=(str(SERVER), ""), client_ca=str(odd))
        assert refusal.value.field == "tls_client_ca"


def test_client_certificates_need_tls() -> None:
    with pytest.raises(NotAllowed) as refusal:
        check_bind(Settings(tls_client_ca="clients.pem", behind_proxy=True))
    assert refusal.value.field == "tls_client_ca"
