"""The event stream: facts of the engine as server-sent events, with bounded queues."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import msgspec
from starlette.types import Receive, Send

from timewright.core.facts import FACT_KINDS, Fact, TickFinished
from timewright.core.input.encoding import encode
from timewright.errors import Forbidden, InvalidInput, OverQuota, TimewrightError, Unauthorized
from timewright.interfaces.http.problems import HttpProblem
from timewright.ports import ChangeListener, Store
from timewright.ports.store import ScheduleNames, names_in

HISTORY_FACTS = 1000
MAX_PENDING_FACTS = 1000
MAX_STREAMS = 200
MAX_STREAMS_PER_CALLER = 20
KEEPALIVE_S = 15.0
# An idle stream ends at most this long after its key was revoked or has expired, or its session was ended.
CHECK_CALLER_S = 3.0
SEND_TIMEOUT_S = 20.0
RETRY_MS = 2000
CHANGE_INTERVAL_S = 0.5

NumberedFact = tuple[int, Fact]


class EventSubscriber:
    """The queue of one stream. The stream ends if the client reads too slowly."""

    def __init__(self, namespace: str, kinds: frozenset[str], caller: str) -> None:
        self.caller = caller
        self._namespace = namespace
        self._kinds = kinds
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._pending: deque[NumberedFact] = deque()
        self._last_change_at = -CHANGE_INTERVAL_S
        self._change_scheduled = False
        self._has_changed = False
        self.ended = ""

    def push(self, numbered: NumberedFact) -> None:
        """Add a fact to the queue; thread-safe."""
        if self.ended or not self.wants(numbered[1]):
            return
        if len(self._pending) >= MAX_PENDING_FACTS:
            self.end("slow")
            return
        self._pending.append(numbered)
        self._wake()

    def end(self, reason: str) -> None:
        """End the stream; thread-safe."""
        self.ended = reason
        self._wake()

    def notify_change(self) -> None:
        """Report that another process has written, at most every 0.5 s; thread-safe."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._schedule_change)

    def pop_change(self) -> bool:
        """Return whether another process has written since the last call."""
        changed, self._has_changed = self._has_changed, False
        return changed

    def wants(self, fact: Fact) -> bool:
        """Whether a fact belongs to the namespace and the requested kinds."""
        if isinstance(fact, TickFinished) and not self._kinds:
            return False
        kind = str(type(fact).__struct_config__.tag)
        return fact.namespace == self._namespace and (not self._kinds or kind in self._kinds)

    async def next_batch(self, *, timeout_s: float) -> list[NumberedFact]:
        """Wait for facts and return them; an empty list after the timeout."""
        self._ready.clear()
        if not self._pending and not self.ended and not self._has_changed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ready.wait(), timeout_s)
        return [self._pending.popleft() for _ in range(len(self._pending))]

    def _schedule_change(self) -> None:
        if not self._change_scheduled:
            self._change_scheduled = True
            wait = max(self._last_change_at + CHANGE_INTERVAL_S - self._loop.time(), 0.0)
            self._loop.call_later(wait, self._set_changed)

    def _set_changed(self) -> None:
        self._change_scheduled, self._has_changed = False, True
        self._last_change_at = self._loop.time()
        self._ready.set()

    def _wake(self) -> None:
        # The loop may be closed already when the process ends.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ready.set)


class StoreWatcher:
    """A thread that reports writes of other processes. The store does not say what was written."""

    def __init__(
        self, new_listener: Callable[[], ChangeListener | None], *, on_change: Callable[[], None]
    ) -> None:
        self._new_listener = new_listener
        self._on_change = on_change
        self._lock = threading.Lock()
        self._listener: ChangeListener | None = None

    def start(self) -> None:
        """Start to watch; does nothing for a store that no other process can write to."""
        with self._lock:
            if self._listener is not None:
                return
            self._listener = self._new_listener()
            if self._listener is not None:
                threading.Thread(
                    target=self._watch, args=(self._listener,), name="timewright-store-watcher", daemon=True
                ).start()

    def stop(self) -> None:
        """Stop to watch."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _watch(self, listener: ChangeListener) -> None:
        try:
            for _ in listener.changes():
                self._on_change()
        except TimewrightError:
            # The store is unavailable; clients poll.
            return


class EventHub:
    """An observer of the engine that passes facts to all subscribers and keeps the last 1000 for replay."""

    def __init__(self, instance: str = "") -> None:
        self.schedule_names = ScheduleNames(lambda _: "")
        # A part of event ids, so that an id of another process, or of this one before a restart, is unknown.
        self._instance = instance or secrets.token_hex(4)
        self._watcher: StoreWatcher | None = None
        self._lock = threading.Lock()
        self._last = 0
        self._history: deque[NumberedFact] = deque(maxlen=HISTORY_FACTS)
        self._subscribers: set[EventSubscriber] = set()
        self._closed = False

    def notify(self, fact: Fact) -> None:
        """Number a fact and pass it to all subscribers."""
        with self._lock:
            self._last += 1
            numbered = (self._last, fact)
            self._history.append(numbered)
            subscribers = tuple(self._subscribers)
        for subscriber in subscribers:
            subscriber.push(numbered)

    def watch_store(self, store: Store, new_listener: Callable[[], ChangeListener | None]) -> None:
        """Name schedules in facts, and report writes of other processes while there are subscribers."""
        self.schedule_names = names_in(store)
        self._watcher = StoreWatcher(new_listener, on_change=self._notify_change)

    def subscribe(
        self, namespace: str, kinds: frozenset[str], last_id: str, *, caller: str
    ) -> tuple[EventSubscriber, list[NumberedFact], str]:
        """Add a subscriber; returns it, the facts since its last id, and where the stream starts."""
        _check_kinds(kinds)
        subscriber = EventSubscriber(namespace, kinds, caller)
        with self._lock:
            if self._closed or len(self._subscribers) >= MAX_STREAMS:
                raise HttpProblem(
                    "too_many_streams",
                    "too many event streams",
                    rule=f"at most {MAX_STREAMS} streams",
                    fix="try again later",
                    headers={"retry-after": "5"},
                )
            if sum(one.caller == caller for one in self._subscribers) >= MAX_STREAMS_PER_CALLER:
                raise OverQuota(
                    "too many event streams of this key",
                    field="streams",
                    value=MAX_STREAMS_PER_CALLER,
                    rule=f"at most {MAX_STREAMS_PER_CALLER} streams per key",
                    fix="close a stream of this key, for example a browser tab",
                )
            self._subscribers.add(subscriber)
            missed, since = self._since(last_id)
        if self._watcher is not None:
            self._watcher.start()
        return subscriber, [one for one in missed if subscriber.wants(one[1])], since

    def unsubscribe(self, subscriber: EventSubscriber) -> None:
        """Remove a subscriber."""
        with self._lock:
            self._subscribers.discard(subscriber)
            is_last = not self._subscribers
        if is_last and self._watcher is not None:
            self._watcher.stop()

    def close(self) -> None:
        """End all streams and accept no new ones."""
        with self._lock:
            self._closed = True
            subscribers = tuple(self._subscribers)
        for subscriber in subscribers:
            subscriber.end("stopping")

    def _notify_change(self) -> None:
        with self._lock:
            subscribers = tuple(self._subscribers)
        for subscriber in subscribers:
            subscriber.notify_change()

    def id_of(self, number: int) -> str:
        """Return the event id of a numbered fact of this instance."""
        return f"{self._instance}-{number}"

    def _since(self, last_id: str) -> tuple[list[NumberedFact], str]:
        """Return the facts after an id, and `id`, or `gap` if some are lost, or `now` without an id."""
        instance, _, number = last_id.rpartition("-")
        is_known = instance == self._instance and number.isascii() and number.isdigit() and len(number) < 16
        if not is_known:
            return [], "gap" if last_id else "now"
        oldest = self._history[0][0] if self._history else self._last + 1
        missed = [one for one in self._history if one[0] > int(number)]
        return missed, "id" if int(number) + 1 >= oldest else "gap"


class EventStream:
    """A response that streams until the client disconnects or reads too slowly, or the server stops.

    `check_caller` raises when the caller may no longer read; it is called before each batch of facts.
    """

    def __init__(
        self,
        hub: EventHub,
        subscription: tuple[EventSubscriber, list[NumberedFact], str],
        *,
        check_caller: Callable[[], None],
    ) -> None:
        self._hub = hub
        self._check_caller = check_caller
        self._subscriber, self._missed, self._since = subscription

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Send events until the stream ends."""
        disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
        disconnect.add_done_callback(lambda _: self._subscriber.end("gone"))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            async for chunk in self._chunks():
                await asyncio.wait_for(
                    send({"type": "http.response.body", "body": chunk, "more_body": True}), SEND_TIMEOUT_S
                )
            await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), SEND_TIMEOUT_S)
        except (TimeoutError, OSError):
            # A client that does not read is treated as disconnected.
            return
        finally:
            disconnect.cancel()
            self._hub.unsubscribe(self._subscriber)

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield f'retry: {RETRY_MS}\nevent: hello\ndata: {{"from":"{self._since}"}}\n\n'.encode()
        if self._missed:
            yield await self._encode(self._missed)
        silent_s = 0.0
        while True:
            wait_s = min(CHECK_CALLER_S, KEEPALIVE_S)
            batch = await self._subscriber.next_batch(timeout_s=wait_s)
            text = await self._encode(batch)
            if self._subscriber.ended and not text:
                yield f'event: bye\ndata: {{"reason":"{self._subscriber.ended}"}}\n\n'.encode()
                return
            if self._subscriber.pop_change():
                text += b"event: changed\ndata: {}\n\n"
            silent_s = 0.0 if text else silent_s + wait_s
            if text or silent_s >= KEEPALIVE_S:
                yield text or b": keepalive\n\n"
                silent_s = 0.0

    async def _encode(self, batch: list[NumberedFact]) -> bytes:
        """Check the caller, then encode; in a thread because both may read the store."""
        try:
            return await asyncio.to_thread(self._check_and_encode, batch)
        except (Unauthorized, Forbidden):
            self._subscriber.end("unauthorized")
        except TimewrightError:
            self._subscriber.end("unavailable")
        return b""

    def _check_and_encode(self, batch: list[NumberedFact]) -> bytes:
        self._check_caller()
        return b"".join(map(self._encode_one, batch))

    def _encode_one(self, numbered: NumberedFact) -> bytes:
        number, fact = numbered
        kind = type(fact).__struct_config__.tag
        schedule = self._hub.schedule_names(getattr(fact, "schedule_id", ""))
        data = msgspec.json.encode(({"schedule": schedule} if schedule else {}) | encode(fact))
        return f"id: {self._hub.id_of(number)}\nevent: {kind}\ndata: ".encode() + data + b"\n\n"


def _check_kinds(kinds: frozenset[str]) -> None:
    """Raise for an unknown kind, for which the stream would stay silent."""
    for kind in sorted(kinds - FACT_KINDS.keys()):
        near = get_close_matches(kind[:64], sorted(FACT_KINDS), n=1)
        raise InvalidInput(
            f"unknown fact {kind[:64]!r}",
            field="facts",
            value=kind[:64],
            rule="comma-separated kinds of facts, see docs/reference/facts.md",
            fix=f"did you mean {near[0]}?" if near else "leave it out to receive all facts",
        )


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
