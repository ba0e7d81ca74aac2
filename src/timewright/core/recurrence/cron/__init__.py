"""Cron expressions as triggers."""

from __future__ import annotations

from timewright.core.recurrence.cron.trigger import Cron

__all__ = ["Cron"]
