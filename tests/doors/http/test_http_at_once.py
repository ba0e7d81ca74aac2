"""What is answered on the loop itself: the same answers, never one that is no longer true, and no waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import apsw
import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.doors.http.test_http_callers import bearer, made_key
from tests.doors.http.visitor import Visitor, visiting
from tests.operations.house import KEYRING, House, furnish
from timewright.core.forecast import forecast
from timewright.doors.http import recent
from timewright.doors.http.app import HttpDoor
from timewright.doors.http.brief import BRIEF
from timewright.doors.http.protocols import LARGEST_PIECE, Joined
from timewright.doors.http.recent import Recent
from timewright.doors.http.replies import Reply
from timewright.operations import operations
from timewright.operations.doorkeeper import Doorkeeper
from timewright.operations.views import planned_until, schedule_detail
from timewright.ports import ScheduleFilter, Store
from timewright.ports.glimpse import NotAtOnce
from timewright.ports.looks import Look
from timewright.stores import sqlite_glimpses
from timewright.stores.sqlite import SqliteStore
from timewright.testing.clock import ManualClock

NEW = "/api/v1/schedules/new"
LIST = "/api/v1/schedules?limit=5"


@pytest.fixture(scope="module")
def furnished_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A furnished house in a file; nothing here changes what the examples speak of."""
    clock = ManualClock(House().now)
    store = SqliteStore(tmp_path_factory.mktemp("at_once") / "store.db", clock=clock)
    yield furnish(store=store, clock=clock)
    store.close()


@pytest.fixture
def filed(tmp_path: Path) -> Iterator[House]:
    """An empty house in a file."""
    clock = ManualClock(House().now)
    store = SqliteStore(tmp_path / "store.db", clock=clock)
    yield House(store=store, clock=clock)
    store.close()


@pytest.fixture
def hasty(filed: House) -> Iterator[Visitor]:
    """Someone whose questions are answered at once or not at all."""
    with visiting(filed, caller=None) as visitor:
        visitor.headers |= bearer(made_key(filed, "k", role="admin"))
        assert visitor.ask("GET", "/api/v1/health").status == 200
        yield hurried(visitor)


def hurried(visitor: Visitor) -> Visitor:
    """From here on nothing may be handed to a thread."""

    async def never(work: Any) -> Any:
        raise AssertionError(f"{work} was handed to a thread")

    door: HttpDoor = visitor.door
    door._threads.run = never  # type: ignore[method-assign]
    return visitor


def path_of(name: str, example: Mapping[str, Any]) -> str:
    noun, verb = name.split()
    asked = {key: value if isinstance(value, str | int) else str(value) for key, value in example.items()}
    asked = {
        key: value.replace("'", '"') if isinstance(value, str) else value for key, value in asked.items()
    }
    one = f"/{quote(str(asked.pop(noun)))}" if verb == "get" else ""
    return f"/api/v1/{noun}s{one}?{urlencode(asked)}"


@pytest.mark.parametrize("name", sorted(BRIEF))
def test_what_is_answered_at_once_is_what_a_thread_would_have_answered(
    furnished_file: House, name: str
) -> None:
    house = furnished_file
    slow = replace(house.context, store=Slow(house.context.store))
    for example in operations[name].examples:
        path = path_of(name, example)
        with Visitor(HttpDoor(slow, callers=lambda _: house.context.caller)) as visitor:
            expected = visitor.ask("GET", path)
        with visiting(house) as visitor:
            answers = [visitor.ask("GET", path) for _ in range(2)]
        assert expected.status == 200
        assert answers == [expected, expected], example


class Held(Struct):
    """What an answer was made of."""


class Slow:
    """A store without anything that is over at once."""

    def __init__(self, store: Store) -> None:
        self.now, self.read, self.write, self.close = store.now, store.read, store.write, store.close


def test_one_schedule_and_a_page_of_them_need_no_thread(filed: House, hasty: Visitor) -> None:
    filed.ask("schedule create", name="new", every="1h", note="x")
    for _ in range(2):
        assert [row["name"] for row in hasty.ask("GET", LIST).data["schedules"]] == ["new"]
        one = hasty.ask("GET", NEW)
        assert (one.data, one.headers["etag"]) == (filed.ask("schedule get", schedule="new"), '"1"')
    page = hasty.ask("GET", "/api/v1/runs?schedule=new")
    assert page.data["runs"] == []


def test_every_acknowledged_write_is_in_the_next_answer_whoever_wrote_it(filed: House) -> None:
    other = SqliteStore(filed.store.path, clock=filed.bench.clock)  # type: ignore[attr-defined]
    elsewhere = replace(filed.context, store=other, doorkeeper=Doorkeeper(lambda: KEYRING))
    filed.ask("schedule create", name="new", every="1h", note="x")
    steps: list[tuple[str, dict[str, Any]]] = [
        ("schedule update", {"grace": "5m"}),
        ("schedule pause", {"reason": "a while"}),
        ("schedule resume", {}),
        ("schedule run", {}),
        ("schedule update", {"every": "2h"}),
        ("schedule archive", {}),
    ]
    with visiting(filed) as visitor:
        for number, (step, fields) in enumerate(steps):
            for _ in range(2):
                visitor.ask("GET", NEW), visitor.ask("GET", LIST)
            operations[step](elsewhere if number % 2 else filed.context, {"schedule": "new", **fields})
            assert visitor.ask("GET", NEW).data == filed.ask("schedule get", schedule="new"), step
            assert visitor.ask("GET", LIST).data == filed.ask("schedule list", limit=5), step
    other.close()


def test_time_alone_changes_what_comes_next(filed: House) -> None:
    filed.ask("schedule create", name="new", every="1h", note="x")
    with visiting(filed) as visitor:
        first = visitor.ask("GET", NEW).data
        filed.sleep(minutes=59, seconds=59)
        assert visitor.ask("GET", NEW).data == first
        filed.sleep(days=1)
        later = visitor.ask("GET", NEW).data
        assert later["next"] != first["next"]
        assert later == filed.ask("schedule get", schedule="new")


def test_a_remembered_answer_is_for_those_who_may_ask_and_for_their_namespace(filed: House) -> None:
    filed.ask("namespace create", name="team-a", schedules=20)
    filed.ask("schedule create", name="new", every="1h", note="x")
    keys = [
        made_key(filed, "reads", role="viewer", within=["default"]),
        made_key(filed, "hints", scopes=["hint"], within=["default"]),
        made_key(filed, "other", role="viewer", within=["team-a"]),
    ]
    with visiting(filed, caller=None) as visitor:
        for _ in range(2):
            assert [visitor.ask("GET", NEW, headers=bearer(key)).status for key in keys] == [200, 403, 404]
        named = {"timewright-namespace": "team-a"}
        assert visitor.ask("GET", NEW, headers=bearer(keys[0]) | named).status == 403


def test_what_cannot_be_answered_at_once_is_answered_all_the_same(
    filed: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    filed.ask("schedule create", name="new", every="1h", note="x")
    with visiting(filed) as visitor:
        missing = visitor.ask("GET", "/api/v1/schedules/nev")
        assert (missing.status, missing.data["fix"]) == (404, "did you mean new?")
        assert visitor.ask("GET", "/api/v1/schedules?limit=1000").status == 200
        assert visitor.ask("GET", "/api/v1/schedules?tag=x").data["schedules"] == []
        assert visitor.ask("GET", "/api/v1/schedules?limit=0").status == 422
        with filed.store._glimpses._in_use:  # type: ignore[attr-defined]
            assert visitor.ask("GET", NEW).status == 200
        filed.ask("schedule update", schedule="new", grace="1m")

        def busy(_speaker: Any) -> int:
            raise apsw.BusyError("someone recovers the file")

        monkeypatch.setattr(sqlite_glimpses, "_version", busy)
        assert visitor.ask("GET", NEW).headers["etag"] == '"2"'


def test_a_question_with_a_body_is_refused_as_ever(filed: House) -> None:
    filed.ask("schedule create", name="new", every="1h", note="x")
    with visiting(filed) as visitor:
        assert visitor.ask("GET", NEW).status == 200
        for length in ({}, {"content-length": "2"}):
            assert visitor.ask("GET", NEW, data={}, headers=length).data["code"] == "unexpected_body"


def test_a_look_that_takes_many_steps_is_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_glimpses, "MOST_STEPS", 100)
    clock = ManualClock(House().now)
    store = SqliteStore(tmp_path / "store.db", clock=clock)
    house = House(store=store, clock=clock)
    for number in range(30):
        house.ask("schedule create", name=f"s{number}", every="1h", note="x")
    assert store.glimpses is not None
    assert store.glimpses.look(lambda tx: tx.find_schedule("default", "s1")) is not None
    with pytest.raises(NotAtOnce):
        store.glimpses.look(lambda tx: tx.find_schedules(ScheduleFilter()))
    assert store.glimpses.look(lambda tx: tx.find_schedule("default", "s1")) is not None
    store.close()
    with pytest.raises(NotAtOnce):
        store.glimpses.stamp()


def test_whoever_looked_too_long_leaves_no_picture_open(filed: House) -> None:
    glimpses = filed.store.glimpses  # type: ignore[attr-defined]

    def linger(_tx: Any) -> None:
        # As if the allowance were spent, and every other step asked about.
        glimpses._calls = 1
        glimpses._speaker.connection.set_progress_handler(glimpses._is_long, 2)

    for _ in range(2):
        glimpses.look(linger)
        glimpses._speaker.connection.set_progress_handler(None)
    assert not glimpses._speaker.connection.in_transaction


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Still:
        """A store that nobody writes into."""

        def stamp(self) -> int:
            return 7

    monkeypatch.setattr(recent, "MOST_BYTES", 100)
    kept = Recent(Still())  # type: ignore[arg-type]
    questions: list[recent.Asked] = [("default", "", (str(number),), "") for number in range(9)]
    kept.recall(questions[0])
    for question in questions:
        kept.keep(question, Reply(b"x" * 30), value=Held(), until=None)
    assert [kept.recall(question) is not None for question in questions] == [False] * 6 + [True] * 3


@pytest.mark.parametrize(
    "trigger",
    [
        {"every": "90m"},
        {"cron": "0 3 * * *", "zone": "Europe/Berlin"},
        {"cron": "*/20 9-17 * * 1-5"},
        {"rrule": "FREQ=WEEKLY;BYDAY=MO,TH"},
        {"every": "1h", "max_runs": 2},
        {"every": "1h", "jitter": "10m"},
        {"every": "1h", "adaptive": True, "min_interval": "2h"},
        {"at": "2026-03-11T00:00:00Z"},
    ],
)
def test_what_goes_on_as_planned_is_foreseen_alike_at_every_instant_until_then(
    trigger: dict[str, Any],
) -> None:
    house = House()
    house.ask("schedule create", name="new", note="x", **trigger)
    due = house.store.read(lambda tx: tx.get_named("default", "new"))
    assert due is not None
    assert due.standing.next_at is not None
    until = planned_until(due)
    assert until in (None, due.standing.next_at)
    for part in (0.0, 0.3, 0.999999):
        now = house.now + (due.standing.next_at - house.now) * part
        shown = house.store.read(partial(schedule_detail, look=Look(due), now=now))
        assert shown.next == forecast(due.schedule, due.standing, now=now)


class Wire:
    """A transport that remembers each piece it was given."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.pieces.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def test_a_head_and_its_body_leave_as_one_piece_and_nothing_is_lost_or_held_back() -> None:
    async def written() -> None:
        wire = Wire()
        joined = Joined(wire, asyncio.get_running_loop())
        joined.write(b"head ")
        joined.write(b"body")
        assert wire.pieces == []
        await asyncio.sleep(0)
        assert wire.pieces == [b"head body"]
        joined.write(b"x" * (LARGEST_PIECE + 1))
        assert len(wire.pieces) == 2
        joined.write(b"last words")
        joined.close()
        assert (wire.pieces[2:], joined.is_closing()) == ([b"last words"], True)
        joined.write(b"too late")
        await asyncio.sleep(0)
        assert len(wire.pieces) == 3

    asyncio.run(written())
