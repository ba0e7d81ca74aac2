"""`/feed.ics`: planned occurrences as an iCalendar feed, filtered by `?tag=` or `?group=`."""

from __future__ import annotations

from starlette.responses import Response

from timewright.interfaces.http.api.operation_routes import routes_of
from timewright.interfaces.http.endpoints.probes import request_context
from timewright.interfaces.http.requests.http_request import HttpRequest
from timewright.interfaces.http.requests.parsing import build_payload
from timewright.interfaces.http.thread_pool import RequestThreadPool
from timewright.operations import operations

# Calendar programs poll; they may use a copy for 5 minutes.
CACHE_CONTROL = "private, max-age=300"


class CalendarFeed:
    """Answers calendar programs, which can only authenticate with a user name and a password."""

    def __init__(self, threads: RequestThreadPool) -> None:
        self._threads = threads
        self._operation = operations["schedule feed"]
        self._route = next(iter(routes_of(self._operation)))

    async def handle(self, request: HttpRequest) -> Response:
        """Return the feed with the line endings of RFC 5545."""
        context = request_context(request)
        payload = build_payload(self._route, path={}, query=request.query, body=None)
        feed = await self._threads.run(lambda: self._operation(context, payload))
        text = str(feed["text"]).replace("\n", "\r\n")
        headers = {"content-type": str(feed["content_type"]), "cache-control": CACHE_CONTROL}
        return Response(text.encode(), headers=headers)
