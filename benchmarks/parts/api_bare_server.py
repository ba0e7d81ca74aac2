"""The comparison for the HTTP server: Starlette alone with the same settings and response sizes.

python -m benchmarks.parts.api_bare_server READ_BYTES LIST_BYTES CREATE_BYTES auto|h11
"""

from __future__ import annotations

import socket
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from timewright.interfaces.http.server import BACKLOG, KEEP_ALIVE_S, MAX_CONNECTIONS, MAX_HEADER_BYTES


def make_endpoint(size: int, *, status: int = 200) -> object:
    body = b'{"x":"' + b"x" * max(size - 8, 0) + b'"}'

    async def answer(request: Request) -> Response:
        if request.method == "POST":
            await request.body()
        return Response(body, status_code=status, media_type="application/json")

    return answer


def main(arguments: list[str]) -> None:
    read, listed, create = map(int, arguments[:3])
    app = Starlette(
        routes=[
            Route("/api/v1/schedules/{name}", make_endpoint(read)),  # type: ignore[arg-type]
            Route("/api/v1/schedules", make_endpoint(listed), methods=["GET"]),  # type: ignore[arg-type]
            Route("/api/v1/schedules", make_endpoint(create, status=201), methods=["POST"]),  # type: ignore[arg-type]
        ]
    )
    listener = socket.socket()
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    settings = uvicorn.Config(
        app,
        http=arguments[3],
        loop="auto" if arguments[3] == "auto" else "asyncio",
        ws="none",
        lifespan="off",
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        limit_concurrency=MAX_CONNECTIONS,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    uvicorn.Server(settings).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1:])
