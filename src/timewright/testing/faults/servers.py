"""Stories of a store on a server: cut lines, silence, restarts, foreign locks, and a pooler in between."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psycopg

from timewright.testing.faults.fleet import Fleet, expect, until
from timewright.testing.faults.pooler import pooled
from timewright.testing.faults.proxy import Cut, Proxy, proxied
from timewright.testing.faults.story import Scene, Story
from timewright.testing.faults.ticking import accepted_once, all_begin, catch_up, tick_every_second
from timewright.testing.postgres import postgres_server

CUTS = 10
LEASE = 3.0
LOCKED_FOR = 6.5


@contextmanager
def worker_behind_a_line(scene: Scene) -> Iterator[tuple[Fleet, Proxy, list[str]]]:
    """One worker that ticks through a line we can cut; we look from behind it."""
    with (
        scene.database() as url,
        proxied(url) as proxy,
        scene.fleet(url, through=proxy.url) as fleet,
    ):
        names = tick_every_second(fleet)
        fleet.start()
        all_begin(fleet, names)
        yield fleet, proxy, names


def cut_at_commit(scene: Scene, order: Cut) -> str:
    """A commit is sent, the connection breaks: nobody knows whether it happened, and nothing goes wrong."""
    with worker_behind_a_line(scene) as (fleet, proxy, names):
        for number in range(1, CUTS + 1):
            proxy.cut_at_commit(order)
            until(partial(proxy.has_cut, order, number), f"commit {number} to be cut")
        catch_up(fleet, names)
        fleet.stop()
        accepted_once(fleet, names, skipped={"overlap"})
        return f"{proxy.cuts[order]} commits cut, {len(fleet.written('began'))} calls, none twice"


def cut_before_commit(scene: Scene) -> str:
    """The commit never arrived."""
    return cut_at_commit(scene, "before")


def cut_after_commit(scene: Scene) -> str:
    """The commit was applied, and its answer was lost."""
    return cut_at_commit(scene, "after")


def silence(scene: Scene) -> str:
    """Nothing is answered any more, and no connection ends: worse than a server that is gone."""
    with worker_behind_a_line(scene) as (fleet, proxy, names):
        fleet.schedule("long", "until_told", lease=f"{LEASE:g}s")
        run = fleet.run("long")
        fleet.find("began", schedule="long")
        began = time.monotonic()
        proxy.silence()
        fleet.find("told:_lease_not_renewed_in_time", schedule="long")
        ended = time.monotonic() - began
        expect(ended < LEASE, f"work ended before its lease is over, not after {ended:.1f} s of {LEASE:g} s")
        proxy.hang_up()
        catch_up(fleet, names)
        fences = [attempt["fence"] for attempt in fleet.settled(run)["attempts"]]
        expect(fences == [1, 2], f"one lease lost and one kept, not {fences}")
        fleet.stop()
        accepted_once(fleet, names, skipped={"overlap"})
        return f"work ended {ended:.1f} s into the silence, before its lease of {LEASE:g} s; went on after it"


def restart(scene: Scene) -> str:
    """A server is stopped as its keeper stops it, and started again."""
    with (
        postgres_server(durable=True) as server,
        scene.fleet(server.url()) as fleet,
    ):
        names = tick_every_second(fleet)
        (worker,) = fleet.start()
        all_begin(fleet, names)
        os.kill(server.pid, signal.SIGINT)
        server.start()
        catch_up(fleet, names)
        expect(not worker.ended, "the worker to have lived through it")
        fleet.stop()
        accepted_once(fleet, names, skipped={"overlap"})
        return f"{len(fleet.rows(names[0]))} s accounted for"


def foreign_locks(scene: Scene) -> str:
    """Somebody else's transaction holds the rows of our schedules for longer than we wait for a lock."""
    with (
        scene.database() as url,
        scene.fleet(url) as fleet,
        psycopg.connect(url) as stranger,
    ):
        names = tick_every_second(fleet)
        (worker,) = fleet.start()
        all_begin(fleet, names)
        stranger.execute("LOCK TABLE runs IN EXCLUSIVE MODE")
        before = len(fleet.rows(names[0]))
        threading.Event().wait(LOCKED_FOR)
        expect(len(fleet.rows(names[0])) == before, "reading to go on, and nothing to be written")
        stranger.rollback()
        catch_up(fleet, names)
        expect(not worker.ended, "the worker to have lived through it")
        fleet.stop()
        accepted_once(fleet, names, skipped={"overlap"})
        return f"stood still for {LOCKED_FOR:g} s at {before} rows, then caught up"


def behind_a_pooler(scene: Scene) -> str:
    """Two workers, three sessions, and each transaction in whichever is free."""
    with (
        scene.database() as url,
        pooled(url) as through,
        scene.fleet(url, through=through) as fleet,
    ):
        names = tick_every_second(fleet)
        fleet.schedule("asked", "note")
        fleet.start(2)
        all_begin(fleet, names)
        fleet.settled(fleet.run("asked"))
        until(lambda: len(fleet.written("began")) >= 5 * len(names), "five seconds of work")
        catch_up(fleet, names)
        fleet.stop()
        accepted_once(fleet, names, skipped={"overlap"})
        return f"{len(fleet.written('began'))} calls by two workers over three sessions, none twice"


STORIES = (
    Story(
        name="cut-before-commit",
        row="D2",
        done=f"the connection is cut at {CUTS} commits, each before the server hears of it",
        expected="read again by key, tried again; every instant once",
        work=cut_before_commit,
    ),
    Story(
        name="cut-after-commit",
        row="D2, A2",
        done=f"the connection is cut at {CUTS} commits, each applied and its answer lost",
        expected="read again by key, not repeated; every instant once",
        work=cut_after_commit,
    ),
    Story(
        name="silence",
        row="D3",
        done="a line passes nothing on and ends no connection; later it ends them all",
        expected="work is ended before its lease is over; afterwards all is caught up",
        work=silence,
    ),
    Story(
        name="server-restart",
        row="D5",
        done="the server is shut down under a worker, and started again",
        expected="connected again by itself, no second lost",
        work=restart,
    ),
    Story(
        name="foreign-locks",
        row="D13",
        done=f"another's transaction locks the runs for {LOCKED_FOR:g} s",
        expected="reading goes on, writing waits, nothing is lost",
        work=foreign_locks,
    ),
    Story(
        name="pooler",
        row="D9",
        done="two workers behind PgBouncer in transaction mode, with fewer sessions than connections",
        expected="full function, every instant once",
        work=behind_a_pooler,
    ),
)
