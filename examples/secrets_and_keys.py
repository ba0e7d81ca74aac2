"""A command that uses a secret, and a read-only API key."""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

from timewright import Scheduler
from timewright.errors import Forbidden
from timewright.operations import operations
from timewright.operations.access.authentication import authenticate, context_for
from timewright.settings import Settings

app = Scheduler(Path(tempfile.mkdtemp()) / "timewright.db", settings=Settings(shell=True))
ended = threading.Event()
app.on_completed(lambda _: ended.set())


def main() -> None:
    """Set a secret, use it in a command, and show that the recorded output is redacted."""
    name = "crm-token"
    app.secrets.set(secret=name, value="only the command sees this")
    program = "import os; print(len(os.environ['TOKEN']), 'characters:', os.environ['TOKEN'])"
    app.schedules.create(
        name="sync",
        manual=True,
        target={
            "kind": "shell",
            "command": [sys.executable, "-c", program],
            "env": {"TOKEN": f"secret://{name}"},
        },
    )
    with app:
        run = app.schedules.run(schedule="sync").run.id
        ended.wait(30)
        print("recorded:", app.runs.get(run=run).attempts[0].result["output"].strip())

        token = app.keys.create(key="grafana", role="viewer").token
        context = app.instance.context()
        grafana = context_for(context, authenticate(context, token))
        print("grafana sees", len(operations["run list"](grafana, {})["runs"]), "run")
        try:
            operations["schedule run"](grafana, {"schedule": "sync"})
        except Forbidden as error:
            print(error.message)
        print("the audit log is intact:", app.audit.verify().intact)
    print("done")


if __name__ == "__main__":
    main()
