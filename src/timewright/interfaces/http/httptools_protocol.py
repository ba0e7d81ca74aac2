"""The httptools protocol of uvicorn, with the header size limit that it lacks."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from timewright.interfaces.http.connection_protocols import MAX_HEADER_BYTES, HeaderTimeoutProtocol


class HttptoolsServerProtocol(HeaderTimeoutProtocol, HttpToolsProtocol):
    """Refuses headers that are too large, also incomplete ones, and ignores trailers after the body."""

    # Bytes received since the last complete headers: an upper bound for the next headers.
    _received_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Parse the data, and refuse headers that exceed the limit before they are complete."""
        self._received_bytes += len(data)
        super().data_received(data)
        if self._received_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received.")

    def on_headers_complete(self) -> None:
        """Check the size of the headers, then drop the list so that trailers cannot change the request."""
        if self._received_bytes > MAX_HEADER_BYTES and self._header_bytes() > MAX_HEADER_BYTES:
            raise ValueError("the headers are too large")
        self._received_bytes = 0
        super().on_headers_complete()
        self.headers = []

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on; its size is limited where it is read."""
        self._received_bytes = 0
        super().on_body(body)

    def _header_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
