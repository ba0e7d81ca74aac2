"""`timewright simulate`: a fleet of files or of a store, as table, JSON and one HTML page."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.interfaces.terminal import invoke
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import succeed

FLEET = """
limits: [{name: api, max_running: 1}]
schedules:
  - {name: poll, cron: '*/15 * * * *', catch_up: none, note: hi}
  - {name: a, cron: '0 * * * *', limits: [api], note: hi}
  - {name: b, cron: '0 * * * *', limits: [api], note: <b>}
"""
SINCE = ("--since", "2026-03-10T08:00:00Z")


def fleet(tmp_path: Path) -> str:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET)
    return str(file)


def test_simulate_shows_runs_skips_and_the_limits_that_bind(tmp_path: Path) -> None:
    done = invoke(
        None,
        "simulate",
        fleet(tmp_path),
        *SINCE,
        "--for",
        "1d",
        "--outage",
        "08:55-09:20",
        "--duration",
        "a=5m",
    )
    assert done.code == 0, done.err
    assert re.search(r"^poll +93 +2 missed", done.out, re.MULTILINE)
    assert re.search(r"^limit api +1 +1 +2\d", done.out, re.MULTILINE)


def test_simulate_names_the_runs_of_workflow_steps(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(
        "workflows: [{name: load, steps: [{name: one, target: {note: x}}]}]\n"
        "schedules: [{name: nightly, cron: '*/10 * * * *', workflow: load}]\n"
    )
    done = invoke(None, "simulate", str(file), *SINCE, "--for", "1h", "--runs", "1")
    assert re.search(r"^\(workflow steps\) +5", done.out, re.MULTILINE), done.out


def test_simulate_answers_json_with_single_decisions(tmp_path: Path) -> None:
    done = invoke(None, "simulate", fleet(tmp_path), *SINCE, "--for", "1h", "--runs", "3", "--json")
    assert (done.data["runs"], len(done.data["rows"]), done.data["more_rows"]) == (3, 3, 0)
    assert done.data["rows"][0]["planned_at"] == "2026-03-10T08:15:00Z"


def test_the_html_report_is_one_page_with_pictures(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = invoke(None, "simulate", fleet(tmp_path), *SINCE, "--html", str(page), "--outage", "08:55-09:20")
    assert done.code == 0, done.err
    text = page.read_text()
    assert text.count("<svg") >= 3
    assert not re.search(r"""(?:src|href)=|https?://""", text)
    assert 'opacity=".25"' in text


def test_simulate_reads_a_store_and_leaves_it_alone(tmp_path: Path) -> None:
    store = str(tmp_path / "t.db")
    for name in ("a", "b"):
        made = invoke(None, "schedule", "create", name, "--every", "10m", "--note", "hi", "--store", store)
        assert made.code == 0, made.err
    extra = tmp_path / "more.yaml"
    extra.write_text("schedules: [{name: c, every: 30m, note: hi}]")
    done = invoke(
        None, "simulate", "--store", store, "--for", "1h", "--without", "a", "--add", str(extra), "--json"
    )
    assert {one["schedule"]: one["runs"] for one in done.data["schedules"]} == {"b": 6, "c": 1}
    assert invoke(None, "run", "list", "--store", store, "--json").data["runs"] == []


def test_replay_finds_no_difference_and_lists_what_another_policy_changes(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    clock = ManualClock(datetime.now(UTC) - timedelta(hours=2))
    store = SqliteStore(path, clock=clock)
    bench = Bench(store=store, clock=clock)
    bench.schedule("slow", "every 5m")
    bench.target.script("slow", *[succeed(after=timedelta(minutes=7))] * 30)
    bench.advance(hours=1)
    store.close()
    same = invoke(None, "replay", "--since", "3 hours ago", "--store", path)
    assert (same.code, same.lines[0].split(": ")[-1]) == (0, "12 decisions again, 0 of them differ"), same.err
    other = invoke(
        None,
        "replay",
        "slow",
        "--since",
        "3 hours ago",
        "--set",
        "overlap=allow",
        "--store",
        path,
        "-o",
        "json",
    )
    assert other.code == 3
    assert {(one["recorded"], one["replayed"]) for one in other.data["differences"]} == {
        ("skipped: overlap", "run")
    }
    for words in (["missing"], ["--without-hint", "slow@x"], ["--set", "overlap"]):
        refused = invoke(None, "replay", *words, "--store", path)
        assert refused.code == 1
        assert "try" in refused.err


def test_bad_spans_and_outages_are_refused_with_a_remedy(tmp_path: Path) -> None:
    for arguments in (["--for", "0s"], ["--for", "9y"], ["--outage", "noon"], ["--duration", "a=soon"]):
        done = invoke(None, "simulate", fleet(tmp_path), *arguments)
        assert done.code == 1, arguments
        assert "try" in done.err


def test_a_name_that_is_not_simulated_is_refused(tmp_path: Path) -> None:
    for option in (("--without", "pol"), ("--duration", "pol=5m")):
        done = invoke(None, "simulate", fleet(tmp_path), *SINCE, "--for", "1h", *option)
        assert (done.code, "did you mean poll?" in done.err) == (1, True), done.err
