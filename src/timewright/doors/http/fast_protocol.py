"""HTTP as httptools reads it, with the limits that it does not have itself."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from timewright.doors.http.protocols import LARGEST_HEAD, Impatient


class FastProtocol(Impatient, HttpToolsProtocol):
    """Refuses a head that is too large, whole or not, and hears no headers behind the body."""

    # What came since a head was last whole: the next head is no longer than that.
    _came = 0

    def data_received(self, data: bytes) -> None:
        """Read on; a head that does not end is not kept for ever."""
        self._came += len(data)
        super().data_received(data)
        if self._came > LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received.")

    def on_headers_complete(self) -> None:
        """The head has ended; a header behind the body would change what was asked after it was judged."""
        if self._came > LARGEST_HEAD and self._size() > LARGEST_HEAD:
            raise ValueError("the head is too large")
        self._came = 0
        super().on_headers_complete()
        self.headers = []

    def on_body(self, body: bytes) -> None:
        """A part of the body, which is limited where it is read."""
        self._came = 0
        super().on_body(body)

    def _size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
