"""Signed with the installation's secret key and not stored: tokens of attempts, and links to questions.

The token of an attempt is `twr_`, the run, the fence, the second it expires, and the signature. It may
change the run's own schedule while the run is leased with this fence. A link is `twa_`, the run that waits
for an answer, and the signature. It takes one answer, because a run takes one.
"""

from __future__ import annotations

import hmac
import re
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from timewright.access.keyring import Keyring
from timewright.core.run.run import Run, RunState

LIFETIME = timedelta(minutes=60)
RUN_TOKEN_PREFIX = "twr_"  # noqa: S105 - no secret
_SIGNATURE_CHARS = 32
_LINK = re.compile(r"twa_(run_[0-9A-Z]{26})_([0-9a-f]{64})")
_TOKEN = re.compile(r"twr_(run_[0-9A-Z]{26})_(\d{1,18})_(\d{1,12})_([0-9a-f]{32})")


class RunTokenClaims(Struct, frozen=True):
    """What a token with a valid signature says."""

    run_id: str
    fence: int
    expires_at: datetime

    def is_valid(self, run: Run | None, *, now: datetime) -> bool:
        """Whether the attempt that has this token is still running."""
        is_current = run is not None and run.state is RunState.LEASED and run.fence == self.fence
        return is_current and now < self.expires_at


def new_run_token(keyring: Keyring, run_id: str, fence: int, *, now: datetime) -> str:
    """Return the token of an attempt."""
    body = f"{RUN_TOKEN_PREFIX}{run_id}_{fence}_{int((now + LIFETIME).timestamp())}"
    return f"{body}_{keyring.current.digest(body)[:_SIGNATURE_CHARS]}"


def read_run_token(keyring: Keyring, token: str) -> RunTokenClaims | None:
    """Return what a token says; None if it is not one of ours."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        return None
    body = token.rpartition("_")[0]
    is_signed = [hmac.compare_digest(key.digest(body)[:_SIGNATURE_CHARS], found[4]) for key in keyring.keys]
    if not any(is_signed):
        return None
    expires_at = datetime.fromtimestamp(int(found[3]), UTC)
    return RunTokenClaims(run_id=found[1], fence=int(found[2]), expires_at=expires_at)


def new_answer_slug(keyring: Keyring, run_id: str) -> str:
    """Return the last part of the link with which a person without a key answers a run that waits."""
    return f"twa_{run_id}_{keyring.current.digest(f'twa_{run_id}')[:64]}"


def read_answer_slug(keyring: Keyring, slug: str) -> str | None:
    """Return the run that a link leads to; None if it is not one of ours."""
    found = _LINK.fullmatch(slug)
    if found is None:
        return None
    digests = [key.digest(f"twa_{found[1]}")[:64] for key in keyring.keys]
    return found[1] if any(hmac.compare_digest(one, found[2]) for one in digests) else None
