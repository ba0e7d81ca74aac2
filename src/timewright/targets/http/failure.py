"""Explains why no response arrived, without quoting text from the server."""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientResponseError,
    ClientSSLError,
    ConnectionTimeoutError,
)

from timewright.core.run.run import Failed, TimedOut
from timewright.targets.http.connector import EgressBlocked, OutgoingRequest

MAX_REASON_CHARS = 160

_BEFORE_QUOTES = re.compile(r"(?:[A-Za-z0-9 ,.-]|(?<=[a-z])'(?=[a-z]))+")
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]+")


class RequestFailed(Exception):
    """A request failed without a response; carries its outcome."""

    def __init__(self, outcome: Failed | TimedOut) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def failure_outcome(error: Exception, request: OutgoingRequest) -> Failed | TimedOut:
    """The outcome of an attempt that failed with this error."""
    if isinstance(error, ConnectionTimeoutError):
        if request.approved_addresses:
            return TimedOut(error=f"timed out while connecting to {request.url.host_port}")
        return TimedOut(error=f"{request.url.host} was not resolved in time; check its name server")
    # Without a connection nothing was sent; after it, the server may have processed the request.
    is_sent = not isinstance(error, EgressBlocked | ClientConnectorError | ClientSSLError)
    return Failed(error=_why(error, request), unknown=is_sent)


def _why(error: Exception, request: OutgoingRequest) -> str:
    peer = request.url.host_port
    if isinstance(error, EgressBlocked):
        return str(error)
    if request.limit_exceeded:
        return f"{peer} sent more than allowed before the response was complete"
    if isinstance(error, ClientConnectorCertificateError):
        return f"the certificate of {peer} is invalid: {_certificate_error(error.certificate_error)}"
    if isinstance(error, ClientSSLError):
        return f"TLS with {peer} failed: {_system_error(error.os_error)}"
    if isinstance(error, ClientConnectorDNSError):
        return f"{request.url.host} could not be resolved: {_system_error(error.os_error)}"
    if isinstance(error, ClientConnectorError):
        return f"cannot connect to {peer}: {_system_error(error.os_error)}"
    if isinstance(error, ClientResponseError):
        return f"{peer} sent an invalid HTTP response: {_parser_error(error.message)}"
    return f"the connection to {peer} closed before a response arrived"


def _system_error(error: OSError) -> str:
    """The system's text for the error number, because asyncio puts the address into strerror."""
    by_number = errno.errorcode.get(error.errno or 0) and not isinstance(
        error, socket.gaierror | ssl.SSLError
    )
    return _plain(os.strerror(error.errno or 0) if by_number else str(error.strerror or error))


def _parser_error(message: str) -> str:
    """The message of the parser up to where it quotes the server."""
    found = _BEFORE_QUOTES.match(message.strip())
    return found[0].strip() if found else "malformed"


def _certificate_error(error: Exception) -> str:
    return _plain(str(getattr(error, "verify_message", "") or error))


def _plain(text: str) -> str:
    """The first line, in printable ASCII."""
    first = text.strip().partition("\n")[0].strip().removesuffix(":")
    return _NOT_PLAIN.sub("?", first)[:MAX_REASON_CHARS]
