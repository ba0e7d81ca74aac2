"""Mount the scheduler in your own web application, with a shared lifespan."""

from __future__ import annotations

import http.client
import json
import socket
import tempfile
import threading
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from timewright import Context, Scheduler, every

scheduler = Scheduler(Path(tempfile.mkdtemp()) / "timewright.db")
ran = threading.Event()


@scheduler.schedule(every("1s"))
def refresh(ctx: Context) -> str:
    """Do something useful."""
    ran.set()
    return f"useful for {ctx.schedule_name}"


async def home(_request: Request) -> PlainTextResponse:
    """A page of the application."""
    return PlainTextResponse("hello")


api = scheduler.asgi()
key = scheduler.keys.create(key="web", role="viewer").token
web = Starlette(routes=[Route("/", home), Mount("/scheduler", api)], lifespan=scheduler.lifespan)


def get(port: int, path: str) -> bytes:
    """Send a request with the API key."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"authorization": f"Bearer {key}"})
    body = connection.getresponse().read()
    connection.close()
    return body


def main() -> None:
    """Serve both, send requests to both, and stop."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(web, log_level="error"))
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        serving.start()
        ran.wait(10)
        print("the application responds", get(port, "/").decode())
        rows = json.loads(get(port, "/scheduler/api/v1/schedules"))["schedules"]
        print("the scheduler runs", [(row["name"], row["trigger"]) for row in rows])
        server.should_exit = True
        serving.join()
    print("done")


if __name__ == "__main__":
    main()
