"""The publish target: one message for each attempt, handed over once, and awaited where that is asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from timewright.core.moments import spell_duration
from timewright.core.run import Cancelled, Failed, Outcome, Succeeded, TimedOut
from timewright.core.target import Publish
from timewright.errors import InvalidInput, MissingExtra, NotAllowed, NotFound
from timewright.ports import Launch
from timewright.targets.answers import closing, failed, with_result
from timewright.targets.loop import LAST_WORD, Errand, LoopThread
from timewright.targets.publish.address import Address, place_of
from timewright.targets.publish.broker import until
from timewright.targets.publish.lines import Lines
from timewright.targets.publish.message import Message, Receipt
from timewright.targets.publish.rules import Prepared, is_allowed, prepare
from timewright.targets.signing import Revealed, SecretLookup, reveal

# The engine stops us for these reasons while the run goes on elsewhere or later: the work is left alone,
# and the next attempt finds it by its key.
GOES_ON = frozenset({"stopping", "lease lost", "lease not renewed in time"})

LONGEST_SAID = 500

_CLOSING = closing()


class PublishTarget:
    """Hands messages to brokers; however that ends, it ends in an outcome.

    `allowed` are the brokers that may be used: by their word (`celery`), or by scheme, host and port
    (`redis://queue:6379`). None is, unless it is listed.
    """

    def __init__(
        self, loop: LoopThread, *, allowed: Sequence[str] = (), secrets: SecretLookup | None = None
    ) -> None:
        self._loop = loop
        self._allowed = tuple(map(place_of, allowed))
        self._secrets = secrets
        self._lines = Lines()
        self._lock = threading.Lock()
        self._calls: set[_Call] = set()
        self._idle = threading.Event()
        self._idle.set()
        self._closed = False

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> _Call:
        """Send the message and return at once; `done` is called once, from the loop's thread."""
        call = _Call(done)
        with self._lock, suppress(NotAllowed, RuntimeError):
            if not self._closed:
                work = self._attempt(launch, call)
                call.errand = self._loop.submit(work, lambda task: self._ended(call, task))
                self._calls.add(call)
                self._idle.clear()
                return call
        done(_CLOSING)
        return call

    def close(self, *, grace: timedelta) -> None:
        """Let messages be accepted for that long, give the rest back, and close every connection."""
        with self._lock:
            self._closed = True
        if not self._idle.wait(grace.total_seconds()):
            with self._lock:
                left = list(self._calls)
            for call in left:
                call.give_back()
            self._idle.wait(LAST_WORD.total_seconds())
        with suppress(NotAllowed, RuntimeError, TimeoutError):
            self._loop.call(self._lines.close(), timeout=2 * LAST_WORD)

    def _ended(self, call: _Call, task: asyncio.Task[Outcome]) -> None:
        try:
            call.done(call.ending if task.cancelled() else task.result())
        finally:
            with self._lock:
                self._calls.discard(call)
                if not self._calls:
                    self._idle.set()

    async def _attempt(self, launch: Launch, call: _Call) -> Outcome:
        """The boundary: whatever goes wrong in here is an outcome."""
        target = launch.target
        if not isinstance(target, Publish):
            return Failed(error="this is not a publish target", final=True)
        try:
            ready = prepare(target)
            ready.kind.check_installed()
            revealed = await self._reveal(ready, launch)
            address, options = ready.filled(revealed)
            if not is_allowed(ready.kind, (address, *options.elsewhere()), self._allowed):
                return _not_allowed(ready, address)
            message = ready.message(target, launch, options)
        except InvalidInput as error:
            return Failed(error=f"{error.message}; {error.rule}", final=True)
        except MissingExtra as error:
            return Failed(error=f"{error.message}; {error.fix}", unresolved=True)
        except NotFound as error:
            return Failed(error=error.message)
        except Exception as error:  # noqa: BLE001 - a target never raises
            return failed(f"the message could not be made: {type(error).__name__}")
        return await self._deliver(ready, message, address=address, revealed=revealed, call=call)

    async def _deliver(
        self, ready: Prepared, message: Message, *, address: Address, revealed: Revealed, call: _Call
    ) -> Outcome:
        named, options = f"{ready.kind.word} at {address.shown}", message.options
        place = (ready.kind.word, address, *options.connection)
        deadline = asyncio.timeout(message.time_limit)
        try:
            async with deadline, self._lines.use(place, lambda: ready.kind.make(address, options)) as broker:
                return await _through(broker, message, named=named, call=call)
        except InvalidInput as error:
            return Failed(error=f"{error.message}; {error.rule}", final=True)
        except Exception as error:  # noqa: BLE001 - every client library has errors of its own
            if deadline.expired():
                return _overdue(message, named)
            said = revealed.hide_text(_said(error))
            return failed(f"{named} did not take the message: {said}; {ready.kind.remedy}")

    async def _reveal(self, ready: Prepared, launch: Launch) -> Revealed:
        """Look up secrets on another thread: a lookup may ask a store."""
        names = ready.secrets
        if not names:
            return Revealed()
        return await asyncio.to_thread(reveal, names, namespace=launch.namespace, lookup=self._secrets)


class _Call:
    """A message under way."""

    def __init__(self, done: Callable[[Outcome], None]) -> None:
        self.done = done
        self.ending: Outcome = _CLOSING
        self.errand: Errand[Outcome] | None = None
        self.goes_on = False

    def stop(self, reason: str) -> None:
        """Wait no longer; work whose result is awaited is stopped too, unless the run goes on elsewhere."""
        self.goes_on = reason in GOES_ON
        self._end(Cancelled(reason=reason))

    def give_back(self) -> None:
        """Wait no longer, because we close; the work goes on."""
        self.goes_on = True
        self._end(_CLOSING)

    def _end(self, outcome: Outcome) -> None:
        """End with that outcome, unless it has ended or was ended before."""
        if self.ending is _CLOSING:
            self.ending = outcome
        if self.errand is not None:
            self.errand.cancel()


async def _through(broker: Any, message: Message, *, named: str, call: _Call) -> Outcome:
    """Hand the message over, and wait for the result if that is asked."""
    receipt: Receipt = await broker.publish(message)
    told = {"broker": named, "id": receipt.id, "duplicate": receipt.duplicate, **receipt.detail}
    if not message.wait:
        return Succeeded(result=told)
    try:
        outcome: Outcome = await until(lambda: broker.look(message, receipt.id))
    except asyncio.CancelledError:
        if not call.goes_on:
            await _abandon(broker, message, receipt.id)
        raise
    return with_result(outcome, {**told, **(outcome.result or {})})


async def _abandon(broker: Any, message: Message, work: str) -> None:
    # We end in any case, and soon: a broker that cannot be told now is told nothing.
    with suppress(Exception):
        await asyncio.wait_for(broker.abandon(message, work), LAST_WORD.total_seconds() / 2)


def _said(error: Exception) -> str:
    """What a library says, on one line and not at length."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")[:LONGEST_SAID]


def _overdue(message: Message, named: str) -> TimedOut:
    limit = spell_duration(timedelta(seconds=message.time_limit))
    what = "had not finished the work" if message.wait else "had not accepted the message"
    return TimedOut(error=f"{named} {what} within {limit}")


def _not_allowed(ready: Prepared, address: Address) -> Failed:
    word = address.place if address.host else ready.kind.word
    return Failed(
        error=f"publishing to {ready.kind.word} at {address.shown} is not allowed here;"
        f" the one who runs this instance allows it with the setting publish: [{word}]",
        final=True,
    )
