"""What a store reads for those who look again and again: one statement a look, and nothing twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from timewright.core.admission import Flight
from timewright.core.schedule import ScheduleState
from timewright.errors import UnreadableRow
from timewright.ports import Due, Page, ScheduleFilter, Unreadable
from timewright.ports.looks import Look, Shown
from timewright.stores.rows import Row
from timewright.stores.schedule_rows import read_schedule, read_standing
from timewright.stores.schedule_verbs import NO_FLIGHT, ScheduleVerbs
from timewright.stores.verbs import LAST, page_limit

# A text of more than these characters is not kept: it is a page that few ask for.
LONGEST_KEPT = 32_768
# No name is longer, so none comes behind this one, nor behind its own beginning and this one.
_END = LAST * 255

_read_row = msgspec.json.Decoder(list[Any]).decode


class SqlLookVerbs(ScheduleVerbs):
    """The verbs of `ports.looks.LookVerbs`."""

    def look_at(self, namespace: str, name: str) -> Look | None:
        """A schedule by its name."""
        rows = self._ask("look_at", {"namespace": namespace, "name": name})
        if not rows:
            return None
        row, revisions = rows[0], self._speaker.revisions
        known = revisions.known()
        looked = revisions.look_before(row)
        if looked is None:
            schedule = known.get((row[0], row[1])) or read_schedule(row[20] or "")
            looked = _look(row, Due(schedule, read_standing(row[2:17]), _flight(row), row[17]))
            if not self._speaker.drafting:
                revisions.keep_look_at(row, looked)
        return looked

    def schedule_names(self, ids: Iterable[str]) -> dict[str, str]:
        """What schedules are called today, by id; also those of which nothing else can be understood."""
        wanted = sorted(set(ids))
        rows = self._ask("schedule_names", {"ids": wanted}) if wanted else []
        return {row[0]: row[1] for row in rows}

    def list_shown(self, which: ScheduleFilter) -> Page:
        """A page of `Shown` in one namespace, by name; what cannot be understood is named beside them."""
        limit = page_limit(which.limit)
        if not which.namespace:
            return Page(())
        resting = which.state not in (None, ScheduleState.ACTIVE)
        after = which.cursor.partition("\n")[2]
        ((text,),) = self._ask(
            "list_resting_shown" if resting else "list_shown",
            {
                "namespace": which.namespace,
                "after": after,
                "first": max(after, which.name_starts),
                "last": which.name_starts + _END,
                "state": which.state.value if which.state else "",
                "grouped": which.group or "",
                "prefix": which.name_starts,
                "limit": limit + 1,
            },
        )
        revisions = self._speaker.revisions
        revisions.known()
        asked = (which.namespace, limit, text or "")
        page = revisions.page(asked)
        if page is None:
            page = self._page(text.split("\n") if text else [], which.namespace, limit=limit)
            if not self._speaker.drafting and len(asked[2]) <= LONGEST_KEPT:
                revisions.keep_page(asked, page)
        return page

    def _page(self, lines: list[str], namespace: str, *, limit: int) -> Page:
        known = self._speaker.revisions.shown
        new = {line: _read_row(line) for line in lines[:limit] if line not in known}
        read, lost = self._read_shown(new) if new else ({}, ())
        shown = (known.get(line) or read.get(line) for line in lines[:limit])
        cursor = f"{namespace}\n{_read_row(lines[limit - 1])[-1]}" if len(lines) > limit else ""
        page = Page(tuple(one for one in shown if one is not None), cursor, tuple(lost))
        if not self._speaker.drafting:
            self._speaker.revisions.keep_shown(read)
        return page

    def _read_shown(self, rows: dict[str, list[Any]]) -> tuple[dict[str, Shown], list[Unreadable]]:
        pairs = [(row[0], row[1]) for row in rows.values()]
        schedules, why = self._schedules_of(pairs)
        read: dict[str, Shown] = {}
        lost: list[Unreadable] = []
        for pair, (line, row) in zip(pairs, rows.items(), strict=True):
            try:
                schedule = schedules.get(pair) or read_schedule(why.get(pair, ""))
                read[line] = Shown(schedule, read_standing(row[2:-1]))
            except UnreadableRow as error:
                lost.append(Unreadable(row[0], row[-1], error.message))
        return read, lost


def _flight(row: Row) -> Flight:
    return Flight(row[18], row[19]) if row[18] or row[19] else NO_FLIGHT


def _look(row: Row, due: Due) -> Look:
    return Look(due, is_asked_for=bool(row[21]), has_made=bool(row[22]), has_notes=bool(row[23]))
