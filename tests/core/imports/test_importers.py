"""Importers on hand-written samples: what each field becomes, traps included."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.core.imports.import_samples import SAMPLES, SOURCES
from timewright.core.definitions import Definition, read_definitions, write_definitions
from timewright.core.imports import IMPORTERS, Fidelity, Imported, ImportOptions, import_files
from timewright.core.imports.cron_text import NotTranslatable, calendar_to_cron, span_seconds
from timewright.core.input.decode import decode_schedule
from timewright.core.recurrence.triggers import Cron
from timewright.errors import TimewrightError

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)


def imported(which: str) -> Imported:
    """The import of a sample."""
    source, names = SOURCES[which]
    texts = {name: (SAMPLES / name).read_text() for name in names}
    options = ImportOptions(zone="Europe/Rome", repository="acme/shop")
    return import_files(source, texts, options, now=NOW)


def schedule(which: str, name: str) -> dict[str, Any]:
    """One schedule of a sample."""
    return next(one for one in imported(which).schedules if one["name"] == name)


def status(which: str, name: str, field: str) -> tuple[Fidelity, str]:
    """What became of a field, and why."""
    found = next(one for one in imported(which).fields if one.entry == name and one.field == field)
    return found.status, found.note


@pytest.mark.parametrize("which", SOURCES)
def test_every_imported_schedule_is_a_definition_that_plan_reads(which: str) -> None:
    schedules = imported(which).schedules
    assert schedules
    definitions = [
        Definition(kind="schedule", name=one["name"], fields={k: v for k, v in one.items() if k != "name"})
        for one in schedules
    ]
    file = read_definitions(write_definitions(definitions), name="fleet.yaml")
    read_back = {one.name: decode_schedule(one.draft, id="sch_a", now=NOW) for one in file.definitions}
    assert read_back == {one["name"]: decode_schedule(one, id="sch_a", now=NOW) for one in schedules}


@pytest.mark.parametrize("which", SOURCES)
def test_an_invented_field_is_reported_as_lost(which: str) -> None:
    lost = [one for one in imported(which).fields if one.status is Fidelity.LOST]
    invented = [one for one in lost if "frobnicate" in one.field.lower() or one.value == "@fortnightly"]
    assert invented
    assert all(one.note for one in lost)


@pytest.mark.parametrize("source", IMPORTERS)
@pytest.mark.parametrize("garbage", ["\x00\x01", "hello world", "{]", "- a\n- b: [", "%%% not a file %%%"])
def test_garbage_is_refused_with_one_error_that_names_the_place(source: str, garbage: str) -> None:
    with pytest.raises(TimewrightError) as refused:
        import_files(source, {"x": garbage}, ImportOptions(repository="acme/shop"), now=NOW)
    assert refused.value.rule
    assert refused.value.fix
    assert "x" in str(refused.value.field) or refused.value.field == "file"


def test_a_cron_command_keeps_its_pipes_and_its_shell() -> None:
    *shell, script = schedule("user crontab", "backup")["target"]["command"]
    # A target may not set PATH; `env` may.
    assert shell == ["/usr/bin/env", "PATH=/usr/local/bin:/usr/bin:/bin", "/bin/sh", "-c"]
    assert script == "/usr/local/bin/backup.sh --all 2>&1 | logger -t backup"
    assert schedule("user crontab", "weekly")["target"]["command"][-3] == "/bin/bash"
    assert schedule("user crontab", "weekly")["target"]["cwd"] == "/srv/jobs"


def test_text_after_a_percent_sign_is_standard_input() -> None:
    script = schedule("user crontab", "mail")["target"]["command"][-1]
    assert script == (
        "{ mail -s \"It is 10pm\" joe\n} <<'END_OF_INPUT'\n"
        "Joe,\n\nWhere are your kids? 100% sure\n\nEND_OF_INPUT"
    )
    assert (
        schedule("user crontab", "archive")["target"]["command"][-1] == "/usr/bin/archive --day $(date +%F)"
    )


def test_the_zone_of_a_crontab_is_cron_tz_or_that_of_the_machine() -> None:
    assert schedule("user crontab", "backup")["trigger"]["zone"] == "Europe/Berlin"
    assert schedule("system crontab", "logrotate")["trigger"]["zone"] == "Europe/Rome"


def test_day_fields_of_a_crontab_are_joined_as_cron_joins_them() -> None:
    assert schedule("user crontab", "report")["trigger"]["expression"] == "30 6 */2 * +1"
    assert schedule("user crontab", "either")["trigger"]["expression"] == "0 4 1,15 * 5"


def test_cron_catches_up_nothing_and_starts_beside_a_running_job() -> None:
    found = schedule("user crontab", "poll")
    assert (found["catch_up"], found["overlap"]) == ("none", "allow")
    assert status("user crontab", "user.crontab", "MAILTO")[0] is Fidelity.LOST
    assert status("system crontab", "run-parts", "user")[0] is Fidelity.LOST


def test_a_timer_takes_its_command_from_the_service_and_clears_repeated_keys() -> None:
    found = schedule("systemd", "backup")
    assert [one["expression"] for one in found["trigger"]] == ["0 3 * * MON-FRI", "30 4 1-7 * +SAT"]
    assert [one["zone"] for one in found["trigger"]] == ["Europe/Rome", "Europe/Berlin"]
    assert found["target"]["env"] == {"LEVEL": "9", "TARGET": "/mnt/b"}
    assert (found["catch_up"], found["catch_up_window"], found["jitter"]) == ("last", None, "5m")
    assert found["lease"] == {"time_limit": "1h30m"}
    assert schedule("systemd", "poll")["target"]["command"] == ["systemctl", "start", "poller.service"]


@pytest.mark.parametrize(
    ("event", "cron", "zone"),
    [  # each compared with `systemd-analyze calendar --iterations=8`
        ("Mon..Fri 09:00", "0 9 * * MON-FRI", None),
        ("*:0/15", "*/15 * * * *", None),
        ("quarterly", "0 0 1 1,4,7,10 *", None),
        ("*-*~01 00:00", "0 0 L * *", None),
        ("Mon *-*~07/1 08:00", "0 8 L-6,L-5,L-4,L-3,L-2,L-1,L * +MON", None),
        ("Fri 2027-*-13 12:00", "0 0 12 13 * +FRI 2027", None),
        ("*-*-* 06,18:30 Europe/Berlin", "30 6,18 * * *", "Europe/Berlin"),
        ("Mon *-*-01..07 10:00:30", "30 0 10 1-7 * +MON", None),
        ("Sat..Sun 20:00", "0 20 * * SAT,SUN", None),
        ("1..12/2-1 00:00", "0 0 1 1-12/2 *", None),
        ("05-03", "0 0 3 5 *", None),
        ("*:*:0/10", "*/10 * * * * *", None),
    ],
)
def test_calendar_events_of_systemd_become_cron(event: str, cron: str, zone: str | None) -> None:
    assert calendar_to_cron(event) == (cron, zone)
    assert Cron(cron).next_after(NOW) is not None


@pytest.mark.parametrize("event", ["12:00:00.5", "Mon Tue", "1-2-3-4", "tomorrow", "", "12:00 Mars/Phobos"])
def test_a_calendar_event_that_cron_cannot_say_is_refused(event: str) -> None:
    with pytest.raises(NotTranslatable):
        calendar_to_cron(event)


def test_time_spans_of_systemd() -> None:
    assert [span_seconds(text) for text in ("90", "1h 30min", "2days", "500ms", "infinity")] == [
        90,
        5400,
        172_800,
        0.5,
        None,
    ]


def test_a_cronjob_keeps_its_job_and_waits_for_it_so_that_forbid_holds() -> None:
    found = schedule("kubernetes", "report")
    assert found["target"]["options"]["spec"]["backoffLimit"] == 2
    assert found["target"]["options"]["namespace"] == "shop"
    assert found["catch_up_window"] == "10m"
    assert (found["overlap"], found["target"]["wait"]) == ("skip", True)
    assert status("kubernetes", "report", "spec.concurrencyPolicy")[0] is Fidelity.KEPT
    assert status("kubernetes", "poll", "spec.suspend")[0] is Fidelity.LOST
    assert schedule("kubernetes", "poll")["trigger"]["expression"] == "5-59/10 * * * *"
    assert schedule("kubernetes", "every-two-hours")["trigger"] == {"kind": "every", "interval": "2h"}


def test_all_fields_of_a_celery_crontab_must_match() -> None:
    found = schedule("celery file", "monday-and-first")
    assert found["trigger"]["expression"] == "30 7 1-7 * +1"
    assert found["trigger"]["zone"] == "Europe/London"
    assert found["target"]["options"] == {"queue": "reports", "expires": 15.0}


def test_a_celery_file_is_not_executed_and_its_password_is_not_copied() -> None:
    found = imported("celery file")
    assert "s3cret" not in repr(found)
    names = {one["name"] for one in found.schedules}
    assert "computed" not in names
    assert "only known when the program runs" in status("celery file", "computed", "schedule")[1]
    assert "both" not in names


def test_a_django_dump_joins_tasks_with_their_schedules() -> None:
    assert schedule("django dump", "import-rates")["trigger"]["zone"] == "Europe/Paris"
    assert schedule("django dump", "poll")["trigger"]["interval"] == "10m"
    assert schedule("django dump", "new-year")["trigger"]["kind"] == "once"
    assert status("django dump", "orphan", "crontab")[0] is Fidelity.LOST
    assert status("django dump", "poll", "enabled")[0] is Fidelity.LOST


def test_weekday_0_of_apscheduler_is_monday() -> None:
    assert schedule("apscheduler 3", "zero-is-monday")["trigger"]["expression"] == "0 4 * * MON,SUN"
    assert schedule("apscheduler 3", "first-monday")["trigger"]["expression"] == "0 6 * * MON#1"
    assert status("apscheduler 3", "weeks", "trigger")[0] is Fidelity.LOST
    assert status("apscheduler 3", "two", "args")[0] is Fidelity.LOST
    assert schedule("apscheduler 3", "poll")["jitter"] == "30s"
    assert schedule("apscheduler 4", "weekdays")["jitter"] == "30s"


def test_a_workflow_stays_on_github_and_is_dispatched() -> None:
    found = schedule("github actions", "nightly-build")
    assert found["trigger"] == {"kind": "cron", "expression": "17 3 * * *", "zone": "UTC"}
    assert found["target"]["url"].endswith("/acme/shop/actions/workflows/nightly.yml/dispatches")
    assert status("github actions", "nightly-build", "on.workflow_dispatch")[0] is Fidelity.LOST
    with pytest.raises(TimewrightError, match="repository"):
        import_files("github-actions", {"x": "on: {}"}, ImportOptions(), now=NOW)


def test_an_entry_that_timewright_refuses_is_lost_and_the_others_are_imported() -> None:
    jobs = '{"format": "timewright-apscheduler", "version": 1, "jobs": [%s]}'
    trigger = '{"type": "DateTrigger", "run_date": "2020-01-01T00:00:00Z"}'
    past = f'{{"id": "past", "function": "a:b", "trigger": {trigger}}}'
    good = past.replace("2020", "2090").replace("past", "good")
    found = import_files("apscheduler", {"x": jobs % f"{past}, {good}"}, ImportOptions(), now=NOW)
    assert [one["name"] for one in found.schedules] == ["good"]
    assert any(one.entry == "past" and one.status is Fidelity.LOST for one in found.fields)


def reported(source: str, text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The imported names, and what was lost: its field and why."""
    found = import_files(source, {"x": text}, ImportOptions(zone="Europe/Rome"), now=NOW)
    lost = [(one.field, one.note) for one in found.fields if one.status is Fidelity.LOST]
    return [str(one["name"]) for one in found.schedules], lost


def test_a_crontab_line_that_never_fires_is_lost_and_the_others_are_imported() -> None:
    names, lost = reported("crontab", "0 0 31 2 * /bin/never\n0 0 * * 7 /bin/sunday\n")
    assert names == ["sunday"]
    assert [field for field, note in lost if "never fires" in note] == ["time"]


CRONJOBS = """
kind: CronJob
metadata: {name: report}
spec: {schedule: "TZ=Europe/Berlin 0 9 * * *", timeZone: Etc/UTC, jobTemplate: {spec: {template: {}}}}
---
kind: CronJob
metadata: {name: never}
spec: {schedule: "0 0 30 2 *", jobTemplate: {spec: {template: {}}}}
"""


def test_a_second_zone_of_a_cronjob_and_one_that_never_fires_are_reported() -> None:
    names, lost = reported("kubernetes", CRONJOBS)
    assert names == ["report"]
    assert [note for field, note in lost if field == "spec.schedule"] == [
        "it names another zone than spec.timeZone, Etc/UTC",
        "cron '0 0 30 2 *' never fires; the entry is not imported",
    ]
