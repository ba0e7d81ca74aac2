"""The Django app and its backend for tasks, in a real project in a process of its own (`django_story.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STORY = Path(__file__).with_name("django_story.py")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, STORY],
        cwd=tmp_path_factory.mktemp("project"),
        env={**os.environ, "TIMEWRIGHT_FULL": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_schedules_of_every_app_are_loaded_and_no_store_is_opened(seen: dict[str, Any]) -> None:
    assert seen["discovered"] is True
    assert seen["files_after_migrate"] == []


def test_an_enqueued_task_is_a_run_and_gives_back_its_result(seen: dict[str, Any]) -> None:
    assert seen["before"] == ["READY", "READY"]
    assert seen["result"] == ["SUCCESSFUL", 3, 1]
    assert seen["async"] == {"value": "useful"}


def test_a_task_that_fails_is_retried_and_its_errors_are_kept(seen: dict[str, Any]) -> None:
    assert seen["failed"] == ["FAILED", ["ValueError", "ValueError"], [1, 2]]


def test_queue_priority_and_run_after_of_a_task_are_kept(seen: dict[str, Any]) -> None:
    assert seen["urgent"] == ["django-tasks-mail-50", "mail", 50]
    assert seen["deferred"] == ["ready", True]


def test_a_task_can_repeat(seen: dict[str, Any]) -> None:
    assert seen["periodic"] == [None, "clean"]
