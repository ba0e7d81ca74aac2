"""Recurrence rules (RFC 5545) as triggers."""

from __future__ import annotations

from timewright.core.recurrence.rrule.trigger import Rrule

__all__ = ["Rrule"]
