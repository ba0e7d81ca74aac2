from datetime import timedelta

from celery import Celery
from celery.schedules import crontab, schedule, solar

app = Celery("shop", broker="redis://:s3cret@queue.internal:6379/2")
app.conf.timezone = "Europe/London"
INTERVAL = 90

app.conf.beat_schedule = {
    "add-every-30-seconds": {"task": "tasks.add", "schedule": 30.0, "args": (16, 16)},
    "monday-and-first": {
        "task": "tasks.report",
        # all fields must match: a Monday that is the first
        "schedule": crontab(hour=7, minute=30, day_of_week=1, day_of_month="1-7"),
        "kwargs": {"kind": "weekly"},
        "options": {"queue": "reports", "expires": 15.0, "routing_key": "r"},
    },
    "quarter-hours": {"task": "tasks.poll", "schedule": crontab(minute="*/15")},
    "relative": {"task": "tasks.clean", "schedule": schedule(timedelta(hours=1), relative=True)},
    "at-dawn": {"task": "tasks.dawn", "schedule": solar("dawn", -37.8, 144.9)},
    "computed": {"task": "tasks.poll", "schedule": timedelta(seconds=INTERVAL)},
    "both": {"task": "tasks.both", "schedule": 60, "args": [1], "kwargs": {"b": 2}},
    "invented": {"task": "tasks.poll", "schedule": timedelta(minutes=5), "frobnicate": True},
}
