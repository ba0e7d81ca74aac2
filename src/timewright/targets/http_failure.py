"""Why no answer came, in one sentence that repeats nothing a stranger wrote."""

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

from timewright.core.run import Failed, TimedOut
from timewright.targets.guard import Asked, EgressBlocked

LONGEST_REASON = 160

_BEFORE_QUOTES = re.compile(r"(?:[A-Za-z0-9 ,.-]|(?<=[a-z])'(?=[a-z]))+")
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]+")


class NoAnswer(Exception):
    """A request that ended without an answer, and the outcome that makes."""

    def __init__(self, outcome: Failed | TimedOut) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def failure_of(error: Exception, asked: Asked) -> Failed | TimedOut:
    """What an error on the way means for the attempt."""
    if isinstance(error, ConnectionTimeoutError):
        if asked.approved:
            return TimedOut(error=f"no connection to {asked.url.place} in time")
        return TimedOut(error=f"{asked.url.host} was not looked up in time; is its name server slow?")
    return Failed(error=_why(error, asked))


def _why(error: Exception, asked: Asked) -> str:
    place = asked.url.place
    if isinstance(error, EgressBlocked):
        return str(error)
    if asked.overrun:
        return f"{place} sent more than may be read before an answer was there"
    if isinstance(error, ClientConnectorCertificateError):
        return f"the certificate of {place} was refused: {_verdict(error.certificate_error)}"
    if isinstance(error, ClientSSLError):
        return f"TLS with {place} failed: {_words(error.os_error)}"
    if isinstance(error, ClientConnectorDNSError):
        return f"{asked.url.host} was not found: {_words(error.os_error)}"
    if isinstance(error, ClientConnectorError):
        return f"cannot connect to {place}: {_words(error.os_error)}"
    if isinstance(error, ClientResponseError):
        return f"{place} answered with something that is not HTTP: {_kind(error.message)}"
    return f"the connection to {place} ended before an answer came"


def _words(error: OSError) -> str:
    """What the system calls it; the loop puts an address where these words should be."""
    by_number = errno.errorcode.get(error.errno or 0) and not isinstance(
        error, socket.gaierror | ssl.SSLError
    )
    return _plain(os.strerror(error.errno or 0) if by_number else str(error.strerror or error))


def _kind(message: str) -> str:
    """What the parser says before it begins to quote."""
    found = _BEFORE_QUOTES.match(message.strip())
    return found[0].strip() if found else "unreadable"


def _verdict(error: Exception) -> str:
    return _plain(str(getattr(error, "verify_message", "") or error))


def _plain(text: str) -> str:
    """The first line, in letters that do nothing."""
    first = text.strip().partition("\n")[0].strip().removesuffix(":")
    return _NOT_PLAIN.sub("?", first)[:LONGEST_REASON]
