"""The schedules of the demo, as a small company might run them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import Struct

from timewright.core.moments import MINUTE, SECOND


class DemoJob(Struct, frozen=True, kw_only=True):
    """One schedule of the demo: its request, how long its runs take, and how often they fail.

    One launch in `fails_one_in` begins a streak of failures, one in `hangs_one_in` never answers, and the
    launches in `failing_launches` fail.
    """

    request: dict[str, Any]
    duration: timedelta
    fails_one_in: int = 0
    error: str = "503 Service Unavailable"
    hangs_one_in: int = 0
    failing_launches: tuple[int, ...] = ()


JOBS = (
    DemoJob(
        request={
            "name": "nightly-report",
            "cron": "0 3 * * *",
            "zone": "Europe/Berlin",
            "http": "POST https://reports.example.com/nightly",
            "group": "reports",
            "tags": ["finance"],
            "description": "Yesterday's figures, ready in the morning.",
        },
        duration=4 * MINUTE,
    ),
    DemoJob(
        request={
            "name": "weekday-digest",
            "cron": "30 8 * * mon-fri",
            "zone": "America/New_York",
            "http": "POST https://mail.example.com/digest",
            "group": "reports",
            "calendar": {"except": ["holidays"]},
        },
        duration=40 * SECOND,
    ),
    DemoJob(
        request={
            "name": "orders-poll",
            "every": "10m",
            "http": "GET https://shop.example.com/orders?since=last",
            "group": "shop",
            "adaptive": True,
            "clamp": {"min": "30s", "max": "1h"},
            "metadata": {"team": "shop"},
        },
        duration=2 * SECOND,
        fails_one_in=60,
    ),
    DemoJob(
        request={
            "name": "stock-sync",
            "every": "15m",
            "call": "stock.sync",
            "group": "shop",
            "overlap": "skip",
            "limits": ["erp"],
        },
        duration=13 * MINUTE,
        fails_one_in=25,
        hangs_one_in=40,
        error="ERP refused the session: too many connections",
    ),
    DemoJob(
        request={
            "name": "payments-settle",
            "cron": "*/20 * * * *",
            "call": "payments.settle",
            "group": "billing",
            "max_attempts": 5,
            "limits": ["bank"],
        },
        duration=50 * SECOND,
        fails_one_in=9,
        error="bank answered 429, try again in 60 s",
    ),
    DemoJob(
        request={
            "name": "invoice-run",
            "cron": "0 6 * * mon",
            "zone": "Europe/Berlin",
            "call": "invoices.run",
            "group": "billing",
            "tags": ["finance", "monthly"],
        },
        duration=11 * MINUTE,
    ),
    DemoJob(
        request={
            "name": "index-refresh",
            "every": "10m",
            "call": "search.refresh",
            "overlap": "queue",
            "group": "search",
            "jitter": "30s",
        },
        duration=3 * MINUTE,
        fails_one_in=45,
    ),
    DemoJob(
        request={
            "name": "thumbnails",
            "every": "30m",
            "call": "media.thumbnails",
            "overlap": "replace",
            "group": "media",
        },
        duration=6 * MINUTE,
        hangs_one_in=60,
    ),
    DemoJob(
        request={
            "name": "backup-database",
            "cron": "15 2 * * *",
            "zone": "Europe/Berlin",
            "call": "backup.database",
            "group": "ops",
            "tags": ["critical"],
            "exhausted": "park",
        },
        duration=18 * MINUTE,
        failing_launches=(5, 6, 7),
        error="no space left on device: /backup is 100 % full",
    ),
    DemoJob(
        request={
            "name": "certificate-check",
            "every": "6h",
            "http": "GET https://ops.example.com/certificates",
            "group": "ops",
        },
        duration=SECOND,
    ),
    DemoJob(
        request={
            "name": "queue-depth",
            "every": "15m",
            "http": "GET https://ops.example.com/queue-depth",
            "group": "ops",
            "adaptive": True,
        },
        duration=SECOND,
        fails_one_in=200,
    ),
    DemoJob(
        request={
            "name": "crm-export",
            "every": "1h",
            "call": "crm.export",
            "group": "exports",
            "catch_up": "all",
            "limits": ["crm-api"],
        },
        duration=7 * MINUTE,
        fails_one_in=11,
        error="CRM: token expired",
    ),
    DemoJob(
        request={
            "name": "old-export",
            "every": "1h",
            "call": "legacy.export",
            "group": "exports",
            "max_attempts": 2,
            "disable_after": 5,
        },
        duration=20 * SECOND,
        fails_one_in=1,
        error="ModuleNotFoundError: no module named 'legacy'",
    ),
    DemoJob(
        request={
            "name": "month-end-close",
            "cron": "0 22 L * *",
            "zone": "Europe/Berlin",
            "call": "books.close",
            "group": "billing",
            "tags": ["finance", "critical"],
        },
        duration=25 * MINUTE,
    ),
    DemoJob(
        request={
            "name": "stand-up",
            "cron": "55 9 * * mon-fri",
            "zone": "Europe/Berlin",
            "note": "Stand-up in five minutes",
            "group": "reminders",
        },
        duration=timedelta(0),
    ),
    DemoJob(
        request={
            "name": "water-the-plants",
            "cron": "0 17 * * tue,fri",
            "zone": "Europe/Berlin",
            "note": "Water the plants",
            "group": "reminders",
        },
        duration=timedelta(0),
    ),
)

LIMITS = {"erp": 1, "bank": 2, "crm-api": 2}
WORKFLOW = {
    "name": "warehouse-load",
    "steps": [
        {"name": "extract-orders", "target": "warehouse.orders"},
        {"name": "extract-stock", "target": "warehouse.stock"},
        {"name": "extract-customers", "target": "warehouse.customers"},
        {"name": "clean", "target": "warehouse.clean", "needs": ["extract-orders", "extract-stock"]},
        {"name": "join", "target": "warehouse.join", "needs": ["clean", "extract-customers"]},
        {"name": "load", "target": "warehouse.load", "needs": ["join"]},
        {"name": "tell-finance", "target": {"kind": "note", "text": "loaded"}, "needs": ["load"]},
        {"name": "refresh-charts", "target": "warehouse.charts", "needs": ["load"]},
    ],
    "schedules": [{"cron": "0 4 * * *", "zone": "Europe/Berlin"}],
}
