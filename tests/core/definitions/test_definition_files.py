"""Definition files: what is read from them, what is refused, and that written files are read back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.core.definitions import Definition, read_definitions, write_definitions
from timewright.core.input.decode import decode_schedule
from timewright.errors import TimewrightError

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)

SECTIONS = """
owner: payments
zone: Europe/Berlin
schedules:
  - name: nightly
    cron: "30 3 * * *"
    note: hello
queues:
  - {name: mail, max_running: 5}
---
- {kind: limit, name: crm, max_running: 3}
- {name: other, every: 5m}
---
kind: calendar
name: no
"""


def test_a_file_has_sections_single_definitions_and_lists() -> None:
    file = read_definitions(SECTIONS, name="ops.yaml")
    assert [(one.kind, one.name) for one in file.definitions] == [
        ("queue", "mail"),
        ("schedule", "nightly"),
        ("limit", "crm"),
        ("schedule", "other"),
        ("calendar", "no"),
    ]
    assert file.owner == "payments"
    assert {one.zone for one in file.definitions} == {"Europe/Berlin"}


def test_a_definition_says_where_it_stands() -> None:
    places = {one.name: one.where for one in read_definitions(SECTIONS, name="ops.yaml").definitions}
    assert places["nightly"] == "ops.yaml line 5, schedules[0]"
    assert places["no"] == "ops.yaml line 14"


@pytest.mark.parametrize("name", ["ops/payments.yaml", "payments.yml", "C:\\ops\\payments.json", "payments"])
def test_a_file_without_an_owner_belongs_to_its_file_name(name: str) -> None:
    assert read_definitions("schedules: []\nowner: payments", name="x").owner == "payments"
    assert read_definitions("- {name: a, every: 5m}", name=name).owner == "payments"


@pytest.mark.parametrize(
    "text", ["schedules: []", "# all are deleted\nschedules:\n", "zone: UTC\nqueues: []"]
)
def test_a_file_whose_last_definition_was_deleted_is_read(text: str) -> None:
    file = read_definitions(text, name="ops/payments.yaml")
    assert (file.owner, file.definitions) == ("payments", ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "f.yaml line 2: cannot be read"),
        ("schedules: 5", "f.yaml line 1: schedules 5 is not a list"),
        ("schedules:\n- 5", "f.yaml line 2, schedules[0]: schedules[0] 5 is not a definition"),
        ("schedule: []", "f.yaml line 1: unknown field 'schedule'"),
        ("", "f.yaml '' has no definitions"),
        ("just text", "f.yaml line 1: document 'just text' is not a file"),
        ("schedules: [{cron: x}]", "f.yaml line 1, schedules[0]: name is missing"),
        ("- {kind: dog, name: a}", "f.yaml line 1, [0]: kind 'dog' is not a kind"),
        ("schedules: [{name: a},\n {name: a}]", "f.yaml line 2, schedules[1]: name 'a' is given twice"),
        ("schedules: [{name: a, note: x, note: y}]", "f.yaml line 1: cannot be read: 'note' is given twice"),
        ("schedules: []\nschedules: []", "f.yaml line 2: schedules 'schedules' is given twice"),
        ("zone: Mars/X\nschedules: []", "f.yaml line 1: zone 'Mars/X' is not in the installed"),
        ("owner: a\n---\nowner: b", "f.yaml line 3: owner 'b' is not a"),
        ("- !!python/object/apply:os.system [x]", "f.yaml line 1: uses an anchor or a tag"),
        ("a: &x 1\nb: *x", "f.yaml line 1: uses an anchor or a tag"),
        ("\0", "f.yaml line 1: cannot be read"),
    ],
)
def test_garbage_gets_one_error_with_file_and_line(text: str, message: str) -> None:
    with pytest.raises(TimewrightError) as caught:
        read_definitions(text, name="f.yaml")
    assert caught.value.message.startswith(message)
    assert caught.value.rule
    assert caught.value.fix


def test_standard_input_needs_an_owner() -> None:
    with pytest.raises(TimewrightError, match="owner is missing"):
        read_definitions("- {name: a, every: 5m}", name="-")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["note", "payload", "tags", "cron"]), json_values))
def test_a_written_file_is_read_back_as_it_was(fields: dict[str, Any]) -> None:
    written = write_definitions([Definition(kind="schedule", name="1e5", fields=fields)], owner="12:30")
    file = read_definitions(written, name="f.yaml")
    assert file.owner == "12:30"
    assert [(one.name, one.fields) for one in file.definitions] == [("1e5", fields)]


@pytest.mark.parametrize(
    "text",
    ["no", "yes", "12:30", "1e5", "0x1f", "0777", "~", "null", "2026-01-01", "a: b", "- a", "# c", "", " x"],
)
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    written = write_definitions([Definition(kind="schedule", name="a", fields={"note": text})])
    assert read_definitions(written, name="f.yaml").definitions[0].fields == {"note": text}


@pytest.mark.parametrize(
    ("fields", "zone"),
    [
        ({"cron": "0 9 * * *"}, "Europe/Berlin"),
        ({"cron": "0 9 * * *", "zone": "UTC"}, "UTC"),
        ({"trigger": "weekdays at 9"}, "Europe/Berlin"),
        ({"trigger": [{"cron": "0 9 * * *"}, {"cron": "0 8 * * *"}]}, "Europe/Berlin"),
    ],
)
def test_a_schedule_without_a_zone_takes_the_zone_of_the_file(fields: dict[str, Any], zone: str) -> None:
    draft = {"name": "a", "note": "x", **fields}
    trigger = decode_schedule(draft, id="sch_1", now=NOW, zone="Europe/Berlin").trigger
    parts: tuple[Any, ...] = getattr(trigger, "triggers", (trigger,))
    assert {part.zone for part in parts} == {zone}


def test_an_interval_has_no_zone() -> None:
    decode_schedule({"name": "a", "note": "x", "every": "5m"}, id="sch_1", now=NOW, zone="Europe/Berlin")
