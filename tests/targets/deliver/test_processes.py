"""Messages of real processes: an engine killed between commit and send, and a watch without engines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.faults.tools.worker_fleet import wait_until
from tests.targets.deliver.receivers import Receiver
from timewright import Scheduler

# An engine that is killed when an incident was committed, before the message is leased.
KILLED_ENGINE = """
import os, signal, sys, threading
from timewright import Scheduler
from timewright.engine import maintenance

check = maintenance.check_incidents

def check_and_die(*args, **kwargs):
    check(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)

maintenance.check_incidents = check_and_die
Scheduler(sys.argv[1]).start()
threading.Event().wait(60)
"""


def run_process(*command: str) -> subprocess.CompletedProcess[str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TIMEWRIGHT_")}
    path = os.pathsep.join(one for one in sys.path if one)
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**ours, "PYTHONPATH": path},
    )


@contextmanager
def opened(store: str) -> Iterator[Scheduler]:
    """A client of the store that runs no engine."""
    app = Scheduler(store)
    yield app
    app.instance.free()
    app.stop()


def messages(receiver: Receiver) -> list[dict[str, Any]]:
    return [json.loads(request["body"]) for request in receiver.requests]


def test_an_engine_killed_between_commit_and_send_leaves_a_message_that_a_restart_sends(
    tmp_path: Path, receiver: Receiver
) -> None:
    store = str(tmp_path / "store.db")
    with opened(store) as app:
        app.call("channel create", channel="ops", to=f"{receiver.url}/hook")
        app.call("queue policy set", queue="mail", max_attempts=1)
        app.call("queue add", queue="mail", payload=1)
        (lease,) = app.call("queue lease", queue="mail", holder="w").leases
        app.call("queue release", lease=lease.lease, failed=True, reason="bounced")
    killed = run_process("-c", KILLED_ENGINE, store)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert receiver.requests == []
    with opened(store) as app:
        (waiting,) = app.call("run list", queue="channel.ops").runs
        assert waiting.state.value == "ready"
    assert run_process("-m", "timewright", "watch", "--once", "--store", store).returncode == 0
    assert [(one["id"], one["kind"]) for one in messages(receiver)] == [(waiting.id, "parked")]


def test_a_foreign_job_that_stops_pinging_is_reported_with_every_engine_stopped(
    tmp_path: Path, receiver: Receiver
) -> None:
    store = str(tmp_path / "store.db")
    with opened(store) as app:
        app.call("channel create", channel="ops", to=f"{receiver.url}/hook")
        made = app.call(
            "schedule create", name="nas-backup", every="1s", handoff=True, expect={"within": "1s"}
        )
        planned = made.progress.next_at
        assert planned is not None
        late = planned + timedelta(seconds=2)
        wait_until(lambda: app.instance.store.now() > late, "the job to be late")
    assert run_process("-m", "timewright", "watch", "--once", "--store", store).returncode == 0
    (message,) = messages(receiver)
    assert (message["schedule"], message["kind"]) == ("nas-backup", "not_finished")
    assert message["remedy"] == "timewright explain nas-backup"
