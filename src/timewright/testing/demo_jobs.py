"""The schedules of the demo: what a small company might run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import Struct

from timewright.core.moments import MINUTE, SECOND


class Job(Struct, frozen=True, kw_only=True):
    """One schedule of the demo: what is asked for, how long its runs take, and how often they fail.

    One launch in `fails` begins a streak of failures, one in `hangs` never answers, those in `breaks` fail.
    """

    ask: dict[str, Any]
    takes: timedelta
    fails: int = 0
    says: str = "503 Service Unavailable"
    hangs: int = 0
    breaks: tuple[int, ...] = ()


JOBS = (
    Job(
        ask={
            "name": "nightly-report",
            "cron": "0 3 * * *",
            "zone": "Europe/Berlin",
            "http": "POST https://reports.example.com/nightly",
            "group": "reports",
            "tags": ["finance"],
            "description": "Yesterday's figures, before anyone is awake.",
        },
        takes=4 * MINUTE,
    ),
    Job(
        ask={
            "name": "weekday-digest",
            "cron": "30 8 * * mon-fri",
            "zone": "America/New_York",
            "http": "POST https://mail.example.com/digest",
            "group": "reports",
            "calendar": {"except": ["holidays"]},
        },
        takes=40 * SECOND,
    ),
    Job(
        ask={
            "name": "orders-poll",
            "every": "10m",
            "http": "GET https://shop.example.com/orders?since=last",
            "group": "shop",
            "adaptive": True,
            "clamp": {"min": "30s", "max": "1h"},
            "metadata": {"team": "shop"},
        },
        takes=2 * SECOND,
        fails=60,
    ),
    Job(
        ask={
            "name": "stock-sync",
            "every": "15m",
            "call": "stock.sync",
            "group": "shop",
            "overlap": "skip",
            "limits": ["erp"],
        },
        takes=13 * MINUTE,
        fails=25,
        hangs=40,
        says="ERP refused the session: too many connections",
    ),
    Job(
        ask={
            "name": "payments-settle",
            "cron": "*/20 * * * *",
            "call": "payments.settle",
            "group": "billing",
            "max_attempts": 5,
            "limits": ["bank"],
        },
        takes=50 * SECOND,
        fails=9,
        says="bank answered 429, try again in 60 s",
    ),
    Job(
        ask={
            "name": "invoice-run",
            "cron": "0 6 * * mon",
            "zone": "Europe/Berlin",
            "call": "invoices.run",
            "group": "billing",
            "tags": ["finance", "monthly"],
        },
        takes=11 * MINUTE,
    ),
    Job(
        ask={
            "name": "index-refresh",
            "every": "10m",
            "call": "search.refresh",
            "overlap": "queue",
            "group": "search",
            "jitter": "30s",
        },
        takes=3 * MINUTE,
        fails=45,
    ),
    Job(
        ask={
            "name": "thumbnails",
            "every": "30m",
            "call": "media.thumbnails",
            "overlap": "replace",
            "group": "media",
        },
        takes=6 * MINUTE,
        hangs=60,
    ),
    Job(
        ask={
            "name": "backup-database",
            "cron": "15 2 * * *",
            "zone": "Europe/Berlin",
            "call": "backup.database",
            "group": "ops",
            "tags": ["critical"],
            "exhausted": "park",
        },
        takes=18 * MINUTE,
        breaks=(5, 6, 7),
        says="no space left on device: /backup is 100 % full",
    ),
    Job(
        ask={
            "name": "certificate-check",
            "every": "6h",
            "http": "GET https://ops.example.com/certificates",
            "group": "ops",
        },
        takes=SECOND,
    ),
    Job(
        ask={
            "name": "queue-depth",
            "every": "15m",
            "http": "GET https://ops.example.com/queue-depth",
            "group": "ops",
            "adaptive": True,
        },
        takes=SECOND,
        fails=200,
    ),
    Job(
        ask={
            "name": "crm-export",
            "every": "1h",
            "call": "crm.export",
            "group": "exports",
            "catch_up": "all",
            "limits": ["crm-api"],
        },
        takes=7 * MINUTE,
        fails=11,
        says="CRM: token expired",
    ),
    Job(
        ask={
            "name": "old-export",
            "every": "1h",
            "call": "legacy.export",
            "group": "exports",
            "max_attempts": 2,
            "disable_after": 5,
        },
        takes=20 * SECOND,
        fails=1,
        says="ModuleNotFoundError: no module named 'legacy'",
    ),
    Job(
        ask={
            "name": "month-end-close",
            "cron": "0 22 L * *",
            "zone": "Europe/Berlin",
            "call": "books.close",
            "group": "billing",
            "tags": ["finance", "critical"],
        },
        takes=25 * MINUTE,
    ),
    Job(
        ask={
            "name": "stand-up",
            "cron": "55 9 * * mon-fri",
            "zone": "Europe/Berlin",
            "note": "Stand-up in five minutes",
            "group": "reminders",
        },
        takes=timedelta(0),
    ),
    Job(
        ask={
            "name": "water-the-plants",
            "cron": "0 17 * * tue,fri",
            "zone": "Europe/Berlin",
            "note": "Water the plants",
            "group": "reminders",
        },
        takes=timedelta(0),
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
