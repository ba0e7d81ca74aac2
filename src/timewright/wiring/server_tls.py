"""TLS contexts of our own servers: the HTTP server and the metrics port."""

from __future__ import annotations

import ssl

from timewright.errors import InvalidInput


def server_tls_context(cert: str, key: str, *, client_ca: str = "") -> ssl.SSLContext:
    """Return the TLS context of a server; with `client_ca`, clients need a certificate of these CAs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"the certificate cannot be used: {error}",
            field="tls_cert",
            value=cert,
            rule="readable PEM files with a certificate and its private key",
            fix="--tls-cert server.pem --tls-key server.key",
        ) from None
    if client_ca:
        _require_client_certificates(context, client_ca)
    return context


def _require_client_certificates(context: ssl.SSLContext, authorities: str) -> None:
    try:
        context.load_verify_locations(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"the client CAs cannot be used: {error}",
            field="tls_client_ca",
            value=authorities,
            rule="a readable PEM file with CA certificates",
            fix="--tls-client-ca clients.pem",
        ) from None
    context.verify_mode = ssl.CERT_REQUIRED
