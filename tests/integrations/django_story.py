"""A Django project that uses its tasks, run by test_django.py in a process of its own; prints what it saw."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import django
from django.conf import settings

FOLDER = Path.cwd()
HAS_TASKS = django.VERSION >= (6,)
settings.configure(
    BASE_DIR=FOLDER,
    SECRET_KEY="test",
    USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "db.sqlite3"}},
    INSTALLED_APPS=[
        *([] if HAS_TASKS else ["django_tasks"]),
        "timewright.integrations.django",
        "shop",
    ],
    TASKS={
        "default": {
            "BACKEND": "timewright.integrations.django.tasks.TimewrightBackend",
            "QUEUES": ["default", "mail"],
            "OPTIONS": {"retry": {"max_attempts": 2, "backoff": {"constant": "0.01s"}}},
        }
    },
)
sys.path.insert(0, str(FOLDER))
(FOLDER / "shop").mkdir()
(FOLDER / "shop/__init__.py").touch()
(FOLDER / "shop/schedules.py").write_text("LOADED = True\n")
(FOLDER / "shop/tasks.py").write_text(
    f"""
from {"django.tasks" if HAS_TASKS else "django_tasks"} import task
from timewright.integrations.django import scheduler

CALLS = []


@task
def add(one, other):
    return one + other


@task(takes_context=True)
def fail(context, text):
    CALLS.append(context.attempt)
    raise ValueError(text)


@task
async def later():
    return "useful"


@task(priority=50, queue_name="mail")
def urgent():
    return None


@scheduler.schedule(manual=True)
@task
def clean_up():
    CALLS.append("clean")
"""
)
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402
from django.utils import timezone  # noqa: E402

from timewright.integrations.django import scheduler  # noqa: E402

seen: dict[str, Any] = {"version": django.get_version(), "discovered": "shop.schedules" in sys.modules}
call_command("check")
call_command("migrate", verbosity=0)
seen["files_after_migrate"] = sorted(path.name for path in FOLDER.glob("timewright*"))

from shop import tasks as module  # type: ignore[import-not-found] # noqa: E402

tasks: ModuleType = module
result = tasks.add.enqueue(1, other=2)
deferred = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1, 1)
seen["before"] = [str(result.status), str(tasks.add.get_result(result.id).status)]
connection.ensure_connection()
with scheduler:
    scheduler.result(result.id)
    result.refresh()
    seen["result"] = [str(result.status), result.return_value, result.attempts]
    async_result = tasks.later.enqueue()
    seen["async"] = scheduler.result(async_result.id)
    failing = tasks.fail.enqueue("broken")
    try:
        scheduler.result(failing.id)
    except Exception as error:  # noqa: BLE001 - its class is looked at by the test
        seen["raised"] = type(error).__name__
    failing.refresh()
    seen["failed"] = [
        str(failing.status),
        [one.exception_class.__name__ for one in failing.errors],
        tasks.CALLS[:],
    ]
    run = scheduler.runs.get(tasks.urgent.enqueue().id).run
    seen["urgent"] = [run.schedule, run.queue, run.priority]
    run = scheduler.runs.get(deferred.id).run
    seen["deferred"] = [run.state, (run.fire_at - timezone.now()).total_seconds() > 3000]
    seen["periodic"] = [scheduler.run_now("clean_up"), tasks.CALLS[-1]]
sys.stdout.write(json.dumps(seen))
