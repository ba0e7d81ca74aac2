"""A cache of responses that are valid until the next commit of the store, or until an instant."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from timewright.interfaces.http.api.responses import ApiResponse
from timewright.ports.nonblocking import NonBlockingReader

MAX_CACHED_RESPONSES = 4_096
MAX_CACHE_BYTES = 16 * 1024 * 1024

# Namespace, root path, path segments and query: all that a response depends on besides the store.
CacheKey = tuple[str, str, tuple[str, ...], str]


class CachedResponse(Struct, frozen=True, gc=False):
    """A response, the value it encodes, when it expires, and the data version it was built for."""

    response: ApiResponse
    value: Struct
    expires_at: datetime | None
    data_version: int


class ResponseCache:
    """The responses of one store. Used by the event loop's thread only, so it needs no lock.

    A response is stored with the data version that was read before it was built. If a commit happened in
    between, that version never matches again. After a commit the value is read again; if it is the same,
    so is the response.
    """

    def __init__(self, nonblocking_reader: NonBlockingReader) -> None:
        self.nonblocking_reader = nonblocking_reader
        self._data_version = -1
        self._entries: dict[CacheKey, CachedResponse] = {}
        self._size_bytes = 0

    def get(self, key: CacheKey) -> ApiResponse | None:
        """Return a response that is still valid."""
        entry = self._entries.get(key)
        if entry is None and self._data_version != -1:
            return None
        self._data_version = self.nonblocking_reader.data_version()
        if entry is None or entry.data_version != self._data_version or self._has_expired(entry):
            return None
        return entry.response

    def get_unchanged(self, key: CacheKey, value: Struct) -> ApiResponse | None:
        """Return the earlier response if it was built from the same value, and mark it as valid again."""
        entry = self._entries.get(key)
        if entry is None or not _has_same_fields(entry.value, value):
            return None
        self._entries[key] = CachedResponse(entry.response, value, entry.expires_at, self._data_version)
        return entry.response

    def put(
        self, key: CacheKey, response: ApiResponse, *, value: Struct, expires_at: datetime | None
    ) -> None:
        """Store a response that was built after `get` returned nothing for its key."""
        before = self._entries.pop(key, None)
        self._size_bytes += response.size_bytes - (before.response.size_bytes if before is not None else 0)
        if len(self._entries) >= MAX_CACHED_RESPONSES or self._size_bytes > MAX_CACHE_BYTES:
            self._entries, self._size_bytes = {}, response.size_bytes
        self._entries[key] = CachedResponse(response, value, expires_at, self._data_version)

    def _has_expired(self, entry: CachedResponse) -> bool:
        return entry.expires_at is not None and self.nonblocking_reader.now() >= entry.expires_at


def _has_same_fields(one: Struct, other: Struct) -> bool:
    """Whether two values have identical fields; strings only need to be equal."""
    if one is other:
        return True
    pairs = ((getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
    return type(one) is type(other) and all(a is b or (type(a) is str and a == b) for a, b in pairs)
