"""Files of other schedulers to import, and the importer of each."""

from __future__ import annotations

from pathlib import Path

SAMPLES = Path(__file__).parent / "samples"
SOURCES = {
    "user crontab": ("crontab", ["user.crontab"]),
    "system crontab": ("system-crontab", ["system.crontab"]),
    "systemd": ("systemd", ["backup.timer", "backup.service", "poll.timer"]),
    "kubernetes": ("kubernetes", ["cronjobs.yaml"]),
    "celery file": ("celery", ["celeryconfig.py"]),
    "django dump": ("celery", ["django_dump.json"]),
    "apscheduler 3": ("apscheduler", ["apscheduler3.json"]),
    "apscheduler 4": ("apscheduler", ["apscheduler4.json"]),
    "github actions": ("github-actions", ["nightly.yml"]),
}
