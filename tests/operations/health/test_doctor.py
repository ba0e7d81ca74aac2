"""The doctor finds known problems and names the fix for each."""

from __future__ import annotations

import json
import os
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from tests.conformance.conftest import postgres_template, postgres_url
from tests.interfaces.terminal import invoke
from tests.operations.harness import NOON, OperationsHarness
from timewright.core.finding import Finding
from timewright.core.run.needs import Offer
from timewright.ledger.records.instances import InstanceRecord, offer_id, record_heartbeat, record_offer
from timewright.operations.health.doctor_checks import (
    file_finding,
    format_bytes,
    host_findings,
    zone_data_finding,
)
from timewright.ports.host_info import HostInfo, OpenSnapshot, PrivateFile, StoreStatus, TableStatus
from timewright.settings import Settings
from timewright.stores.migrate import Migration, load_migrations
from timewright.testing.postgres import fresh_database
from timewright.wiring import host_inspector, open_store
from timewright.wiring.store_urls import EXTRA_MODULES

__all__ = ["postgres_template", "postgres_url"]

GOOD = StoreStatus(
    engine="SQLite 3.54.1",
    location="timewright.db",
    settings={"journal_mode": "wal"},
    required_settings={"journal_mode": "wal"},
    file_system="ext4",
    free_bytes=200 * 1024**3,
    store_bytes=10 * 1024**2,
    wal_bytes=0,
    schema=4,
    clock_offset=0.0,
)
AROUND = HostInfo(
    version="0.1.0",
    python="3.11.7",
    store_status=GOOD,
    files=(PrivateFile(label="key", path="k", owned_by_us=True, mode=0o600),),
    extras={"otel": False, "postgres": True},
    zone_data="2026b",
    bundled_zone_data="2026b",
)


def found(around: HostInfo = AROUND, settings: Settings | None = None) -> dict[str, Finding]:
    findings = host_findings(around, settings or Settings(), now=NOON)
    return {finding.kind: finding for finding in findings}


def ill(**fields: Any) -> dict[str, Finding]:
    return found(replace(AROUND, store_status=replace(GOOD, **fields)))


def test_a_healthy_host_has_only_ok_findings() -> None:
    answer = found()
    assert {finding.severity for finding in answer.values()} == {"ok"}
    assert all(not finding.remedy for finding in answer.values())
    assert answer["store"].sentence == "SQLite 3.54.1, journal_mode wal, ext4, 200 GiB free"
    assert answer["extras"].sentence == "extras: postgres (without otel)"


@pytest.mark.parametrize(
    ("fields", "check", "status", "message"),
    [
        ({"settings": {"journal_mode": "delete"}}, "store", "fail", "journal_mode = delete"),
        (
            {"settings": {"fsync": "off"}, "required_settings": {"fsync": "on"}},
            "store",
            "fail",
            "fsync = off",
        ),
        ({"free_bytes": 50 * 1024**2}, "space", "fail", "50 MiB free"),
        ({"free_bytes": 500 * 1024**2}, "space", "warn", "500 MiB free"),
        ({"wal_bytes": 300 * 1024**2}, "log", "warn", "300 MiB"),
        ({"pending_migrations": ("0005 more",)}, "schema", "fail", "0005 more"),
        ({"clock_offset": 2.5}, "clock", "warn", "2.5s ahead of"),
        ({"clock_offset": -2.5}, "clock", "warn", "2.5s behind"),
        ({"clock_offset": 3600.0}, "clock", "fail", "1h ahead of"),
        ({"pooled": True}, "pooler", "warn", "pooler"),
        ({"settings": {"fsync": "on"}, "required_settings": {}}, "notify", "warn", "does not arrive"),
        ({"snapshots": (OpenSnapshot("session 7 (user a)", 720, "end"),)}, "snapshot", "warn", "for 12m"),
        ({"tables": (TableStatus("runs", 10, 20_000, True),)}, "bloat", "warn", "20,000 dead rows"),
        ({"tables": (TableStatus("runs", 5_000, 0, False),)}, "statistics", "warn", "no statistics"),
        ({"settings": {"synchronous_commit": "off"}}, "synchronous_commit", "warn", "may lose commits"),
    ],
)
def test_store_problems_are_found_with_their_fix(
    fields: dict[str, Any], check: str, status: str, message: str
) -> None:
    finding = ill(**fields)[check]
    assert finding.severity == status
    assert message in finding.sentence
    assert finding.remedy


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
    finding = zone_data_finding(used, bundled, now=NOON)
    assert finding.severity == status
    assert bool(finding.remedy) is (status != "ok")


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
def test_a_file_with_access_for_others_is_found(what: str, mode: int, mine: bool, status: str) -> None:
    finding = file_finding(PrivateFile(label=what, path="x", owned_by_us=mine, mode=mode))
    assert finding.severity == status
    assert bool(finding.remedy) is (status != "ok")


def test_a_missing_extra_that_a_setting_needs_is_found() -> None:
    answer = found(settings=Settings(trace=True))["extras"]
    assert (answer.severity, answer.remedy) == ("fail", 'pip install "timewright[otel]"')


def test_every_optional_extra_is_checked() -> None:
    text = (Path(__file__).resolve().parents[3] / "pyproject.toml").read_text("utf-8")
    for_makers = {"test", "brokers", "browser", "bench", "docs", "lock", "dev"}
    assert set(EXTRA_MODULES) == set(tomllib.loads(text)["project"]["optional-dependencies"]) - for_makers


def test_bytes_are_formatted_with_a_unit() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1536, 20 * 1024, 3 * 1024**4)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "20 KiB",
        "3.0 TiB",
    ]


def checks(harness: OperationsHarness) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in harness.ask("doctor")["findings"]}


def test_a_working_system_is_ok_and_shows_its_next_wake_up() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="hourly", every="1h", note="x")
    harness.advance(minutes=5)
    assert checks(harness)["instances"]["sentence"] == "no instance is running, so nothing starts"
    now = harness.context.now()
    instance = InstanceRecord(id="ins_1", host="h", version="1", started_at=now, capacity=1)
    harness.store.write(lambda tx: record_heartbeat(tx, instance, now=now))
    answer = harness.ask("doctor")
    assert answer["severity"] == "ok"
    assert checks(harness)["instances"]["sentence"] == "1 instance runs"
    assert checks(harness)["schedules"]["sentence"] == "1 schedule, next due in 55m"


def test_overdue_parked_and_stalled_items_are_found(harness: OperationsHarness) -> None:
    answer = checks(harness)
    assert answer["parked"]["severity"] == "warn"
    assert answer["parked"]["sentence"] == "parked, waiting for a person: 1 run"
    assert "run reset" in answer["parked"]["remedy"]
    harness.sleep(minutes=30)
    answer = checks(harness)
    assert answer["due"]["severity"] == "fail"
    assert "due for 27m" in answer["due"]["sentence"]
    assert answer["leases"]["severity"] == "warn"
    backlog = [one["sentence"] for one in harness.ask("doctor")["findings"] if one["kind"] == "backlog"]
    assert "queue mail: 1 run ready, the longest for 32m" in backlog
    assert harness.ask("doctor")["severity"] == "fail"
    assert "backlog" not in checks(harness.in_namespace())


def test_a_schedule_that_cannot_be_read_fails_the_check() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="hourly", every="1h", note="x")
    store: Any = harness.store
    store._writer.connection.execute("UPDATE schedules SET state = 'dreaming'")
    answer = checks(harness)["schedules"]
    assert (answer["severity"], answer["sentence"]) == ("fail", "1 schedule cannot be read: hourly")


def test_upcoming_clock_changes_are_shown_with_the_affected_schedules() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="nightly", cron="30 2 * * *", zone="Europe/Berlin", note="x")
    harness.ask("schedule create", name="there", cron="30 2 * * *", zone="Asia/Tokyo", note="x")
    answer = [one for one in harness.ask("doctor")["findings"] if one["kind"] == "dst"]
    assert [one["sentence"] for one in answer] == [
        "the clocks of Europe/Berlin change within 30 days, for 1 schedule"
    ]


def test_unregistered_functions_are_found() -> None:
    harness = OperationsHarness()
    for name in ("known", "gone"):
        harness.ask("schedule create", name=name, every="1h", call=name)
    assert "functions" not in checks(harness), "a process without functions cannot tell"
    harness.context = replace(harness.context, known_functions=lambda: frozenset({"known"}))
    answer = checks(harness)["functions"]
    assert (answer["severity"], answer["sentence"]) == ("warn", "schedules call unregistered functions: gone")


def test_enabled_shell_targets_are_a_warning() -> None:
    harness = OperationsHarness()
    harness.context = replace(harness.context, settings=Settings(shell=True))
    assert checks(harness)["shell"]["severity"] == "warn"


def test_shell_targets_of_another_instance_are_a_warning() -> None:
    harness = OperationsHarness()
    now, offer = harness.context.now(), Offer(programs=("make",))
    instance = InstanceRecord(
        id="ins_1", host="h", version="1", started_at=now, capacity=1, offer=offer_id(offer)
    )
    harness.store.write(lambda tx: record_offer(tx, offer, now=now))
    harness.store.write(lambda tx: record_heartbeat(tx, instance, now=now))
    answer = checks(harness)["shell"]
    assert (answer["severity"], "1 instance" in answer["sentence"]) == ("warn", True)
    harness.advance(minutes=5)
    assert checks(harness)["shell"]["severity"] == "ok"


def test_an_http_server_without_tls_is_a_warning() -> None:
    harness = OperationsHarness()
    for settings, seen in (
        (Settings(), False),
        (Settings(bind="0.0.0.0"), True),
        (Settings(bind="0.0.0.0", behind_proxy=True), False),
    ):
        harness.context = replace(harness.context, settings=settings)
        assert ("bind" in checks(harness)) is seen


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_the_doctor_inspects_a_sqlite_store(here: Path) -> None:
    open_store("timewright.db").close()
    around = host_inspector("timewright.db", Settings())()
    assert around.store_status.settings == {"journal_mode": "wal"}
    assert around.store_status.pending_migrations == ()
    assert around.store_status.free_bytes
    assert abs(around.store_status.clock_offset or 0) < 5
    (file,) = [one for one in around.files if one.label == "file"]
    assert file.mode == 0o600


def test_the_doctor_inspects_a_postgresql_store(postgres_url: str, postgres_template: str) -> None:
    with fresh_database(postgres_url, template=postgres_template) as place:
        around = host_inspector(place, Settings())()
    assert set(around.store_status.settings) == {"fsync", "full_page_writes", "synchronous_commit"}
    assert around.store_status.engine.startswith("PostgreSQL ")
    assert (around.store_status.pending_migrations, around.store_status.pooled) == ((), False)
    assert around.store_status.notified_after is not None
    answer = found(around)
    assert answer["notify"].sentence.startswith("NOTIFY arrives within")
    assert abs(around.store_status.clock_offset or 0) < 5


def test_the_doctor_names_a_session_that_keeps_a_snapshot_open(
    postgres_url: str, postgres_template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timewright.operations.health.doctor_checks.MAX_SNAPSHOT_AGE_S", 0.0)
    with (
        fresh_database(postgres_url, template=postgres_template) as place,
        psycopg.connect(place, application_name="nightly-report") as reader,
    ):
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM runs")
        finding = found(host_inspector(place, Settings())())["snapshot"]
        assert f"session {reader.info.backend_pid} (user postgres, nightly-report" in finding.sentence
        assert "idle in transaction" in finding.sentence
        assert finding.remedy == f"let it end, or SELECT pg_terminate_backend({reader.info.backend_pid})"
        reader.rollback()
        assert "snapshot" not in found(host_inspector(place, Settings())())


def test_a_pooler_is_detected_and_notify_is_not_used_through_it(
    postgres_url: str, postgres_template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psycopg.ConnectionInfo.backend_pid", property(lambda _: -56393023))
    with fresh_database(postgres_url, template=postgres_template) as place:
        around = host_inspector(place, Settings())()
    assert (around.store_status.pooled, around.store_status.notified_after) == (True, None)
    answer = found(around)
    assert (answer["pooler"].severity, "notify" in answer) == ("warn", False)


def test_the_command_prints_one_line_per_finding_and_fails_if_one_fails(here: Path) -> None:
    invoke(None, "schedule", "create", "hello", "--every", "1h", "--note", "x")
    well = invoke(None, "doctor")
    assert well.code == 0
    assert all(line[:4] in ("ok  ", "warn", "    ") or line.startswith(" ") for line in well.lines)
    (here / "timewright.db").chmod(0o666)
    ill_one = invoke(None, "doctor", "-o", "json")
    assert ill_one.code == 1
    answer = json.loads(ill_one.out)
    assert answer["severity"] == "fail"
    (bad,) = [one for one in answer["findings"] if one["severity"] == "fail"]
    assert bad["remedy"] == "chmod go-rwx timewright.db"


def test_missing_migrations_are_reported_and_not_applied(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke(None, "schedule", "create", "hello", "--every", "1h", "--note", "x")
    known = (*load_migrations("sqlite"), Migration(9999, "more", "CREATE TABLE more (id INTEGER);\n"))
    monkeypatch.setattr("timewright.stores.store_info.load_migrations", lambda dialect: known)
    for _ in range(2):
        result = invoke(None, "doctor")
        assert (result.code, "timewright migrate" in result.out) == (1, True)


def test_a_backup_is_recorded_and_an_old_one_is_a_warning(here: Path) -> None:
    invoke(None, "schedule", "create", "hello", "--every", "1h", "--note", "x")
    assert "no backup by `timewright backup` is recorded" in invoke(None, "doctor").out
    assert invoke(None, "backup", "copy.db").code == 0
    assert "the last backup is 0s old" in invoke(None, "doctor").out.replace("1s", "0s")
    harness = OperationsHarness()
    made = datetime(2026, 2, 1, tzinfo=UTC)
    harness.store.write(lambda tx: tx.put_meta("backup_at", str(int(made.timestamp() * 1_000_000))))
    answer = checks(harness)["backup"]
    assert (answer["severity"], answer["sentence"]) == ("warn", "the last backup is 37d12h old")


def test_a_key_file_readable_by_others_fails_the_check(here: Path) -> None:
    assert os.name == "posix"
    invoke(None, "schedule", "create", "hello", "--every", "1h", "--note", "x")
    key = here / "my.key"
    key.write_text("x" * 43)
    key.chmod(0o644)
    (here / "timewright.toml").write_text(f'secret_key_file = "{key}"\n')
    result = invoke(None, "doctor", "-o", "json")
    assert result.code == 1
    assert f"chmod go-rwx {key}" in [one["remedy"] for one in result.data["findings"]]
