"""What happens, as it happens: facts to whoever listens, within bounds, over server-sent events."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import msgspec

from timewright.core.encoding import encode
from timewright.core.facts import Fact, TickFinished
from timewright.doors.http.hearing import Hearing
from timewright.doors.http.problems import Refused
from timewright.doors.http.visits import Receive, Send
from timewright.errors import InvalidInput
from timewright.ports import Ear

KEPT = 1000
MOST_WAITING = 1000
MOST_STREAMS = 200
HEARTBEAT = 15.0
SEND_SECONDS = 20.0
RETRY_MS = 2000
CHANGED_EVERY = 0.5

Numbered = tuple[int, Fact]


class Listener:
    """One who listens; what is not taken in time is counted out, and the stream ends."""

    def __init__(self, namespace: str, kinds: frozenset[str]) -> None:
        self._namespace = namespace
        self._kinds = kinds
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._waiting: deque[Numbered] = deque()
        self._changed_at = -CHANGED_EVERY
        self._changing = False
        self._has_changed = False
        self.ended = ""

    def push(self, numbered: Numbered) -> None:
        """Hand over a fact, from any thread."""
        if self.ended or not self.wants(numbered[1]):
            return
        if len(self._waiting) >= MOST_WAITING:
            self.end("slow")
            return
        self._waiting.append(numbered)
        self._wake()

    def end(self, why: str) -> None:
        """Let the stream end, from any thread."""
        self.ended = why
        self._wake()

    def changed(self) -> None:
        """Say that another process has written, from any thread; now, or a moment after the last time."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._change_soon)

    def take_change(self) -> bool:
        """Whether another process has written since the last look."""
        changed, self._has_changed = self._has_changed, False
        return changed

    def wants(self, fact: Fact) -> bool:
        """Whether a fact belongs to this listener's namespace, and to the kinds that were asked for."""
        if isinstance(fact, TickFinished) and not self._kinds:
            return False
        kind = str(type(fact).__struct_config__.tag)
        return fact.namespace == self._namespace and (not self._kinds or kind in self._kinds)

    async def take(self, *, within: float) -> list[Numbered]:
        """What has come meanwhile; nothing when the time is over."""
        self._ready.clear()
        if not self._waiting and not self.ended and not self._has_changed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ready.wait(), within)
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def _change_soon(self) -> None:
        if not self._changing:
            self._changing = True
            wait = max(self._changed_at + CHANGED_EVERY - self._loop.time(), 0.0)
            self._loop.call_later(wait, self._change)

    def _change(self) -> None:
        self._changing, self._has_changed = False, True
        self._changed_at = self._loop.time()
        self._ready.set()

    def _wake(self) -> None:
        # The loop may be gone when the process ends; then nobody listens.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ready.set)


class Hub:
    """An observer of the engine that hands facts to all who listen, and remembers the last thousand."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._hearing: Hearing | None = None
        self._guard = threading.Lock()
        self._last = 0
        self._kept: deque[Numbered] = deque(maxlen=KEPT)
        self._listeners: set[Listener] = set()
        self._closed = False

    def note(self, fact: Fact) -> None:
        """Take note of one fact."""
        with self._guard:
            self._last += 1
            numbered = (self._last, fact)
            self._kept.append(numbered)
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener.push(numbered)

    def hear(self, ear: Callable[[], Ear | None]) -> None:
        """Also say when another process has written, while anyone listens."""
        self._hearing = Hearing(ear, changed=self._others_wrote)

    def listen(
        self, namespace: str, kinds: frozenset[str], last_id: str
    ) -> tuple[Listener, list[Numbered], str]:
        """A new listener, what it has missed since its last id, and from where on it hears."""
        _check_kinds(kinds)
        listener = Listener(namespace, kinds)
        with self._guard:
            if self._closed or len(self._listeners) >= MOST_STREAMS:
                raise Refused(
                    503,
                    "too_many_streams",
                    "too many listen already",
                    rule=f"at most {MOST_STREAMS} streams",
                    fix="try again later",
                    headers={"retry-after": "5"},
                )
            self._listeners.add(listener)
            missed, since = self._since(last_id)
        if self._hearing is not None:
            self._hearing.begin()
        return listener, [one for one in missed if listener.wants(one[1])], since

    def leave(self, listener: Listener) -> None:
        """Forget a listener."""
        with self._guard:
            self._listeners.discard(listener)
            alone = not self._listeners
        if alone and self._hearing is not None:
            self._hearing.end()

    def close(self) -> None:
        """End every stream; no new one begins."""
        with self._guard:
            self._closed = True
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener.end("stopping")

    def _others_wrote(self) -> None:
        with self._guard:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener.changed()

    def id_of(self, number: int) -> str:
        """The id of a fact in this instance's order."""
        return f"{self._instance}-{number}"

    def _since(self, last_id: str) -> tuple[list[Numbered], str]:
        """What came after an id: all of it, or from now on because it is too old or another's."""
        instance, _, number = last_id.rpartition("-")
        known = instance == self._instance and number.isascii() and number.isdigit() and len(number) < 16
        if not known:
            return [], "gap" if last_id else "now"
        oldest = self._kept[0][0] if self._kept else self._last + 1
        missed = [one for one in self._kept if one[0] > int(number)]
        return missed, "id" if int(number) + 1 >= oldest else "gap"


class EventStream:
    """An answer that goes on until the other side leaves, reads too slowly, or we stop."""

    def __init__(self, hub: Hub, opening: tuple[Listener, list[Numbered], str]) -> None:
        self._hub = hub
        self._listener, self._missed, self._since = opening

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Send what happens as it happens."""
        gone = asyncio.ensure_future(_until_gone(receive))
        gone.add_done_callback(lambda _: self._listener.end("gone"))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            async for part in self._parts():
                await asyncio.wait_for(
                    send({"type": "http.response.body", "body": part, "more_body": True}), SEND_SECONDS
                )
            await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), SEND_SECONDS)
        except (TimeoutError, OSError):
            # Whoever does not read has left for us.
            return
        finally:
            gone.cancel()
            self._hub.leave(self._listener)

    async def _parts(self) -> AsyncIterator[bytes]:
        yield f'retry: {RETRY_MS}\nevent: hello\ndata: {{"from":"{self._since}"}}\n\n'.encode()
        for numbered in self._missed:
            yield self._spelled(numbered)
        while True:
            taken = await self._listener.take(within=HEARTBEAT)
            if self._listener.ended and not taken:
                yield f'event: bye\ndata: {{"reason":"{self._listener.ended}"}}\n\n'.encode()
                return
            changed = b"event: changed\ndata: {}\n\n" if self._listener.take_change() else b""
            yield b"".join(map(self._spelled, taken)) + changed or b": still here\n\n"

    def _spelled(self, numbered: Numbered) -> bytes:
        number, fact = numbered
        kind = type(fact).__struct_config__.tag
        data = msgspec.json.encode(encode(fact))
        return f"id: {self._hub.id_of(number)}\nevent: {kind}\ndata: ".encode() + data + b"\n\n"


def _check_kinds(kinds: frozenset[str]) -> None:
    """Refuse a kind that there is not: whoever waits for it would wait for ever, and not know."""
    known = {str(fact.__struct_config__.tag) for fact in Fact.__subclasses__()}
    for kind in sorted(kinds - known):
        near = get_close_matches(kind[:64], sorted(known), n=1)
        raise InvalidInput(
            f"there is no fact {kind[:64]!r}",
            field="facts",
            value=kind[:64],
            rule="kinds of facts with commas between them, as docs/reference/facts.md lists them",
            fix=f"did you mean {near[0]}?" if near else "leave it out to hear everything",
        )


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
