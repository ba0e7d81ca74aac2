"""A command that uses a secret nobody sees, and a key that may look but not touch."""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

from timewright import Scheduler
from timewright.errors import Forbidden
from timewright.operations import operations
from timewright.operations.access import acting, authenticate
from timewright.settings import Settings

app = Scheduler(Path(tempfile.mkdtemp()) / "timewright.db", settings=Settings(shell=True))
ended = threading.Event()
app.on_completed(lambda _: ended.set())


def main() -> None:
    """Set a secret, use it in a command, and look at what was recorded of it."""
    named = "crm-token"
    app.secrets.set(secret=named, value="only the command sees this")
    says = "import os; print(len(os.environ['TOKEN']), 'letters:', os.environ['TOKEN'])"
    app.schedules.create(
        name="sync",
        manual=True,
        target={
            "kind": "shell",
            "command": [sys.executable, "-c", says],
            "env": {"TOKEN": f"secret://{named}"},
        },
    )
    with app:
        run = app.schedules.run(schedule="sync")["run"]["id"]
        ended.wait(30)
        print("recorded:", app.runs.get(run=run)["attempts"][0]["result"]["output"].strip())

        token = app.keys.create(key="grafana", role="viewer")["token"]
        context = app.house.context()
        grafana = acting(context, authenticate(context, token))
        print("grafana sees", len(operations["run list"](grafana, {})["runs"]), "run")
        try:
            operations["schedule run"](grafana, {"schedule": "sync"})
        except Forbidden as refusal:
            print(refusal.message)
        print("the audit log is intact:", app.call("audit verify")["intact"])
    print("done")


if __name__ == "__main__":
    main()
