"""The metrics port of an instance: who may read it; and the TLS contexts of our own servers."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable

from timewright.errors import InvalidInput, NotAllowed
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import authenticate, require_scope
from timewright.operations.access.keys import LOCAL_KEY_NAME
from timewright.settings import Settings, is_loopback
from timewright.telemetry.metrics_server import CONTENT_TYPE

METRICS_CONTENT_TYPE = CONTENT_TYPE
# Quotes inside a label value are escaped, so this matches the real label; a false match hides a line.
_NAMESPACE_LABEL = re.compile(r'[{,]namespace="([^"]*)"')


def filter_metrics(text: str, may_read: Callable[[str], bool]) -> str:
    """Return the lines without a namespace label, and those of the namespaces that may be read."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if all(map(may_read, _NAMESPACE_LABEL.findall(line))))


def check_metrics_host(settings: Settings) -> None:
    """Raise if other machines could read the metrics port without TLS and no proxy provides it."""
    if is_private(settings) or settings.tls_cert or settings.behind_proxy:
        return
    raise NotAllowed(
        f"metrics_host {settings.metrics_host} is reachable by other machines without encryption",
        field="metrics_host",
        value=settings.metrics_host,
        rule="use TLS, or a proxy that terminates TLS",
        fix="--tls-cert server.pem --tls-key server.key, or --behind-proxy, or --metrics-host 127.0.0.1",
    )


def is_private(settings: Settings) -> bool:
    """Whether there is no metrics port, or only this machine can connect to it."""
    return not settings.metrics_port or is_loopback(settings.metrics_host)


def metrics_tls(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context of the metrics port; None on loopback and behind a proxy."""
    if is_private(settings) or not settings.tls_cert:
        return None
    return server_tls_context(settings.tls_cert, settings.tls_key, client_ca=settings.tls_client_ca)


def metrics_for(context: OperationContext, text: str, authorization: str) -> str:
    """Return the metrics for one scrape; from another machine it needs a key, and gets its namespaces."""
    if is_private(context.settings):
        return text
    scheme, _, token = authorization.partition(" ")
    caller = authenticate(context, token.strip() if scheme.lower() == "bearer" else "")
    require_scope(caller, "read", operation="metrics")
    return filter_metrics(text, caller.can_access) if caller.namespaces else text


def check_remote_key(context: OperationContext, *, field: str) -> None:
    """Raise if no key exists but the local administrator's, because other machines could not authenticate."""
    rows = operations["key list"](context, {"limit": 1000})["keys"]
    if any(row["name"] != LOCAL_KEY_NAME for row in rows):
        return
    raise NotAllowed(
        "no API key exists, so other machines could not authenticate",
        field=field,
        rule="binding to other addresses needs at least one key",
        fix="timewright key create NAME --role operator, then start again",
    )


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
