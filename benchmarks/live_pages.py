"""How soon does an event reach the screen at 10 events a second; does the page shift, does its heap grow?

    python -m benchmarks live-pages [--schedules 5000] [--runs 100000] [--events 10] [--minutes 10]
                                    [--seconds 60] [--shifts] [--quick]

`timewright up` runs on a large store, and a client starts runs, each of which causes four events. A real
Chromium shows the runs for some minutes and other screens for some seconds each. Event to pixel is the time
from the answer that a run was started to the frame after the one in which its row is on the page. Layout
shift is what the browser itself reports, from the opening of the screen on, as the largest sum of a window of
at most 5 s. `--shifts` prints the elements that moved.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.api import Server, http_server
from benchmarks.pages import ARGUMENTS, add_history, login_link, set_sizes
from benchmarks.parts.measure import Goals, TemporaryStores, heading, machine, percentile, progress
from benchmarks.start import add_schedules

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MAX_DELAY_S, MAX_SHIFT, MAX_HEAP_GROWTH = 0.5, 0.1, 0.1
EVENTS_PER_RUN = 4
SCREENS = ("overview", "schedules", "grid", "queues", "instances")
# Remembers when each row was first drawn, every layout shift, and the number of events.
WATCH = """(() => {
    const seen = new Map();
    window.shifts = [];
    window.eventCount = 0;
    const now = () => performance.timeOrigin + performance.now();
    const idsOnPage = () =>
        [...document.querySelectorAll('tr.row[data-to]')].map(row => row.dataset.to.split('/').pop());
    const look = () => {
        for (const id of idsOnPage()) {
            if (seen.has(id)) continue;
            seen.set(id, 0);
            requestAnimationFrame(() => requestAnimationFrame(() => { seen.set(id, now()); }));
        }
    };
    // What is handed over is forgotten here, so that it does not count as heap of the page.
    window.takeRows = () => {
        const shown = new Set(idsOnPage()), drawn = [...seen].filter(([, at]) => at);
        for (const [id] of drawn) if (!shown.has(id)) seen.delete(id);
        return Object.fromEntries(drawn);
    };
    new MutationObserver(look).observe(document, { childList: true, subtree: true, attributes: true });
    const named = node => !node ? '' : node.nodeType === 3 ? `"${node.data.slice(0, 40)}"`
        : `${node.nodeName.toLowerCase()}.${node.className}`;
    const box = ({ x, y, width, height }) => [x, y, width, height].map(Math.round).join(' ');
    new PerformanceObserver(list => {
        for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifts.push({
            at: one.startTime, value: one.value,
            moved: one.sources.map(s => `${named(s.node)} ${box(s.previousRect)} > ${box(s.currentRect)}`) });
    }).observe({ type: 'layout-shift', buffered: true });
    const add = EventSource.prototype.addEventListener;
    EventSource.prototype.addEventListener = function (kind, call) {
        add.call(this, kind, event => { window.eventCount += 1; call(event); });
    };
})()"""


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
        with http_server(store_url, command="up") as server, sync_playwright() as play:
            browser = play.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            heading(
                f"{options.events} events a second, {options.schedules:,} schedules, {options.runs:,} runs",
                f"SQLite, Chromium {browser.version}, loopback, one server process with its engine",
            )
            call(server, "schedules", {"name": "busy", "manual": True, "note": "hello", "overlap": "allow"})
            for screen in SCREENS:
                with opened(browser, server, screen) as page, busy(server, options.events):
                    page.wait_for_timeout(options.seconds * 1000)
                    judge_shift(goals, page, screen, options)
            watch_runs(goals, browser, server, options)
            browser.close()
    print(f"\nall goals\n{goals.summary()}")
    return 0


def watch_runs(goals: Goals, browser: Browser, server: Server, options: argparse.Namespace) -> None:
    """Show the runs for minutes: event to pixel, shift, heap."""
    with opened(browser, server, "runs") as page, busy(server, options.events) as started:
        page.wait_for_timeout(5_000)
        wire = page.context.new_cdp_session(page)
        wire.send("Performance.enable")
        heaps = [heap_mb(wire)]
        seen: dict[str, float] = {}
        for _ in range(max(1, round(options.minutes * 2))):
            page.wait_for_timeout(min(30_000, options.minutes * 60_000))
            seen = page.evaluate("takeRows()") | seen
            heaps.append(heap_mb(wire))
            progress(f"heap {heaps[-1]:.1f} MB")
        judge_shift(goals, page, "runs", options)
        events, since = page.evaluate("[eventCount, performance.now() / 1000]")
    print(f"    {events / since:.1f} events a second arrived")
    delays = [seen[run] / 1000 - at for run, at in started.items() if seen.get(run)]
    found = f"p50 {percentile(delays, 0.5):.2f} s, p95 {percentile(delays, 0.95):.2f} s"
    print(f"    {len(delays)} of {len(started)} runs seen, slowest {max(delays):.2f} s")
    met = percentile(delays, 0.95) <= MAX_DELAY_S
    goals.judge("event to pixel", f"p95 at most {MAX_DELAY_S} s", found=found, met=met)
    first, last = heaps[1], heaps[-1]
    goals.judge(
        "heap of the runs screen",
        f"grows by less than {MAX_HEAP_GROWTH:.0%} after the first half minute",
        found=f"{first:.1f} to {last:.1f} MB",
        met=last < first * (1 + MAX_HEAP_GROWTH),
    )


def judge_shift(goals: Goals, page: Page, screen: str, options: argparse.Namespace) -> None:
    shifts = page.evaluate("shifts")
    if options.shifts:
        for one in sorted(shifts, key=lambda one: -one["value"])[:12]:
            print(f"    {one['at'] / 1000:7.1f} s {one['value']:.4f}", *one["moved"], sep="\n        ")
    worst = worst_window(shifts)
    goal = f"layout shift at most {MAX_SHIFT}"
    goals.judge(f"shift of {screen}", goal, found=f"{worst:.3f}", met=worst <= MAX_SHIFT)


def worst_window(shifts: list[dict[str, Any]]) -> float:
    """The largest sum of shifts less than 1 s apart, within 5 s: Cumulative Layout Shift."""
    worst = total = 0.0
    began = last = -1e9
    for one in shifts:
        if one["at"] - last > 1000 or one["at"] - began > 5000:
            began, total = one["at"], 0.0
        last, total = one["at"], total + one["value"]
        worst = max(worst, total)
    return worst


def heap_mb(wire: Any) -> float:
    """The heap after a garbage collection."""
    wire.send("HeapProfiler.collectGarbage")
    metrics = wire.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "JSHeapUsedSize")) / 1e6


@contextmanager
def opened(browser: Browser, server: Server, screen: str) -> Iterator[Page]:
    """A screen in a page of its own, which was logged in before."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.goto(login_link(server))
    page.wait_for_selector("nav.side")
    page.close()
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(f"http://127.0.0.1:{server.port}/#/{screen}")
    page.wait_for_selector(f'main[data-at="/{screen}"]')
    yield page
    context.close()


@contextmanager
def busy(server: Server, events: float) -> Iterator[dict[str, float]]:
    """Start runs in the background; yields when each was started."""
    started: dict[str, float] = {}
    ended = threading.Event()

    def start_runs() -> None:
        due = time.monotonic()
        while not ended.wait(max(0.0, due - time.monotonic())):
            due += EVENTS_PER_RUN / events
            run = call(server, "schedules/busy/run", {})["run"]["id"]
            started[run] = time.time()

    thread = threading.Thread(target=start_runs)
    thread.start()
    try:
        yield started
    finally:
        ended.set()
        thread.join()


def call(server: Server, path: str, body: Any) -> Any:
    address = f"http://127.0.0.1:{server.port}/api/v1/{path}"
    request = urllib.request.Request(address, data=json.dumps(body).encode(), method="POST")
    request.add_header("authorization", f"Bearer {server.key}")
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks live-pages", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--schedules", type=int, default=None, help="5,000, quick 200")
    parser.add_argument("--runs", type=int, default=None, help="100,000, quick 2,000")
    parser.add_argument("--minutes", type=float, default=None, help="of the runs screen: 10, quick 0.1")
    parser.add_argument("--seconds", type=float, default=None, help="of each other screen: 60, quick 3")
    parser.add_argument("--events", type=float, default=10, help="events a second")
    parser.add_argument("--shifts", action="store_true", help="print the elements that moved")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works, not how fast")
    options = parser.parse_args(arguments)
    set_sizes(
        options, schedules=(200, 5_000), runs=(2_000, 100_000), minutes=(0.1, 10.0), seconds=(3.0, 60.0)
    )
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
