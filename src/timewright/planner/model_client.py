"""Send requests to a model endpoint over HTTP, with limits on size, time and retries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import aiohttp

from timewright.core.moments import SECOND
from timewright.core.sensitive_keys import redact_text
from timewright.operations.text_safety import sanitize
from timewright.planner.api_dialects import ApiRequest

MAX_TRIES = 4
MAX_WAIT_S = 30.0
MAX_RESPONSE_BYTES = 2_000_000
MAX_REASON_CHARS = 300
QUOTA_SIGNS = ("insufficient_quota", "exceeded your current quota", "credit balance is too low")
RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})

Sleep = Callable[[float], Awaitable[None]]


class ModelUnavailable(Exception):
    """The endpoint gave no usable response; the message contains no secret."""


class ModelClient:
    """Sends requests to one endpoint. The API key goes into a header and is not stored."""

    def __init__(
        self, base_url: str, *, timeout: timedelta = 60 * SECOND, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._base = base_url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout.total_seconds(), connect=10)
        self._sleep = sleep

    def send(self, request: ApiRequest) -> Any:
        """Send one request and return the parsed response; retry a busy endpoint."""
        return asyncio.run(self._send_with_retries(request))

    async def _send_with_retries(self, request: ApiRequest) -> Any:
        problem = ""
        async with aiohttp.ClientSession(timeout=self._timeout, trust_env=False) as session:
            for number in range(MAX_TRIES):
                wait = float(2**number)
                try:
                    status, retry_after, text = await self._send_once(session, request)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    problem = f"the endpoint does not answer: {type(error).__name__}"
                else:
                    if 200 <= status < 300:
                        return _read(text)
                    reason = _reason(text, request)
                    problem = f"the endpoint answered {status}" + (f": {reason}" if reason else "")
                    if status not in RETRYABLE_STATUSES or is_quota_used_up(reason):
                        break
                    wait = retry_after if retry_after is not None else wait
                if number < MAX_TRIES - 1:
                    await self._sleep(min(wait, MAX_WAIT_S))
        raise ModelUnavailable(problem)

    async def _send_once(
        self, session: aiohttp.ClientSession, request: ApiRequest
    ) -> tuple[int, float | None, bytes]:
        url = f"{self._base}{request.path}"
        # Redirects are refused, because a redirect would send the key to another host.
        async with session.post(
            url, json=request.body, headers=request.headers, allow_redirects=False
        ) as response:
            text = await response.content.read(MAX_RESPONSE_BYTES + 1)
            while len(text) <= MAX_RESPONSE_BYTES and (
                more := await response.content.read(MAX_RESPONSE_BYTES)
            ):
                text += more
            if len(text) > MAX_RESPONSE_BYTES:
                raise ModelUnavailable(f"the response is larger than {MAX_RESPONSE_BYTES} bytes")
            return response.status, _seconds(response.headers.get("Retry-After")), text


def is_quota_used_up(problem: str) -> bool:
    """Whether a provider refuses because the account has no tokens or money left; waiting does not help."""
    lowered = problem.lower()
    return any(sign in lowered for sign in QUOTA_SIGNS)


def _reason(text: bytes, request: ApiRequest) -> str:
    """Return the provider's own words about a refused request, without the key that was sent."""
    shown = text[:MAX_REASON_CHARS].decode(errors="replace")
    try:
        found = json.loads(text[:MAX_RESPONSE_BYTES])
        error = found.get("error", found) if isinstance(found, dict) else {}
        parts = [error.get(name) for name in ("code", "message")] if isinstance(error, dict) else [error]
        shown = " ".join(part for part in parts if isinstance(part, str))
    except (ValueError, RecursionError):
        pass
    for value in request.headers.values():
        shown = shown.replace(value.removeprefix("Bearer "), "…")
    return str(sanitize(redact_text(shown.strip()), max_chars=MAX_REASON_CHARS))


def _read(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelUnavailable(f"the response is not JSON: {type(error).__name__}") from None


def _seconds(text: str | None) -> float | None:
    """Parse Retry-After as seconds; a date is ignored."""
    try:
        found = float(text) if text is not None else None
    except ValueError:
        return None
    return found if found is not None and 0 <= found < 86_400 else None
