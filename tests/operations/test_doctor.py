"""The doctor: each thing that has gone wrong somewhere before is looked at, and its remedy named."""

from __future__ import annotations

import json
import os
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.conftest import postgres_template, postgres_url
from tests.doors.terminal import ask
from tests.operations.house import NOON, House
from timewright.assembly import open_store, surroundings_for
from timewright.observe.surroundings import EXTRAS
from timewright.operations.checks import Finding, own_file, size, surroundings_findings, zone_data
from timewright.ports.surroundings import Condition, OwnFile, Surroundings
from timewright.settings import Settings
from timewright.testing.postgres import fresh_database

__all__ = ["postgres_template", "postgres_url"]

GOOD = Condition(
    engine="SQLite 3.54.1",
    place="timewright.db",
    settings={"journal_mode": "wal"},
    wanted={"journal_mode": "wal"},
    file_system="ext4",
    free_bytes=200 * 1024**3,
    store_bytes=10 * 1024**2,
    wal_bytes=0,
    schema=4,
    clock_offset=0.0,
)
AROUND = Surroundings(
    version="0.1.0",
    python="3.11.7",
    condition=GOOD,
    files=(OwnFile(what="key", path="k", mine=True, mode=0o600),),
    extras={"otel": False, "postgres": True},
    zone_data="2026b",
    bundled_zone_data="2026b",
)


def found(around: Surroundings = AROUND, settings: Settings | None = None) -> dict[str, Finding]:
    findings = surroundings_findings(around, settings or Settings(), now=NOON)
    return {finding.check: finding for finding in findings}


def ill(**fields: Any) -> dict[str, Finding]:
    return found(replace(AROUND, condition=replace(GOOD, **fields)))


def test_where_all_is_well_everything_is_said_and_nothing_to_mend() -> None:
    told = found()
    assert {finding.status for finding in told.values()} == {"ok"}
    assert all(not finding.fix for finding in told.values())
    assert told["store"].says == "SQLite 3.54.1, journal_mode wal, ext4, 200 GiB free"
    assert told["extras"].says == "extras: postgres (without otel)"


@pytest.mark.parametrize(
    ("fields", "check", "status", "said"),
    [
        ({"settings": {"journal_mode": "delete"}}, "store", "fail", "journal_mode = delete"),
        ({"settings": {"fsync": "off"}, "wanted": {"fsync": "on"}}, "store", "fail", "fsync = off"),
        ({"free_bytes": 50 * 1024**2}, "space", "fail", "50 MiB are free"),
        ({"free_bytes": 500 * 1024**2}, "space", "warn", "500 MiB are free"),
        ({"wal_bytes": 300 * 1024**2}, "log", "warn", "300 MiB"),
        ({"waiting": ("0005 more",)}, "schema", "fail", "0005 more"),
        ({"clock_offset": 2.5}, "clock", "warn", "2.5s ahead of"),
        ({"clock_offset": -2.5}, "clock", "warn", "2.5s behind"),
        ({"clock_offset": 3600.0}, "clock", "fail", "1h ahead of"),
        ({"pooled": True}, "pooler", "warn", "pooler"),
        ({"settings": {"fsync": "on"}, "wanted": {}}, "notify", "warn", "does not come through"),
    ],
)
def test_what_is_wrong_with_a_store_is_found_with_its_remedy(
    fields: dict[str, Any], check: str, status: str, said: str
) -> None:
    finding = ill(**fields)[check]
    assert finding.status == status
    assert said in finding.says
    assert finding.fix


@pytest.mark.parametrize(
    ("used", "bundled", "status"),
    [
        ("2026b", "2026b", "ok"),
        ("2026c", "2026b", "ok"),
        ("2025b", "2026b", "warn"),
        ("", "2026b", "ok"),
        ("", "2023a", "warn"),
        ("2023a", "", "warn"),
        ("", "", "fail"),
    ],
)
def test_old_zone_data_is_found(used: str, bundled: str, status: str) -> None:
    finding = zone_data(used, bundled, now=NOON)
    assert finding.status == status
    assert bool(finding.fix) is (status != "ok")


@pytest.mark.parametrize(
    ("what", "mode", "mine", "status"),
    [
        ("key", 0o600, True, "ok"),
        ("key", 0o640, True, "fail"),
        ("key", 0o600, False, "fail"),
        ("file", 0o600, True, "ok"),
        ("file", 0o644, True, "warn"),
        ("file", 0o666, True, "fail"),
        ("settings", 0o644, True, "ok"),
        ("settings", 0o664, True, "fail"),
    ],
)
def test_a_file_that_others_may_touch_is_found(what: str, mode: int, mine: bool, status: str) -> None:
    finding = own_file(OwnFile(what=what, path="x", mine=mine, mode=mode))
    assert finding.status == status
    assert bool(finding.fix) is (status != "ok")


def test_an_extra_that_a_setting_needs_is_missed() -> None:
    told = found(settings=Settings(trace=True))["extras"]
    assert (told.status, told.fix) == ("fail", 'pip install "timewright[otel]"')


def test_every_extra_that_a_user_may_add_is_looked_for() -> None:
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text("utf-8")
    for_makers = {"test", "brokers", "browser", "bench", "docs", "lock", "dev"}
    assert set(EXTRAS) == set(tomllib.loads(text)["project"]["optional-dependencies"]) - for_makers


def test_a_size_is_said_as_people_say_it() -> None:
    assert [size(n) for n in (0, 1023, 1536, 20 * 1024, 3 * 1024**4)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "20 KiB",
        "3.0 TiB",
    ]


def checks(house: House) -> dict[str, dict[str, Any]]:
    return {one["check"]: one for one in house.ask("doctor")["findings"]}


def test_a_house_at_work_is_well_and_says_what_comes_next() -> None:
    house = House()
    house.ask("schedule create", name="hourly", every="1h", note="x")
    house.advance(minutes=5)
    answer = house.ask("doctor")
    assert answer["status"] == "ok"
    assert checks(house)["schedules"]["says"] == "1 schedule, next due in 55m"


def test_what_is_overdue_parked_stuck_or_left_behind_is_found(house: House) -> None:
    told = checks(house)
    assert told["parked"]["status"] == "warn"
    assert told["parked"]["says"] == "waiting for a person: 1 run"
    assert "run reset" in told["parked"]["fix"]
    house.sleep(minutes=30)
    told = checks(house)
    assert told["due"]["status"] == "fail"
    assert "27m ago" in told["due"]["says"]
    assert told["leases"]["status"] == "warn"
    backlog = [one["says"] for one in house.ask("doctor")["findings"] if one["check"] == "backlog"]
    assert "queue mail: 1 run ready, the longest for 32m" in backlog
    assert house.ask("doctor")["status"] == "fail"
    assert "backlog" not in checks(house.elsewhere())


def test_a_schedule_that_cannot_be_read_fails_the_check() -> None:
    house = House()
    house.ask("schedule create", name="hourly", every="1h", note="x")
    store: Any = house.store
    store._writer.connection.execute("UPDATE schedules SET state = 'dreaming'")
    told = checks(house)["schedules"]
    assert (told["status"], told["says"]) == ("fail", "1 schedule cannot be read: hourly")


def test_clocks_that_change_soon_are_told_with_who_keeps_their_time() -> None:
    house = House()
    house.ask("schedule create", name="nightly", cron="30 2 * * *", zone="Europe/Berlin", note="x")
    house.ask("schedule create", name="there", cron="30 2 * * *", zone="Asia/Tokyo", note="x")
    told = [one for one in house.ask("doctor")["findings"] if one["check"] == "dst"]
    assert [one["says"] for one in told] == [
        "the clocks of Europe/Berlin change within 30 days, for 1 schedule"
    ]


def test_functions_that_schedules_call_and_nobody_registered_are_found() -> None:
    house = House()
    for name in ("known", "gone"):
        house.ask("schedule create", name=name, every="1h", call=name)
    assert "functions" not in checks(house), "a process without functions cannot tell"
    house.context = replace(house.context, functions=lambda: frozenset({"known"}))
    told = checks(house)["functions"]
    assert (told["status"], told["says"]) == ("warn", "schedules call what is not registered here: gone")


def test_shell_targets_that_may_run_are_pointed_out() -> None:
    house = House()
    house.context = replace(house.context, settings=Settings(shell=True))
    assert checks(house)["shell"]["status"] == "warn"


def test_a_door_that_others_reach_in_the_clear_is_pointed_out() -> None:
    house = House()
    for settings, seen in (
        (Settings(), False),
        (Settings(bind="0.0.0.0"), True),
        (Settings(bind="0.0.0.0", behind_proxy=True), False),
    ):
        house.context = replace(house.context, settings=settings)
        assert ("bind" in checks(house)) is seen


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_a_store_in_a_file_is_looked_at_from_outside(here: Path) -> None:
    open_store("timewright.db").close()
    around = surroundings_for("timewright.db", Settings())()
    assert around.condition.settings == {"journal_mode": "wal"}
    assert around.condition.waiting == ()
    assert around.condition.free_bytes
    assert abs(around.condition.clock_offset or 0) < 5
    (file,) = [one for one in around.files if one.what == "file"]
    assert file.mode == 0o600


def test_a_store_on_a_server_is_looked_at_from_outside(postgres_url: str, postgres_template: str) -> None:
    with fresh_database(postgres_url, template=postgres_template) as place:
        around = surroundings_for(place, Settings())()
    assert set(around.condition.settings) == {"fsync", "full_page_writes", "synchronous_commit"}
    assert around.condition.engine.startswith("PostgreSQL ")
    assert (around.condition.waiting, around.condition.pooled) == ((), False)
    assert around.condition.notified_after is not None
    told = found(around)
    assert told["notify"].says.startswith("NOTIFY comes through in")
    assert abs(around.condition.clock_offset or 0) < 5


def test_a_pooler_that_names_a_process_of_its_own_is_seen_and_not_listened_through(
    postgres_url: str, postgres_template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psycopg.ConnectionInfo.backend_pid", property(lambda _: -56393023))
    with fresh_database(postgres_url, template=postgres_template) as place:
        around = surroundings_for(place, Settings())()
    assert (around.condition.pooled, around.condition.notified_after) == (True, None)
    told = found(around)
    assert (told["pooler"].status, "notify" in told) == ("warn", False)


def test_the_command_prints_a_line_a_finding_and_fails_when_something_does(here: Path) -> None:
    ask(None, "schedule", "create", "hello", "--every", "1h", "--note", "x")
    well = ask(None, "doctor")
    assert well.code == 0
    assert all(line[:4] in ("ok  ", "warn", "    ") or line.startswith(" ") for line in well.lines)
    (here / "timewright.db").chmod(0o666)
    ill_one = ask(None, "doctor", "-o", "json")
    assert ill_one.code == 1
    told = json.loads(ill_one.out)
    assert told["status"] == "fail"
    (bad,) = [one for one in told["findings"] if one["status"] == "fail"]
    assert bad["fix"] == "chmod go-rwx timewright.db"


def test_a_schema_that_is_behind_is_told_and_not_mended_by_asking(here: Path) -> None:
    ask(None, "schedule", "create", "hello", "--every", "1h", "--note", "x")
    import apsw

    connection = apsw.Connection("timewright.db")
    connection.execute("DELETE FROM migrations WHERE number = (SELECT max(number) FROM migrations)")
    connection.close()
    said = ask(None, "doctor")
    assert said.code == 1
    assert "timewright migrate" in said.out
    assert ask(None, "doctor").code == 1, "and it was not mended by asking"


def test_a_backup_is_remembered_and_grows_old(here: Path) -> None:
    ask(None, "schedule", "create", "hello", "--every", "1h", "--note", "x")
    assert "no backup by timewright backup is known" in ask(None, "doctor").out
    assert ask(None, "backup", "copy.db").code == 0
    assert "the last backup is 0s old" in ask(None, "doctor").out.replace("1s", "0s")
    house = House()
    made = datetime(2026, 2, 1, tzinfo=UTC)
    house.store.write(lambda tx: tx.put_meta("backup_at", str(int(made.timestamp() * 1_000_000))))
    told = checks(house)["backup"]
    assert (told["status"], told["says"]) == ("warn", "the last backup is 37d12h old")


def test_a_key_file_that_others_may_read_fails_the_check(here: Path) -> None:
    assert os.name == "posix"
    ask(None, "schedule", "create", "hello", "--every", "1h", "--note", "x")
    key = here / "my.key"
    key.write_text("x" * 43)
    key.chmod(0o644)
    (here / "timewright.toml").write_text(f'secret_key_file = "{key}"\n')
    said = ask(None, "doctor", "-o", "json")
    assert said.code == 1
    assert f"chmod go-rwx {key}" in [one["fix"] for one in said.data["findings"]]
