"""The feed of what is planned as calendars subscribe to it: `/feed.ics?tag=night`, its text alone."""

from __future__ import annotations

from starlette.responses import Response

from timewright.doors.http.asked import payload_from
from timewright.doors.http.places import places_of
from timewright.doors.http.probes import acting_in
from timewright.doors.http.threads import Threads
from timewright.doors.http.visits import Visit
from timewright.operations import operations

# A calendar looks again by itself, now and then; until then it may show what it has.
KEPT = "private, max-age=300"


class CalendarFeed:
    """Answers a calendar program that can show no more than a name and a password."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._operation = operations["schedule feed"]
        self._place = next(iter(places_of(self._operation)))

    async def answered(self, visit: Visit) -> Response:
        """The text of the feed, with line ends as RFC 5545 has them."""
        context = acting_in(visit)
        payload = payload_from(self._place, path={}, query=visit.query, body=None)
        feed = await self._threads.run(lambda: self._operation(context, payload))
        text = str(feed["text"]).replace("\n", "\r\n")
        headers = {"content-type": str(feed["content_type"]), "cache-control": KEPT}
        return Response(text.encode(), headers=headers)
