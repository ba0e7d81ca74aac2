"""How soon does the dashboard show its first screens on a large store, and how long does a redraw take?

    python -m benchmarks pages [--schedules 10000] [--runs 1000000] [--marks 5000] [--rounds 7] [--quick]

A real Chromium opens each page over loopback and reports when the first row of data was on the page and the
next frame was drawn: first with its cache off, then with a warm cache. A redraw builds a chart of many marks,
updates the page and lays it out. One server process, no engine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import apsw

from benchmarks.api import Server, http_server
from benchmarks.parts.measure import Goals, TemporaryStores, heading, machine, median, progress, spread
from benchmarks.parts.store_fill import RUN_COLUMNS, schedule_id
from benchmarks.start import add_schedules
from timewright.core.moments import to_micros
from timewright.ids import first_id

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MAX_PAINT_MS, MAX_REDRAW_MS = 300.0, 16.0
WEEK = timedelta(days=7)
SHOWN = {"overview": ".numbers strong", "schedules": "tbody tr", "runs": "tbody tr"}
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
# Reports when the wanted element exists, and when the frame after that was drawn.
WATCH = """(() => {
    const wanted = WANTED;
    const seen = () => {
        if (!document.querySelector(wanted)) return false;
        const told = () => { document.documentElement.dataset.painted = performance.now(); };
        requestAnimationFrame(() => requestAnimationFrame(told));
        return true;
    };
    new MutationObserver((_, watch) => { if (seen()) watch.disconnect(); })
        .observe(document, { childList: true, subtree: true });
})()"""
# Each chart differs from the one before in every mark, as it would an hour later.
DRAW = """async ([marks, rounds]) => {
    const { lineChart } = await import('/charts/line_chart.js');
    const { h, replace } = await import('/base/dom.js');
    const holder = document.createElement('div');
    document.querySelector('main').append(holder);
    const point = (round) => (_, n) => ({ at: new Date(1.7e12 + n * 6e4).toISOString(), state: 'succeeded',
        value: (n * 7919 + round * 104729) % 1000 });
    const times = [];
    for (let round = 0; round < rounds; round += 1) {
        const points = Array.from({ length: marks }, point(round));
        const began = performance.now();
        replace(holder, h('div', null, lineChart(points, { label: 'x' })));
        holder.getBoundingClientRect();
        times.push(performance.now() - began);
    }
    return times;
}"""


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no Chromium is installed: nothing can be measured", file=sys.stderr)
        return 1
    from playwright.sync_api import sync_playwright

    print(machine("apsw", "playwright"))
    goals = Goals()
    with TemporaryStores() as temporary_stores, temporary_stores.new_store("sqlite") as store_url:
        progress(f"filling {options.schedules:,} schedules and {options.runs:,} runs")
        add_schedules(store_url, options.schedules)
        add_history(store_url, options.schedules, options.runs)
        with http_server(store_url) as server, sync_playwright() as play:
            browser = play.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            paint(goals, browser, server, options)
            redraw(goals, browser, server, options)
            browser.close()
    print(f"\nall goals\n{goals.summary()}")
    return 0


def paint(goals: Goals, browser: Browser, server: Server, options: argparse.Namespace) -> None:
    """Time from the navigation to the first row of data and the frame after it."""
    heading(
        f"first paint, {options.schedules:,} schedules, {options.runs:,} runs",
        f"SQLite, Chromium {browser.version}, loopback, cache off and then warm, {options.rounds} rounds",
    )
    for screen, wanted in SHOWN.items():
        times, again = (
            [paint_time(browser, server, screen, wanted, cached=cached) for _ in range(options.rounds + 1)][
                1:
            ]
            for cached in (False, True)
        )
        found = f"{spread(times)} ms"
        print(f"    {screen:<12}{found:>26}   again {spread(again)} ms")
        met = median(times) < MAX_PAINT_MS
        goals.judge(f"first paint of {screen}", f"below {MAX_PAINT_MS:.0f} ms", found=found, met=met)


def paint_time(browser: Browser, server: Server, screen: str, wanted: str, *, cached: bool) -> float:
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.goto(login_link(server))
    page.wait_for_selector("nav.side")
    page.close()
    page = context.new_page()
    if not cached:
        wire = context.new_cdp_session(page)
        wire.send("Network.enable")
        wire.send("Network.setCacheDisabled", {"cacheDisabled": True})
    page.add_init_script(WATCH.replace("WANTED", repr(wanted)))
    page.goto(f"http://127.0.0.1:{server.port}/#/{screen}")
    page.wait_for_selector("html[data-painted]", state="attached")
    milliseconds = float(page.evaluate("document.documentElement.dataset.painted"))
    context.close()
    return milliseconds


def redraw(goals: Goals, browser: Browser, server: Server, options: argparse.Namespace) -> None:
    """Build a chart of many marks again and lay it out."""
    heading(
        f"redraw of {options.marks:,} marks",
        "made, compared with the page, changed and laid out; not painted",
    )
    page = browser.new_page(viewport={"width": 1280, "height": 860})
    page.goto(login_link(server))
    page.wait_for_selector("nav.side")
    times = page.evaluate(DRAW, [options.marks, options.rounds * 4])[options.rounds :]
    found = f"{spread(times, digits=1)} ms"
    goals.judge(
        f"redraw of {options.marks:,} marks",
        f"below {MAX_REDRAW_MS:.0f} ms",
        found=found,
        met=median(times) < MAX_REDRAW_MS,
    )
    page.close()


def login_link(server: Server) -> str:
    """A login link that works once."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/session/links", data=b"{}", method="POST"
    )
    request.add_header("authorization", f"Bearer {server.key}")
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return f"http://127.0.0.1:{server.port}{json.load(answer)['link']}"


def add_history(store_url: str, schedules: int, runs: int) -> None:
    """Insert runs of the last week, each linked to the one before; some failed, some were skipped."""
    connection = apsw.Connection(store_url)
    marks = ", ".join("?" for _ in f"{RUN_COLUMNS}, started_at".split(","))
    connection.execute("PRAGMA cache_size = -262144; BEGIN IMMEDIATE")
    rows = history(schedules, runs, until=datetime.now(UTC))
    connection.executemany(f"INSERT INTO runs ({RUN_COLUMNS}, started_at) VALUES ({marks})", rows)
    newest = list(
        connection.execute("SELECT id, schedule_id FROM runs ORDER BY id DESC LIMIT ?", (schedules,))
    )
    connection.executemany("UPDATE schedules SET last_run = ? WHERE id = ?", newest)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def history(schedules: int, runs: int, *, until: datetime) -> Iterator[tuple[Any, ...]]:
    step, began, previous = WEEK / runs, until - WEEK, [""] * schedules
    for number in range(runs):
        planned, of = began + number * step, number % schedules
        state = "failed" if number % 50 == 7 else "skipped" if number % 20 == 3 else "succeeded"
        at, own = to_micros(planned), first_id("run", at=planned)
        ran = at + 40_000 if state != "skipped" else None
        ended = at + 900_000
        yield (
            *(own, "default", schedule_id(of), "", at, at, state, 0, "overlap" if ran is None else ""),
            *("baseline-interval", 1, "", "", 100, 1, 0, 1, None, 0, at, ended, "", "", None, None, ""),
            *(previous[of], "", ran),
        )
        previous[of] = own


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks pages", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--schedules", type=int, default=None, help="10,000, quick 200")
    parser.add_argument("--runs", type=int, default=None, help="1,000,000, quick 5,000")
    parser.add_argument("--marks", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=None, help="7, quick 2")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works, not how fast")
    options = parser.parse_args(arguments)
    set_sizes(options, schedules=(200, 10_000), runs=(5_000, 1_000_000), rounds=(2, 7))
    return options


def set_sizes(options: argparse.Namespace, **sizes: tuple[float, float]) -> None:
    """Set the options that were not given: to the first size with --quick, else to the second."""
    for name, (quick, usual) in sizes.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else usual)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
