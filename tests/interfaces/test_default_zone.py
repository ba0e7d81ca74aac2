"""A schedule that names no time zone gets the default zone when it is written, and every answer shows it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from tests.interfaces.http.http_client import HttpTestClient, bearer, client_for
from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness, sample_harness
from timewright import Cron, Scheduler, Settings, cron, every
from timewright.clocks import system_zone
from timewright.errors import InvalidInput, InvalidZone
from timewright.operations import operations
from timewright.operations.access.callers import ALL_SCOPES, Caller

BERLIN = "Europe/Berlin"
NINE = {"cron": "0 9 * * *", "note": "x"}


@pytest.fixture
def harness() -> OperationsHarness:
    return sample_harness()


@pytest.fixture
def client(harness: OperationsHarness) -> Iterator[HttpTestClient]:
    with client_for(harness) as client:
        yield client


def created(harness: OperationsHarness, *words: str, zone: str = "UTC") -> Any:
    command = ["schedule", "create", "nine", "--note", "x", *words, "--json"]
    return invoke(harness, *command, TZ=zone).data


def trigger(answer: Any) -> Any:
    return answer["schedule"]["trigger"]


def test_the_command_line_uses_the_zone_of_the_machine(harness: OperationsHarness) -> None:
    answer = created(harness, "--cron", "0 9 * * *", zone=BERLIN)
    assert trigger(answer)["zone"] == BERLIN
    assert answer["trigger"] == "at 09:00 every day, Europe/Berlin time"
    assert answer["next"][0]["local"] == "2026-03-11T09:00:00+01:00"


def test_a_phrase_and_an_instant_mean_the_same_zone(harness: OperationsHarness) -> None:
    assert created(harness, "--every", "day at 9", zone=BERLIN)["next"][0]["local"].endswith("09:00:00+01:00")
    once = invoke(
        harness, "schedule", "create", "o", "--note", "x", "--at", "tomorrow 09:00", "--json", TZ=BERLIN
    )
    assert trigger(once.data)["at"] == "2026-03-11T08:00:00Z"


def test_a_zone_beside_an_instant_is_its_zone(harness: OperationsHarness, client: HttpTestClient) -> None:
    answer = created(harness, "--at", "2026-12-25T09:00", "--zone", BERLIN, zone="Asia/Tokyo")
    assert (trigger(answer)["at"], answer["read_as"]) == (
        "2026-12-25T08:00:00Z",
        "Friday 2026-12-25 at 09:00, Europe/Berlin",
    )
    fields = {"name": "web", "note": "x", "at": "2026-12-25T09:00+01:00", "zone": BERLIN}
    over_http = client.request("POST", "/api/v1/schedules", fields)
    assert trigger(over_http.data)["at"] == "2026-12-25T08:00:00Z"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("Asia/Tokyo", "Asia/Dubai", "Asia/Kolkata", BERLIN), "Asia/Tokyo"),
        (("", "Asia/Dubai", "Asia/Kolkata", BERLIN), "Asia/Dubai"),
        (("", "", "Asia/Kolkata", BERLIN), "Asia/Kolkata"),
        (("", "", "", BERLIN), BERLIN),
        (("", "", "", ""), "UTC"),
    ],
)
def test_the_nearest_setting_is_the_default_zone(
    harness: OperationsHarness, settings: tuple[str, str, str, str], expected: str
) -> None:
    key, namespace, setting, machine = settings
    harness.ask("namespace set", name="default", zone=namespace)
    context = replace(
        harness.context,
        caller=Caller(actor="ada", scopes=ALL_SCOPES, local=True, zone=key),
        settings=Settings(zone=setting),
        system_zone=machine,
    )
    answer = operations["schedule create"](context, {"name": "nine", **NINE})
    assert trigger(answer)["zone"] == expected
    paused = operations["schedule pause"](context, {"schedule": "nine", "until": "2026-06-01 12:00"})
    noon = datetime(2026, 6, 1, 12, tzinfo=ZoneInfo(expected)).astimezone(UTC)
    assert paused["progress"]["paused_until"] == f"{noon:%Y-%m-%dT%H:%M:%SZ}"


def test_a_key_carries_its_zone(harness: OperationsHarness) -> None:
    made = harness.ask("key create", key="berlin", role="editor", zone=BERLIN)
    assert made["key"]["zone"] == BERLIN
    with client_for(harness, caller=None) as client:
        answer = client.request("POST", "/api/v1/schedules", {"name": "nine", **NINE}, bearer(made["token"]))
    assert trigger(answer.data)["zone"] == BERLIN
    with pytest.raises(InvalidZone):
        harness.ask("key create", key="nowhere", role="viewer", zone="Europe/Berlino")


def test_a_server_uses_the_zone_that_a_remote_command_sends(client: HttpTestClient) -> None:
    def put(name: str, **headers: str) -> str:
        answer = client.request("PUT", f"/api/v1/schedules/{name}", NINE, headers)
        return str(trigger(answer.data["detail"])["zone"])

    assert put("plain") == "UTC"
    assert put("machine", **{"timewright-system-zone": BERLIN}) == BERLIN
    assert put("file", **{"timewright-system-zone": BERLIN, "timewright-file-zone": "UTC"}) == "UTC"
    refused = client.request("PUT", "/api/v1/schedules/bad", NINE, {"timewright-system-zone": "Mars/Olympus"})
    assert (refused.status, refused.data["field"]) == (422, "timewright-system-zone")


def test_a_file_never_uses_the_zone_of_the_machine(harness: OperationsHarness, tmp_path: Path) -> None:
    file = tmp_path / "nine.yaml"
    file.write_text("cron: '0 9 * * *'\nnote: x\n")
    assert trigger(created(harness, "--file", str(file), zone=BERLIN))["zone"] == "UTC"
    file.write_text("cron: '0 9 * * *'\nnote: x\nzone: Asia/Tokyo\n")
    put = invoke(harness, "schedule", "put", "nine", "--file", str(file), "--json", TZ=BERLIN).data
    assert trigger(put["detail"])["zone"] == "Asia/Tokyo"


def test_an_unchanged_definition_keeps_its_stored_zone(harness: OperationsHarness) -> None:
    berlin = replace(harness.context, system_zone=BERLIN)
    tokyo = replace(harness.context, system_zone="Asia/Tokyo")
    put = operations["schedule put"]
    put(berlin, {"name": "nine", **NINE})
    assert put(tokyo, {"name": "nine", **NINE})["change"] == "unchanged"
    other_policy = put(tokyo, {"name": "nine", **NINE, "overlap": "queue"})
    assert trigger(other_policy["detail"])["zone"] == BERLIN
    other_times = put(tokyo, {"name": "nine", **NINE, "cron": "0 8 * * *"})
    assert trigger(other_times["detail"])["zone"] == "Asia/Tokyo"


def test_new_times_of_a_schedule_keep_its_zone(harness: OperationsHarness) -> None:
    created(harness, "--cron", "0 9 * * *", zone=BERLIN)
    changed = invoke(harness, "schedule", "update", "nine", "--cron", "0 8 * * *", "--json", TZ="Asia/Tokyo")
    assert trigger(changed.data)["zone"] == BERLIN
    phrase = invoke(
        harness, "schedule", "update", "nine", "--every", "day at 9:15 and 17:30", "--json", TZ="Asia/Tokyo"
    )
    assert {part["zone"] for part in trigger(phrase.data)["triggers"]} == {BERLIN}


def test_every_list_shows_the_zone_and_the_next_time_in_it(
    harness: OperationsHarness, client: HttpTestClient
) -> None:
    created(harness, "--cron", "0 9 * * *", zone=BERLIN)
    rows = {one["name"]: one for one in client.request("GET", "/api/v1/schedules").data["schedules"]}
    row = rows["nine"]
    assert (row["zone"], row["next_local"]) == (BERLIN, "2026-03-11T09:00:00+01:00")
    shown = invoke(harness, "schedule", "list", TZ="Asia/Tokyo", width=200).out
    assert "2026-03-11 17:00 (in 20 h) = 09:00 Europe/Berlin" in shown
    page = invoke(harness, "schedule", "get", "nine", TZ="Asia/Tokyo", width=200).out
    assert "Wed 2026-03-11 17:00 +09:00 (in 20 h) 09:00 Europe/Berlin" in " ".join(page.split())
    assert {one["next_local"] for one in rows.values() if not one["zone"]} == {""}


def test_a_narrow_list_shows_the_last_run_beside_a_zone(harness: OperationsHarness) -> None:
    created(harness, "--cron", "0 9 * * *", zone=BERLIN)
    harness.bench.advance(hours=24)
    head, *lines = invoke(
        harness, "schedule", "list", "--name-starts", "nine", TZ="Asia/Tokyo", width=80
    ).lines
    assert "LAST RUN" in head
    assert "09:00 Europe/Berlin (in 20 h)" in lines[0]
    assert "✔ 17:00:00" in lines[0]


def test_a_preview_uses_the_default_zone(harness: OperationsHarness) -> None:
    answer = invoke(harness, "schedule", "next", "--cron", "0 9 * * *", "--json", TZ=BERLIN).data
    assert (answer["zone"], answer["next"][0]["local"]) == (BERLIN, "2026-03-11T09:00:00+01:00")


def zones_of(app: Scheduler) -> dict[str, str]:
    app._save_declared()
    return {row.name: row.zone for row in app.schedules.list().schedules}


def work() -> None:
    """Do nothing."""


def test_an_embedded_scheduler_uses_the_zone_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", BERLIN)
    app = Scheduler(":memory:")
    triggers: dict[str, Any] = {
        "text": "0 9 * * *",
        "object": Cron("0 9 * * *"),
        "builder": cron("0 9 * * *"),
        "phrase": every("day at 9"),
        "list": [cron("0 9 * * *"), "30 9 * * *"],
        "rule": "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9",
    }
    for name, when in triggers.items():
        app.schedule(when, name=name)(work)
    app.schedule(cron="0 9 * * *", name="keyword")(work)
    assert set(zones_of(app).values()) == {BERLIN}
    app.schedule(Cron("0 9 * * *", "UTC"), name="named")(work)
    assert zones_of(app)["named"] == "UTC"


def test_a_zone_may_be_a_zoneinfo_object() -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    assert Cron("0 9 * * *", tokyo).zone == cron("0 9 * * *", tokyo).zone == "Asia/Tokyo"  # type: ignore[arg-type]
    assert Cron("0 9 * * *", UTC).zone == "UTC"  # type: ignore[arg-type]
    app = Scheduler(":memory:", settings=Settings(zone=tokyo))  # type: ignore[arg-type]
    app.schedule("0 9 * * *", name="keyword", zone=ZoneInfo(BERLIN))(work)
    app.schedule("every day at 9", name="phrase", zone=ZoneInfo(BERLIN))(work)
    app.schedule("0 9 * * *", name="default")(work)
    assert zones_of(app) == {"keyword": BERLIN, "phrase": BERLIN, "default": "Asia/Tokyo"}
    made = app.schedules.create(name="made", cron="0 9 * * *", zone=ZoneInfo(BERLIN), note="x")
    assert made.next[0].zone == BERLIN
    once = app.schedules.create(name="once", at="2099-12-25T09:00", zone=ZoneInfo(BERLIN), note="x")
    assert once.progress.next_at == datetime(2099, 12, 25, 8, tzinfo=UTC)
    with pytest.raises(InvalidZone):
        Cron("0 9 * * *", timezone(timedelta(hours=1)))  # type: ignore[arg-type]


def test_the_zone_of_the_machine_is_an_iana_name_or_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    for text, name in {
        ":Europe/Berlin": BERLIN,
        "/usr/share/zoneinfo/Europe/Berlin": BERLIN,
        "Etc/UTC": "UTC",
        "CET": "",
        "CET-1CEST": "",
    }.items():
        monkeypatch.setenv("TZ", text)
        assert system_zone(localtime=link) == name
    monkeypatch.delenv("TZ")
    assert system_zone(localtime=link) == "Asia/Tokyo"
    copied, names = tmp_path / "copied", tmp_path / "timezone"
    copied.write_bytes(b"TZif")
    names.write_text("America/Lima\n")
    assert system_zone(localtime=copied, name_file=names) == "America/Lima"
    assert system_zone(localtime=tmp_path / "missing", name_file=names) == ""


def test_the_default_zone_is_an_allowed_zone() -> None:
    with pytest.raises(InvalidInput) as refusal:
        Settings(zone=BERLIN, allowed_zones=("UTC",))
    assert refusal.value.field == "zone"
    assert Settings(zone=BERLIN, allowed_zones=("UTC", BERLIN)).zone == BERLIN
