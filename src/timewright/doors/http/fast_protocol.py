"""HTTP as httptools reads it, with the limits that it does not have itself."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from timewright.doors.http.protocols import LARGEST_HEAD, Impatient


class FastProtocol(Impatient, HttpToolsProtocol):
    """Refuses a head that is too large, whole or not, and hears no headers behind the body."""

    _heard = 0
    _unheard = 0
    _in_head = False

    def data_received(self, data: bytes) -> None:
        """Read on; what the parser keeps to itself because it has no end yet is not kept for ever."""
        self._unheard += len(data)
        super().data_received(data)
        if self._unheard > LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        """A head begins."""
        self._heard, self._in_head = 0, True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the path."""
        self._hear(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; one behind the body would change what was asked after it was judged."""
        self._hear(len(name) + len(value))
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head has ended."""
        self._hear(0)
        self._in_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body, which is limited where it is read."""
        self._unheard = 0
        super().on_body(body)

    def _hear(self, size: int) -> None:
        self._unheard = 0
        self._heard += size
        if self._heard > LARGEST_HEAD:
            raise ValueError("the head is too large")
