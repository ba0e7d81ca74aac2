"""The publish target: one message for each attempt, handed over once, and awaited where that is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from timewright.core.moments import spell_duration
from timewright.core.run import Failed, Outcome, Succeeded, TimedOut
from timewright.core.target import Publish
from timewright.errors import InvalidInput, MissingExtra, NotAllowed, NotFound
from timewright.ports import Launch
from timewright.targets.answers import closing, failed, with_result
from timewright.targets.errands import Attempt, Errands
from timewright.targets.loop import LAST_WORD, LoopThread
from timewright.targets.publish.address import Address, place_of
from timewright.targets.publish.broker import until
from timewright.targets.publish.lines import Lines
from timewright.targets.publish.message import Message, Receipt
from timewright.targets.publish.rules import Prepared, is_allowed, prepare
from timewright.targets.signing import Revealed, SecretLookup, reveal_aside

# The engine stops us for these reasons while the run goes on elsewhere or later: the work is left alone,
# and the next attempt finds it by its key.
GOES_ON = frozenset({"stopping", "lease lost", "lease not renewed in time"})

LONGEST_SAID = 500


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
        self._errands = Errands(loop, given_back=closing())

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Attempt:
        """Send the message and return at once; `done` is called once, from the loop's thread."""
        return self._errands.begin(lambda attempt: self._attempt(launch, attempt), done)

    def close(self, *, grace: timedelta) -> None:
        """Let messages be accepted for that long, give the rest back, and close every connection."""
        self._errands.close(grace=grace)
        with suppress(NotAllowed, RuntimeError, TimeoutError):
            self._loop.call(self._lines.close(), timeout=2 * LAST_WORD)

    async def _attempt(self, launch: Launch, attempt: Attempt) -> Outcome:
        """The boundary: whatever goes wrong in here is an outcome."""
        target = launch.target
        if not isinstance(target, Publish):
            return Failed(error="this is not a publish target", final=True)
        try:
            ready = prepare(target)
            ready.kind.check_installed()
            revealed = await reveal_aside(ready.secrets, namespace=launch.namespace, lookup=self._secrets)
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
        return await self._deliver(ready, message, address=address, revealed=revealed, attempt=attempt)

    async def _deliver(
        self, ready: Prepared, message: Message, *, address: Address, revealed: Revealed, attempt: Attempt
    ) -> Outcome:
        named, options = f"{ready.kind.word} at {address.shown}", message.options
        place = (ready.kind.word, address, *options.connection)
        deadline = asyncio.timeout(message.time_limit)
        try:
            async with deadline, self._lines.use(place, lambda: ready.kind.make(address, options)) as broker:
                return await _through(broker, message, named=named, attempt=attempt)
        except InvalidInput as error:
            return Failed(error=f"{error.message}; {error.rule}", final=True)
        except Exception as error:  # noqa: BLE001 - every client library has errors of its own
            if deadline.expired():
                return _overdue(message, named)
            said = revealed.hide_text(_said(error))
            return failed(f"{named} did not take the message: {said}; {ready.kind.remedy}")


async def _through(broker: Any, message: Message, *, named: str, attempt: Attempt) -> Outcome:
    """Hand the message over, and wait for the result if that is asked."""
    receipt: Receipt = await broker.publish(message)
    told = {"broker": named, "id": receipt.id, "duplicate": receipt.duplicate, **receipt.detail}
    if not message.wait:
        return Succeeded(result=told)
    try:
        outcome: Outcome = await until(lambda: broker.look(message, receipt.id))
    except asyncio.CancelledError:
        if not (attempt.given_back or attempt.reason in GOES_ON):
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
