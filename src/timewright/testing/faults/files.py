"""Stories of a store in a file: no room, no writing, not ours, not whole, gone, and two at once."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from timewright import Scheduler
from timewright.testing.faults.fleet import expect, until, verify
from timewright.testing.faults.room import limit_files, small_disk
from timewright.testing.faults.story import Scene, Story
from timewright.testing.faults.terminal import up
from timewright.testing.faults.ticking import accepted_once, all_begin, catch_up, tick_every_second

NO_ROOM_FOR = 3.0


def disk_full(scene: Scene) -> str:
    """The last byte of the disk is taken while a worker works, and given back."""
    with (
        small_disk(scene.folder / "disk", size="4m") as disk,
        scene.fleet(str(disk.folder / "store.db")) as fleet,
    ):
        names = tick_every_second(fleet)
        (worker,) = fleet.start()
        all_begin(fleet, names)
        disk.fill()
        before = stands_still(fleet.app, names)
        disk.make_room()
        catch_up(fleet, names)
        expect(not worker.ended, "the worker to have lived through it")
        fleet.stop()
        accepted_once(fleet, names, skipped={"overlap"})
        return (
            f"stood still at {before} rows, read all the while, {len(fleet.rows(names[0]))} s accounted for"
        )


def stands_still(app: Scheduler, names: list[str]) -> int:
    """Wait until no row is added for a few seconds, while reading goes on; says how many there are."""
    seen: list[int] = []

    def is_still() -> bool:
        seen.append(sum(len(app.runs.list(schedule=name, limit=1000)["runs"]) for name in names))
        return len(seen) > NO_ROOM_FOR / 0.02 and seen[-1] == seen[-int(NO_ROOM_FOR / 0.02)]

    until(is_still, "nothing to be written any more")
    return seen[-1]


def write_fails(scene: Scene) -> str:
    """Every write that would make a file longer fails, as on a disk that breaks; then none does."""
    with scene.file_fleet() as fleet:
        names = tick_every_second(fleet)
        (worker,) = fleet.start()
        all_begin(fleet, names)
        log = Path(f"{fleet.place}-wal")
        limit_files(worker.pid, log.stat().st_size)
        before = stands_still(fleet.app, names)
        limit_files(worker.pid, None)
        catch_up(fleet, names)
        expect(not worker.ended, "the worker to have lived through it")
        fleet.stop()
        accepted_once(fleet, names, skipped={"overlap"})
        return f"stood still at {before} rows, then went on by itself"


def read_only(scene: Scene) -> str:
    """A file system that takes no writes."""
    with small_disk(scene.folder / "disk", size="4m") as disk:
        place = disk.folder / "store.db"
        made(place)
        disk.read_only()
        before = place.read_bytes()
        with up(scene.folder, str(place)) as process:
            said = process.refuses("does not take writes")
        expect(place.read_bytes() == before, "the file to be as it was")
        return said


def truncated(scene: Scene) -> str:
    """A file that was cut in the middle."""
    place = scene.folder / "store.db"
    made(place)
    os.truncate(place, place.stat().st_size // 2)
    return refused_and_left_alone(scene, place, "damaged")


def foreign(scene: Scene) -> str:
    """A database of another application."""
    place = scene.folder / "other.db"
    connection = apsw.Connection(str(place))
    connection.execute("CREATE TABLE invoices (id INTEGER); INSERT INTO invoices VALUES (7)")
    connection.close()
    return refused_and_left_alone(scene, place, "another application")


def not_a_database(scene: Scene) -> str:
    """A file with something else in it."""
    place = scene.folder / "notes.db"
    place.write_bytes(b"dear diary, " * 500)
    return refused_and_left_alone(scene, place, "not a database")


def refused_and_left_alone(scene: Scene, place: Path, word: str) -> str:
    """`timewright up` says what it is, and does not touch it."""
    before = place.read_bytes()
    with up(scene.folder, str(place)) as process:
        said = process.refuses(word)
    expect(place.read_bytes() == before, "the file to be as it was")
    return said


def removed(scene: Scene) -> str:
    """The file is deleted while `timewright up` works with it."""
    place = scene.folder / "store.db"
    made(place)
    with up(scene.folder, str(place)) as process:
        process.ready()
        for path in scene.folder.glob("store.db*"):
            path.unlink()
        until(lambda: "deleted or replaced" in process.words, "the loss to be noticed and said")
        code = process.end()
        expect(not place.exists(), "no empty store to be put in its place")
        return f"said so, wrote nothing more, ended with {code}"


def two_at_once(scene: Scene) -> str:
    """Two `timewright up` on one file."""
    place = scene.folder / "store.db"
    made(place)
    with up(scene.folder, str(place), number=1) as one, up(scene.folder, str(place), number=2) as two:
        one.ready()
        two.ready()
        app = Scheduler(place)
        try:
            until(lambda: len(succeeded(app)) >= 6, "six seconds of work")
        finally:
            app.stop()
        codes = (one.end(), two.end())
    expect(codes == (0, 0), f"both to leave with code 0, not {codes}")
    app = Scheduler(place)
    try:
        rows = app.runs.list(schedule="hello", limit=1000)["runs"]
        expect(len({row["planned_at"] for row in rows}) == len(rows), "one row for every instant")
        expect({row["fence"] for row in succeeded(app)} == {1}, "one lease for every run")
    finally:
        app.stop()
    verify(str(place))
    return f"{len(rows)} instants, each decided once and leased once; both ended with 0"


def made(place: Path) -> None:
    """A store with one schedule that ticks every second, and something in it."""
    app = Scheduler(place)
    app.schedules.create(name="hello", every="1s", note="hello", catch_up="all", metadata={"a": "x" * 3000})
    app.stop()


def succeeded(app: Scheduler) -> list[dict[str, object]]:
    """What has run."""
    found: list[dict[str, object]] = app.runs.list(schedule="hello", state="succeeded", limit=1000)["runs"]
    return found


STORIES = (
    Story(
        name="disk-full",
        row="C3",
        done="the last byte of the disk is taken under a worker, then given back",
        expected="writing stops, reading goes on, it resumes by itself, no second is lost",
        work=disk_full,
    ),
    Story(
        name="write-fails",
        row="C4",
        done="every write that makes a file longer fails (RLIMIT_FSIZE), then none does",
        expected="the worker lives, goes on by itself, no second is lost",
        work=write_fails,
    ),
    Story(
        name="read-only",
        row="C4",
        done="`timewright up` on a file system mounted read-only",
        expected="refused with a remedy, the file untouched",
        work=read_only,
        quick=True,
    ),
    Story(
        name="truncated",
        row="C10",
        done="`timewright up` on a file cut in the middle",
        expected="refused with a remedy, the file untouched",
        work=truncated,
        quick=True,
    ),
    Story(
        name="foreign",
        row="C10",
        done="`timewright up` on a database of another application",
        expected="refused with a remedy, the file untouched",
        work=foreign,
        quick=True,
    ),
    Story(
        name="not-a-database",
        row="C10",
        done="`timewright up` on a file with something else in it",
        expected="refused with a remedy, the file untouched",
        work=not_a_database,
        quick=True,
    ),
    Story(
        name="removed",
        row="C9, C14",
        done="the file and its log are deleted under `timewright up`",
        expected="noticed and said; nothing is written into the void, no new file is made",
        work=removed,
    ),
    Story(
        name="two-at-once",
        row="A15",
        done="two `timewright up` work on one file",
        expected="every instant decided once and leased once, both end with 0",
        work=two_at_once,
    ),
)
