"""Importers on files that mislead: nothing disappears without a line in the report."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from timewright.core.imports import Fidelity, Imported, ImportOptions, import_files
from timewright.errors import TimewrightError

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)


def read(source: str, *, zone: str = "Europe/Rome", **texts: str) -> Imported:
    """Import files by their names, in which `__` stands for a dot and `___` for a slash."""
    files = {name.replace("___", "/").replace("__", "."): text for name, text in texts.items()}
    return import_files(source, files, ImportOptions(zone=zone), now=NOW)


def names(found: Imported) -> list[str]:
    return [one["name"] for one in found.schedules]


def lost(found: Imported) -> dict[tuple[str, str], str]:
    """What was lost, by schedule and field, with the reason."""
    return {(one.entry, one.field): one.note for one in found.fields if one.status is Fidelity.LOST}


def test_no_field_of_an_entry_that_is_not_imported_is_reported_as_kept() -> None:
    found = read("crontab", tab="0 0 31 2 * echo never\n0 0 * * * echo daily\n")
    assert names(found) == ["echo"]
    assert set(lost(found)) == {("echo-2", "time"), ("echo-2", "command")}


def test_a_refused_entry_loses_all_its_fields_and_says_why_first() -> None:
    found = read("celery", beat__py="beat_schedule = {'half': {'task': 'a', 'schedule': 0.5}}")
    assert names(found) == []
    rows = [one for one in found.fields if one.entry == "half"]
    assert {one.status for one in rows} == {Fidelity.LOST}
    assert "below the minimum" in rows[0].note


@pytest.mark.parametrize(
    ("source", "text"), [("crontab", ""), ("crontab", "MAILTO=a\n"), ("celery", "[]"), ("kubernetes", "")]
)
def test_a_file_without_schedules_is_an_error(source: str, text: str) -> None:
    with pytest.raises(TimewrightError, match="has no"):
        read(source, x=text)


def test_words_of_other_crons_and_users_with_a_group() -> None:
    found = read("system-crontab", tab="@every_minute root:wheel/daemon /opt/em.sh\n")
    assert found.schedules[0]["trigger"]["expression"] == "* * * * *"
    assert lost(found)["em", "user"]


def test_a_disabled_line_or_a_heading_is_not_the_description_of_the_next() -> None:
    text = "# m h  dom mon dow   command\n#*/5 * * * * /opt/old.sh\n0 3 * * * flock -n /run/l /opt/new.sh\n"
    found = read("crontab", tab=text)
    assert names(found) == ["new"]
    assert "description" not in found.schedules[0]


def test_a_system_crontab_read_as_that_of_a_user_says_so() -> None:
    found = read("crontab", tab="17 * * * * root cd / && run-parts /etc/cron.hourly\n")
    assert any("system-crontab" in one.note for one in found.fields)


BEAT = """
app.conf.beat_schedule = {**OTHER, 'one': {'task': 'a', 'schedule': crontab(hour=3, minute=0)}}
app.conf.beat_schedule['two'] = {'task': 'a', 'schedule': 5.0}
app.conf.beat_schedule.update({'three': {'task': 'a', 'schedule': 5.0}})
app.conf.update({'beat_schedule': dict(four={'task': 'a', 'schedule': 5.0})})
def setup(sender, **kw):
    sender.add_periodic_task(10.0, test.s('hello'), name='five')
"""


def test_every_way_to_add_to_beat_schedule_is_imported_or_lost() -> None:
    found = read("celery", beat__py=BEAT)
    assert names(found) == ["one", "two", "three", "four"]
    assert {entry for entry, _ in lost(found)} >= {"other", "five"}


def test_a_celery_crontab_without_a_zone_is_in_utc_not_in_that_of_the_machine() -> None:
    assert read("celery", beat__py=BEAT).schedules[0]["trigger"]["zone"] == "UTC"
    named = BEAT + "app.conf.timezone = 'Europe/Rome'\n"
    assert read("celery", beat__py=named).schedules[0]["trigger"]["zone"] == "Europe/Rome"
    given = ImportOptions(zone="Asia/Tokyo", is_zone_given=True)
    found = import_files("celery", {"beat.py": BEAT}, given, now=NOW)
    assert found.schedules[0]["trigger"]["zone"] == "Asia/Tokyo"


TIMER = "[Timer]\nOnCalendar=daily\n"


def test_a_drop_in_changes_its_timer() -> None:
    drop_in = "[Timer]\nOnCalendar=\nOnCalendar=*-*-* 04:00\nRandomizedDelaySec=5min\n"
    found = read("systemd", etc___x__timer__d___10__conf=drop_in, etc___x__timer=TIMER)
    assert names(found) == ["x"]
    assert found.schedules[0]["trigger"]["expression"] == "0 4 * * *"
    assert found.schedules[0]["jitter"] == "5m"


@pytest.mark.parametrize("line", ["ExecStart=/bin/sh -c 'open", 'ExecStart=/bin/true\nEnvironment="A=1'])
def test_an_open_quotation_of_a_service_is_one_clear_error(line: str) -> None:
    with pytest.raises(TimewrightError, match="cannot be split into words") as refused:
        read("systemd", x__timer=TIMER, x__service=f"[Service]\n{line}\n")
    assert str(refused.value.field).startswith("x.service ")


def test_only_the_command_with_the_prefix_may_fail() -> None:
    """`a && b || true && c` would go on to c although a failed."""
    service = "[Service]\nExecStart=/bin/a\nExecStart=-/bin/b\nExecStart=/bin/c\n"
    found = read("systemd", x__timer=TIMER, x__service=service)
    script = "/bin/a && { /bin/b || true; } && /bin/c"
    assert found.schedules[0]["target"]["command"] == ["/bin/sh", "-c", script]


def test_all_sections_of_a_service_are_reported_and_the_shortest_limit_counts() -> None:
    service = (
        "[Unit]\nDescription=The job\nConditionPathExists=/x\n[Service]\nExecStart=/bin/a \\\n  --b\n"
        "RuntimeMaxSec=2h\nTimeoutSec=3h\nTimeoutStartSec=infinity\n[Install]\nWantedBy=a\nFrobnicate=1\n"
    )
    found = read("systemd", x__timer=TIMER, x__service=service)
    assert found.schedules[0]["target"]["command"] == ["/bin/a", "--b"]
    assert found.schedules[0]["description"] == "The job"
    assert found.schedules[0]["lease"] == {"time_limit": "2h"}
    assert set(lost(found)) == {
        ("x", "x.service Unit.ConditionPathExists"),
        ("x", "x.service Install.Frobnicate"),
    }
    assert [one.note for one in found.fields if one.field == "Service.TimeoutStartSec"] == ["no time limit"]


def test_a_template_timer_is_not_imported() -> None:
    assert "template" in lost(read("systemd", **{"x@__timer": TIMER}))["x", "(name)"]


CRONJOB = """
apiVersion: %s
kind: CronJob
metadata: {name: a}
spec: {schedule: "0 3 * * *", startingDeadlineSeconds: %s, jobTemplate: {spec: {template: {}}}}
status: {lastScheduleTime: "2026-01-01T00:00:00Z"}
"""


def test_a_cronjob_reports_its_status_and_a_deadline_that_is_none() -> None:
    found = read("kubernetes", x=CRONJOB % ("batch/v1", "0"))
    assert found.schedules[0]["catch_up"] == "none"
    assert set(lost(found)) == {("a", "status")}
    assert ("a", "spec.startingDeadlineSeconds") in lost(read("kubernetes", x=CRONJOB % ("batch/v1", '"9"')))


def test_a_cronjob_of_another_api_is_not_taken_for_one_of_kubernetes() -> None:
    both = CRONJOB % ("example.com/v1", "9") + "---" + CRONJOB % ("batch/v1", "9")
    found = read("kubernetes", x=both)
    assert names(found) == ["a"]
    assert "batch/v1" in lost(found)["a-2", "apiVersion"]


def test_several_instances_of_an_apscheduler_job_become_max_running() -> None:
    job = (
        '{"id": "a", "function": "m:f", "max_instances": 3,'
        ' "trigger": {"type": "IntervalTrigger", "seconds": 60}}'
    )
    text = f'{{"format": "timewright-apscheduler", "version": 1, "jobs": [{job}]}}'
    assert read("apscheduler", x=text).schedules[0]["max_running"] == 3
