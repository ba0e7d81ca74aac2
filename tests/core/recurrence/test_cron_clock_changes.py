"""Cron around every kind of clock change, compared with a scan of every minute.

By default: one change of every shape, and one of every zone between 2000 and 2040. With
TIMEWRIGHT_FULL=1: every change of every zone in those years.
"""

from __future__ import annotations

import os
import random
import struct
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib import import_module, resources
from pathlib import Path
from typing import Literal, get_args
from zoneinfo import TZPATH, ZoneInfo, available_timezones

import pytest

from tests.core.recurrence.cron_scan import (
    SECOND,
    Change,
    Reading,
    changes,
    parse_cron,
    readings,
    scan_backwards,
)
from timewright.core.recurrence.cron import Cron
from timewright.core.recurrence.offset_periods import OffsetPeriods, offset_periods
from timewright.core.zones import check_zone
from timewright.errors import InvalidZone

stretches_module = import_module("timewright.core.recurrence.offset_periods")

Policy = Literal["vixie", "match", "skip_once"]
Clock = dict[tuple[int, int], list[tuple[Reading, datetime]]]

FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))
AROUND = timedelta(hours=36)
NEAR = timedelta(hours=2)
LONG = timedelta(hours=3)
SEEN_IN: dict[Change, str] = {}


@cache
def zone_names() -> tuple[str, ...]:
    found: list[str] = []
    for name in sorted(available_timezones()):
        try:
            found.append(check_zone(name))
        except InvalidZone:
            continue
    return tuple(found)


def tzif(name: str) -> bytes:
    """The compiled data of a zone, from the place where `zoneinfo` finds it."""
    for folder in TZPATH:
        path = Path(folder) / name
        if path.is_file():
            return path.read_bytes()
    return resources.files("tzdata.zoneinfo").joinpath(*name.split("/")).read_bytes()


@cache
def zones() -> tuple[str, ...]:
    """One name per zone: names with the same data are one zone."""
    return tuple({tzif(name): name for name in reversed(zone_names())}.values())


def region_of(zone: str) -> str:
    return zone.partition("/")[0] if "/" in zone else "-"


def regions() -> list[str]:
    return sorted(set(map(region_of, zones())))


def of_region(region: str) -> list[str]:
    return [zone for zone in zones() if region_of(zone) == region]


def sampled(zone: str) -> tuple[Change, ...]:
    found = changes(zone)
    return found if FULL or len(found) <= 1 else (random.Random(zone).choice(found),)


def shape(change: Change) -> tuple[object, ...]:
    """The length, the local time of day and the side of Greenwich."""
    local = (change.at + change.before).replace(tzinfo=None)
    return change.after - change.before, local.time(), change.before < timedelta(0)


def expressions(change: Change) -> dict[str, timedelta]:
    """Expressions to test around a change, and how far around it."""
    low, high = sorted((change.before, change.after))
    first, end = change.at + low, change.at + high
    middle = first + (end - first) // 2
    time = f"{middle.minute} {middle.hour}"
    return {
        f"{time} * * *": AROUND,
        f"{time} {middle.day} {middle.month} *": AROUND,
        f"{first.minute} {first.hour} * * *": AROUND,
        f"{end.minute} {end.hour} * * *": AROUND,
        f"{middle.minute} {first.hour},{end.hour} * * *": AROUND,
        f"{middle.minute} * * * *": AROUND,
        "*/30 * * * *": AROUND,
        f"*/20 {middle.hour} * * *": AROUND,
        "* * * * *": NEAR,
        f"15,45 {time} * * *": AROUND,
        f"*/20 {time} * * *": AROUND,
    }


@lru_cache(maxsize=256)
def clock_around(change: Change) -> Clock:
    """By hour and minute: the readings around a change, and the instant after a gap for each that was lost.

    They depend on the change alone, and many zones change together: one of them is looked at.
    """
    found: Clock = defaultdict(list)
    for reading in readings(SEEN_IN[change], change.at - AROUND, change.at + AROUND):
        found[reading.local.hour, reading.local.minute].append((reading, reading.local))
        if reading.lost and reading.local - reading.lost[0] < LONG:
            for lost in reading.lost:
                found[lost.hour, lost.minute].append((reading, lost))
    return found


def expected(expression: str, policy: Policy, change: Change, around: timedelta) -> list[datetime]:
    """The occurrences among all local times around a change, straight from the rules."""
    meaning, found = parse_cron(expression), set[datetime]()
    every = policy == "match" or (policy == "vixie" and meaning.cadence)
    for reading, local in matching(expression, change, around):
        if local == reading.local and (every or not reading.again):
            found.update(reading.instant + timedelta(seconds=second) for second in meaning.seconds)
        if local != reading.local and policy == "vixie" and not every:
            found.add(reading.instant)
    return sorted(found)


@lru_cache(maxsize=1024)
def matching(expression: str, change: Change, around: timedelta) -> list[tuple[Reading, datetime]]:
    """The local times that match, and those in a short gap that would have matched."""
    meaning, clock = parse_cron(expression), clock_around(change)
    first = change.at.replace(tzinfo=None)
    days = {day: meaning.on(day) for day in ((first + timedelta(days=n)).date() for n in range(-4, 5))}
    start, end = change.at - around, change.at + around
    near = (pair for hour in meaning.hours for minute in meaning.minutes for pair in clock[hour, minute])
    return [
        (reading, local) for reading, local in near if start <= reading.instant <= end and days[local.date()]
    ]


def check(zone: str, change: Change) -> None:
    SEEN_IN.setdefault(change, zone)
    for expression, around in expressions(change).items():
        start, end = change.at - around, change.at + around
        for policy in get_args(Policy):
            cron = Cron(expression, zone, policy)
            wanted = [at for at in expected(expression, policy, change, around) if at <= end]
            assert list(cron.between(start - SECOND, end, limit=10_000)) == wanted, (zone, cron, change)
            assert scan_backwards(cron, start, end) == wanted, (zone, cron, change)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("region", regions())
def test_clock_changes_of_every_zone_agree_with_a_scan_of_every_minute(region: str) -> None:
    for zone in of_region(region):
        for change in sampled(zone):
            check(zone, change)


@pytest.mark.timeout(600)
def test_every_shape_of_clock_change_agrees_with_a_scan_of_every_minute() -> None:
    shapes: dict[tuple[object, ...], tuple[str, Change]] = {}
    for zone in zones():
        for change in changes(zone):
            shapes.setdefault(shape(change), (zone, change))
    assert len(shapes) > 50
    for zone, change in shapes.values():
        check(zone, change)


# ---------------------------------------------------------------------- offset periods


def written_changes(name: str) -> list[tuple[int, int]]:
    """Every change of offset in the file: the instant, and the new offset."""
    data = tzif(name)
    skipped = struct.unpack(">6l", data[20:44])
    at = 44 + skipped[3] * 5 + skipped[4] * 6 + skipped[5] + skipped[2] * 8 + skipped[1] + skipped[0]
    times, kinds = struct.unpack(">6l", data[at + 20 : at + 44])[3:5]
    at += 44
    instants = struct.unpack(f">{times}q", data[at : at + 8 * times])
    index = data[at + 8 * times : at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack(">l", data[at + 6 * kind : at + 6 * kind + 4])[0] for kind in range(kinds)]
    found = [(-(1 << 60), offsets[0])]
    for instant, kind in zip(instants, index, strict=True):
        if found[-1][1] != offsets[kind]:
            found.append((instant, offsets[kind]))
    return found[1:]


def test_every_change_in_the_zone_data_since_1970_is_found() -> None:
    for name in zone_names():
        written = [change for change in written_changes(name) if change[0] > 0]
        zone = offset_periods(name, "match")
        found: list[tuple[int, int]] = []
        stretch = zone.at(0)
        while written and stretch.end <= written[-1][0]:
            before, stretch = stretch, zone.at(stretch.end)
            if stretch.offset != before.offset:
                found.append((before.end, stretch.offset))
        assert found == written, name


def test_page_boundaries_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    change = datetime(2021, 11, 7, 6, tzinfo=UTC)
    cron = Cron("30 1 * * *", "America/New_York")
    moments = [change + timedelta(minutes=minute) for minute in range(-180, 181, 5)]
    expected = [(cron.next_after(moment), cron.previous_before(moment)) for moment in moments]
    for bits in range(10, 18):
        monkeypatch.setattr(stretches_module, "_PAGE_BITS", bits)
        monkeypatch.setattr(OffsetPeriods, "_pages", {})
        assert [(cron.next_after(moment), cron.previous_before(moment)) for moment in moments] == expected


def test_occurrences_in_a_gap_of_three_hours_are_dropped() -> None:
    # Casey moved from UTC+8 to UTC+11 at two in the morning.
    gap = datetime(2009, 10, 17, 18, tzinfo=UTC)
    assert Change(gap, timedelta(hours=8), timedelta(hours=11)) in changes("Antarctica/Casey")
    day = timedelta(days=1)
    for expression in ("0 2 * * *", "30 3 * * *", "59 4 * * *"):
        assert Cron(expression, "Antarctica/Casey").between(gap - SECOND, gap + timedelta(hours=12)) == ()
    assert Cron("0 5 * * *", "Antarctica/Casey").between(gap - SECOND, gap + day / 2) == (gap,)


def test_years_beyond_the_zone_data_follow_its_last_rule_up_to_9999() -> None:
    info = ZoneInfo("America/New_York")
    for year in (2038, 2100, 2400, 5000, 9998):
        july, january = datetime(year, 7, 4, 16, tzinfo=UTC), datetime(year, 1, 4, 17, tzinfo=UTC)
        for noon in (july, january):
            assert noon.astimezone(info).hour == 12
            found = Cron("0 12 * * *", "America/New_York").next_after(noon - timedelta(hours=20))
            assert found == noon
