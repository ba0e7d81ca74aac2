"""Reads on the event loop: the same answers as in a thread, never stale, never blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import anyio.to_thread
import apsw
import pytest
from msgspec.structs import replace

from tests.interfaces.http.http_client import HttpTestClient, bearer, client_for, create_key
from tests.operations.harness import KEYRING, OperationsHarness, fill_with_samples
from timewright.core.schedule.forecast import forecast
from timewright.interfaces.http import operation_handler
from timewright.interfaces.http.app import HttpApp
from timewright.interfaces.http.operation_handler import EXPIRY, CacheKey, ResponseCache
from timewright.interfaces.http.responses import ApiResponse
from timewright.operations import operations
from timewright.operations.access.auth_cache import AuthCache
from timewright.operations.views import build_schedule_detail, planned_until
from timewright.ports import ScheduleFilter, Store
from timewright.ports.schedules import SchedulesNamed, ScheduleSnapshot
from timewright.ports.store import WouldBlock
from timewright.stores.sqlite import nonblocking
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.clock import ManualClock

NEW = "/api/v1/schedules/new"
LIST = "/api/v1/schedules?limit=5"


@pytest.fixture(scope="module")
def furnished_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperationsHarness]:
    """A harness with sample data in a file; read-only."""
    clock = ManualClock(OperationsHarness().now)
    store = SqliteStore(tmp_path_factory.mktemp("at_once") / "store.db", clock=clock)
    yield fill_with_samples(store=store, clock=clock)
    store.close()


@pytest.fixture
def filed(tmp_path: Path) -> Iterator[OperationsHarness]:
    """An empty harness in a file."""
    clock = ManualClock(OperationsHarness().now)
    store = SqliteStore(tmp_path / "store.db", clock=clock)
    yield OperationsHarness(store=store, clock=clock)
    store.close()


@pytest.fixture
def hasty(filed: OperationsHarness, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpTestClient]:
    """A client whose requests must not use a thread."""
    with client_for(filed, caller=None) as client:
        client.headers |= bearer(create_key(filed, "k", role="admin"))
        assert client.request("GET", "/api/v1/health").status == 200
        yield hurried(client, monkeypatch)


def hurried(client: HttpTestClient, monkeypatch: pytest.MonkeyPatch) -> HttpTestClient:
    """Make the client fail if a request uses a thread."""

    async def never(work: Any, *_: Any, **__: Any) -> Any:
        raise AssertionError(f"{work} was handed to a thread")

    monkeypatch.setattr(anyio.to_thread, "run_sync", never)
    return client


def path_of(name: str, example: Mapping[str, Any]) -> str:
    noun, verb = name.split()
    asked = {key: value if isinstance(value, str | int) else str(value) for key, value in example.items()}
    asked = {
        key: value.replace("'", '"') if isinstance(value, str) else value for key, value in asked.items()
    }
    one = f"/{quote(str(asked.pop(noun)))}" if verb == "get" else ""
    return f"/api/v1/{noun}s{one}?{urlencode(asked)}"


@pytest.mark.parametrize("name", sorted(EXPIRY))
def test_a_nonblocking_answer_equals_the_blocking_one(furnished_file: OperationsHarness, name: str) -> None:
    harness = furnished_file
    slow = replace(harness.context, store=Slow(harness.context.store))
    for example in operations[name].examples:
        path = path_of(name, example)
        with HttpTestClient(HttpApp(slow, authenticate=lambda _: harness.context.caller)) as client:
            expected = client.request("GET", path)
        with client_for(harness) as client:
            answers = [client.request("GET", path) for _ in range(2)]
        assert expected.status == 200
        assert answers == [expected, expected], example


class Slow:
    """A store without non-blocking reads."""

    def __init__(self, store: Store) -> None:
        self.now, self.read, self.write, self.close = store.now, store.read, store.write, store.close


def test_getting_and_listing_schedules_needs_no_thread(
    filed: OperationsHarness, hasty: HttpTestClient
) -> None:
    filed.ask("schedule create", name="new", every="1h", note="x")
    for _ in range(2):
        assert [row["name"] for row in hasty.request("GET", LIST).data["schedules"]] == ["new"]
        one = hasty.request("GET", NEW)
        assert (one.data, one.headers["etag"]) == (filed.ask("schedule get", schedule="new"), '"1"')
    page = hasty.request("GET", "/api/v1/runs?schedule=new")
    assert page.data["runs"] == []


def test_a_list_is_read_from_a_time_in_words(filed: OperationsHarness) -> None:
    with client_for(filed) as client:
        assert client.request("GET", "/api/v1/runs?since=yesterday").status == 200
        assert client.request("GET", "/api/v1/runs?since=yesterdy").status == 422


def test_every_committed_write_is_in_the_next_answer(filed: OperationsHarness) -> None:
    other = SqliteStore(filed.store.path, clock=filed.bench.clock)  # type: ignore[attr-defined]
    elsewhere = replace(filed.context, store=other, auth_cache=AuthCache(lambda: KEYRING))
    filed.ask("schedule create", name="new", every="1h", note="x")
    steps: list[tuple[str, dict[str, Any]]] = [
        ("schedule update", {"grace": "5m"}),
        ("schedule pause", {"reason": "a while"}),
        ("schedule resume", {}),
        ("schedule run", {}),
        ("schedule update", {"every": "2h"}),
        ("schedule archive", {}),
    ]
    with client_for(filed) as client:
        for number, (step, fields) in enumerate(steps):
            for _ in range(2):
                client.request("GET", NEW), client.request("GET", LIST)
            operations[step](elsewhere if number % 2 else filed.context, {"schedule": "new", **fields})
            assert client.request("GET", NEW).data == filed.ask("schedule get", schedule="new"), step
            assert client.request("GET", LIST).data == filed.ask("schedule list", limit=5), step
    other.close()


def test_a_cached_answer_expires_at_the_next_occurrence(filed: OperationsHarness) -> None:
    filed.ask("schedule create", name="new", every="1h", note="x")
    with client_for(filed) as client:
        first = client.request("GET", NEW).data
        filed.sleep(minutes=59, seconds=59)
        assert client.request("GET", NEW).data == first
        filed.sleep(days=1)
        later = client.request("GET", NEW).data
        assert later["next"] != first["next"]
        assert later == filed.ask("schedule get", schedule="new")


def test_a_cached_answer_is_not_shared_across_scopes_and_namespaces(
    filed: OperationsHarness,
) -> None:
    filed.ask("namespace create", name="team-a", schedules=20)
    filed.ask("schedule create", name="new", every="1h", note="x")
    keys = [
        create_key(filed, "reads", role="viewer", within=["default"]),
        create_key(filed, "hints", scopes=["hint"], within=["default"]),
        create_key(filed, "other", role="viewer", within=["team-a"]),
    ]
    with client_for(filed, caller=None) as client:
        for _ in range(2):
            assert [client.request("GET", NEW, headers=bearer(key)).status for key in keys] == [
                200,
                403,
                404,
            ]
        named = {"timewright-namespace": "team-a"}
        assert client.request("GET", NEW, headers=bearer(keys[0]) | named).status == 403


def test_a_read_that_would_block_is_answered_in_a_thread(
    filed: OperationsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    filed.ask("schedule create", name="new", every="1h", note="x")
    with client_for(filed) as client:
        missing = client.request("GET", "/api/v1/schedules/nev")
        assert (missing.status, missing.data["fix"]) == (404, "did you mean new?")
        assert client.request("GET", "/api/v1/schedules?limit=1000").status == 200
        assert client.request("GET", "/api/v1/schedules?tag=x").data["schedules"] == []
        assert client.request("GET", "/api/v1/schedules?limit=0").status == 422
        with filed.store._nonblocking._in_use:  # type: ignore[attr-defined]
            assert client.request("GET", NEW).status == 200
        filed.ask("schedule update", schedule="new", grace="1m")

        def busy(_executor: Any) -> int:
            raise apsw.BusyError("someone recovers the file")

        monkeypatch.setattr(nonblocking, "_version", busy)
        assert client.request("GET", NEW).headers["etag"] == '"2"'


def test_a_read_with_a_body_is_refused(filed: OperationsHarness) -> None:
    filed.ask("schedule create", name="new", every="1h", note="x")
    with client_for(filed) as client:
        assert client.request("GET", NEW).status == 200
        for length in ({}, {"content-length": "2"}):
            assert client.request("GET", NEW, data={}, headers=length).data["code"] == "unexpected_body"


def test_an_expensive_read_is_moved_to_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonblocking, "MAX_VM_STEPS", 100)
    clock = ManualClock(OperationsHarness().now)
    store = SqliteStore(tmp_path / "store.db", clock=clock)
    harness = OperationsHarness(store=store, clock=clock)
    for number in range(30):
        harness.ask("schedule create", name=f"s{number}", every="1h", note="x")
    assert store.nonblocking_reader is not None
    assert store.nonblocking_reader.read(lambda tx: tx.select(SchedulesNamed("default", ["s1"])))
    with pytest.raises(WouldBlock):
        store.nonblocking_reader.read(lambda tx: tx.find(ScheduleFilter()))
    assert store.nonblocking_reader.read(lambda tx: tx.select(SchedulesNamed("default", ["s1"])))
    store.close()
    with pytest.raises(WouldBlock):
        store.nonblocking_reader.data_version()


def test_an_interrupted_read_leaves_no_open_transaction(filed: OperationsHarness) -> None:
    nonblocking_reader = filed.store.nonblocking_reader  # type: ignore[attr-defined]

    def linger(_tx: Any) -> None:
        # As if the allowance were spent, and every other step asked about.
        nonblocking_reader._calls = 1
        nonblocking_reader._executor.connection.set_progress_handler(nonblocking_reader._exceeds_limit, 2)

    for _ in range(2):
        nonblocking_reader.read(linger)
        nonblocking_reader._executor.connection.set_progress_handler(None)
    assert not nonblocking_reader._executor.connection.in_transaction


def test_the_response_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Still:
        """A store without writes."""

        def data_version(self) -> int:
            return 7

    monkeypatch.setattr(operation_handler, "MAX_CACHE_BYTES", 100)
    kept = ResponseCache(Still())  # type: ignore[arg-type]
    questions: list[CacheKey] = [("default", "", (str(number),), "") for number in range(9)]
    kept.get(questions[0])
    for question in questions:
        kept.put(question, ApiResponse(b"x" * 30), expires_at=None)
    assert [kept.get(question) is not None for question in questions] == [False] * 6 + [True] * 3


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
def test_the_next_occurrences_do_not_change_before_the_next_one(
    trigger: dict[str, Any],
) -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="new", note="x", **trigger)
    found = harness.store.read(lambda tx: tx.get_schedule_snapshot("default", "new"))
    assert found is not None
    due = found.record
    assert due.progress.next_at is not None
    until = planned_until(due)
    assert until in (None, due.progress.next_at)
    for part in (0.0, 0.3, 0.999999):
        now = harness.now + (due.progress.next_at - harness.now) * part
        shown = harness.store.read(partial(build_schedule_detail, snapshot=ScheduleSnapshot(due), now=now))
        assert shown.next == forecast(due.schedule, due.progress, now=now)
