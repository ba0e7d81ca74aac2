"""Mount the scheduler in a web application of your own: one process, one beginning, one end."""

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
    """A page of the application itself."""
    return PlainTextResponse("hello")


api = scheduler.asgi()
key = scheduler.keys.create(key="web", role="viewer")["token"]
web = Starlette(routes=[Route("/", home), Mount("/scheduler", api)], lifespan=api.lifespan)


def ask(port: int, path: str) -> bytes:
    """Ask the application, with a key for the part that wants one."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    line.request("GET", path, headers={"authorization": f"Bearer {key}"})
    answer = line.getresponse().read()
    line.close()
    return answer


def main() -> None:
    """Serve both, look at them as a client would, and stop."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(web, log_level="error"))
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        serving.start()
        ran.wait(10)
        print("the application says", ask(port, "/").decode())
        rows = json.loads(ask(port, "/scheduler/api/v1/schedules"))["schedules"]
        print("the scheduler runs", [(row["name"], row["trigger"]) for row in rows])
        server.should_exit = True
        serving.join()
    print("done")


if __name__ == "__main__":
    main()
