"""An agent's pipeline: a model drafts, a person answers by a one-time link, and only then it is published."""

from __future__ import annotations

import socket
import tempfile
import threading
import urllib.parse
import urllib.request
from pathlib import Path

import uvicorn

from timewright import Scheduler
from timewright.interfaces.python.workflow_builder import WorkflowBuilder

with tempfile.TemporaryDirectory() as folder:
    app = Scheduler(Path(folder) / "agent.db")

    @app.task()
    def ask_model(topic: str) -> str:
        return f"A short text about {topic}."  # call your model here

    @app.task()
    def publish(text: str, title: str) -> str:
        return f"{title}: {text}"

    @app.workflow()
    def newsletter(wf: WorkflowBuilder, topic: str) -> None:
        """Draft, ask, publish."""
        draft = wf.step("ask_model", input={"topic": topic})
        check = wf.wait(
            "check",
            answer={"to": "editors", "form": {"approved": "boolean", "title": "text"}},
            until="2d",
            input={"draft": draft},
            description="Send this newsletter?",
        )
        wf.step(
            "publish",
            input={"text": draft, "title": check.result.title},
            when="steps.check.result.approved",
        )

    def answer(link: str, fields: dict[str, str]) -> int:
        """Send the form of a link, as a browser does."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = uvicorn.Server(uvicorn.Config(app.asgi(), log_level="error", lifespan="off"))
            serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            serving.start()
            address = f"http://127.0.0.1:{listening.getsockname()[1]}{link}"
            sent = urllib.request.urlopen(address, data=urllib.parse.urlencode(fields).encode(), timeout=30)
            server.should_exit = True
            serving.join()
        return int(sent.status)

    with app:
        run = newsletter.run(topic="clocks").run.id
        while not (asked := app.approvals.list().answers):
            threading.Event().wait(0.05)
        print("asked:", asked[0].question, asked[0].payload)
        link = app.runs.link(run=asked[0].run).path
        print("answered:", answer(link, {"approved": "yes", "title": "Clocks"}))
        print(app.result(run, timeout="60s"))
    print("done")
