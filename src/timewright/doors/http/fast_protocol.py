"""HTTP as httptools reads it, with the limits that it lacks, and a short way for what is brief."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from timewright.doors.http.protocols import LARGEST_HEAD, Impatient
from timewright.doors.http.replies import Reply


class _Answered:
    """Stands where a request under way would, once the last one was answered at once."""

    response_complete = True
    message_event = asyncio.Event()


_ANSWERED: Any = _Answered()


class FastProtocol(Impatient, HttpToolsProtocol):
    """Refuses a head that is too large, whole or not, and hears no headers behind the body.

    A question that the application answers at once is answered as soon as its head is read: it needs no
    task, and no messages to and fro. Of what comes in one piece that is the first question at most, so that
    whoever sends many together waits with everyone else.
    """

    # What came since a head was last whole: the next head is no longer than that.
    _came = 0
    # Whether the first question of this piece is still to come.
    _first = True
    # Whether the last question was answered at once, and nothing has come since.
    _rests = False
    _ask: Callable[[Any], Reply | None] | None = None

    def connection_made(self, transport: Any) -> None:
        """See whether the application answers anything at once; below a root it is asked as ever."""
        super().connection_made(transport)
        self._ask = getattr(self.app, "at_once", None) if not self.root_path else None

    def data_received(self, data: bytes) -> None:
        """Read on; a head that does not end is not kept for ever."""
        self._came += len(data)
        self._first = True
        super().data_received(data)
        if self._came > LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        """Something new is asked."""
        self._rests = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head has ended; a header behind the body would change what was asked after it was judged."""
        if self._came > LARGEST_HEAD and self._size() > LARGEST_HEAD:
            raise ValueError("the head is too large")
        self._came = 0
        reply = self._ask(self.scope) if self._ask is not None and self._may_be_brief() else None
        self._first = False
        if reply is None:
            super().on_headers_complete()
        else:
            self._answer(reply)
        self.headers = []

    def on_body(self, body: bytes) -> None:
        """A part of the body, which is limited where it is read."""
        self._came = 0
        super().on_body(body)

    def is_awaited(self) -> bool:
        """Whether a head has begun, or has to; after an answer that was given at once it has not."""
        return not self._rests and super().is_awaited()

    def _may_be_brief(self) -> bool:
        """Whether this is a plain question, with nothing under way before it and nothing to wait for."""
        url, parser, cycle = self.url, self.parser, self.cycle
        if (
            not self._first
            or parser.get_method() != b"GET"
            or not (cycle is None or cycle.response_complete)
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
            or parser.should_upgrade()
            or self.expect_100_continue
            or self.flow.write_paused
            or len(self.connections) >= (self.limit_concurrency or len(self.connections) + 1)
            or self.transport.is_closing()
            # Whatever is not simply a path and a query is for others to take apart.
            or url[:1] != b"/"
            or url[:2] == b"//"
            or b"#" in url
            or not url.isascii()
        ):
            return False
        scope: Any = self.scope
        scope["method"] = "GET"
        scope["raw_path"], _, scope["query_string"] = url.partition(b"?")
        return True

    def _answer(self, reply: Reply) -> None:
        said = [b"%b: %b\r\n" % header for header in self.server_state.default_headers]
        self.cycle = _ANSWERED
        self._rests = True
        # Sent with the answers to all that came in this turn: whoever is woken by one takes the processor.
        self.transport.write(b"".join(reply.wire(https=self.scheme == "https", said=said)))
        self.on_response_complete()

    def _size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
