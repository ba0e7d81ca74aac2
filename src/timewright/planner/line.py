"""The line to a model: one request over HTTP, everything limited, and patience where it is asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import aiohttp

from timewright.core.moments import SECOND
from timewright.planner.wires import Asked

MOST_TRIES = 4
LONGEST_WAIT = 30.0
LARGEST_ANSWER = 2_000_000
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})

Sleep = Callable[[float], Awaitable[None]]


class NoAnswer(Exception):
    """The endpoint gave no answer that can be used; the text says why and holds nothing secret."""


class Line:
    """Asks an endpoint at any address; a key it is handed goes into a header and nowhere else."""

    def __init__(
        self, base_url: str, *, timeout: timedelta = 60 * SECOND, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._base = base_url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout.total_seconds(), connect=10)
        self._sleep = sleep

    def ask(self, asked: Asked) -> Any:
        """Send one request and read its answer; a busy endpoint is asked again when it says so."""
        return asyncio.run(self._patiently(asked))

    async def _patiently(self, asked: Asked) -> Any:
        trouble = ""
        async with aiohttp.ClientSession(timeout=self._timeout, trust_env=False) as session:
            for number in range(MOST_TRIES):
                wait = float(2**number)
                try:
                    status, retry_after, text = await self._once(session, asked)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    trouble = f"the endpoint does not answer: {type(error).__name__}"
                else:
                    if 200 <= status < 300:
                        return _read(text)
                    trouble = f"the endpoint answered {status}"
                    if status not in BUSY:
                        break
                    wait = retry_after if retry_after is not None else wait
                if number < MOST_TRIES - 1:
                    await self._sleep(min(wait, LONGEST_WAIT))
        raise NoAnswer(trouble)

    async def _once(self, session: aiohttp.ClientSession, asked: Asked) -> tuple[int, float | None, bytes]:
        url = f"{self._base}{asked.path}"
        # A redirect would carry the key to whoever it names.
        async with session.post(
            url, json=asked.body, headers=asked.headers, allow_redirects=False
        ) as response:
            text = await response.content.read(LARGEST_ANSWER + 1)
            while len(text) <= LARGEST_ANSWER and (more := await response.content.read(LARGEST_ANSWER)):
                text += more
            if len(text) > LARGEST_ANSWER:
                raise NoAnswer(f"the answer is larger than {LARGEST_ANSWER} bytes")
            return response.status, _seconds(response.headers.get("Retry-After")), text


def _read(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoAnswer(f"the answer is not JSON: {type(error).__name__}") from None


def _seconds(text: str | None) -> float | None:
    """How long to wait, where that is a number of seconds; a date is not waited for."""
    try:
        found = float(text) if text is not None else None
    except ValueError:
        return None
    return found if found is not None and 0 <= found < 86_400 else None
