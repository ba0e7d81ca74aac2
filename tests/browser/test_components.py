"""The component layer of the dashboard alone: nodes, patches, texts, output and layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import ONE_STORE, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.conftest import Site

pytestmark = ONE_STORE
MODULES = {
    "dom": "base/dom",
    "times": "base/times",
    "commands": "components/commands",
    "diff": "components/diff",
    "layout": "components/layout",
    "texts": "components/texts",
    "graph": "charts/graph",
    "waterfall": "charts/waterfall",
    "charts": "charts/history",
    "output_view": "screens/runs/output_view",
}
Components = Callable[[str], Any]


@pytest.fixture(scope="module")
def components(browser: Browser, site: Site) -> Iterator[Components]:
    """Evaluate a function body with the modules of the component layer, all in one page."""
    for page in open_page(browser, site):
        yield partial(evaluate, page)


def evaluate(page: Page, body: str) -> Any:
    loads = ", ".join(f"import('/v/0/{path}.js')" for path in MODULES.values())
    return page.evaluate(
        f"async () => {{ const [{', '.join(MODULES)}] = await Promise.all([{loads}]);"
        " const holder = document.createElement('div'); document.body.append(holder);"
        f" try {{ {body} }} finally {{ holder.remove(); }} }}"
    )


def test_a_patch_keeps_the_focus_the_typed_text_and_the_node(components: Components) -> None:
    found = components("""
        const draw = text => dom.replace(holder, dom.h('form', null, dom.h('p', null, text),
            dom.h('input', { name: 'a', value: 'given' })));
        draw('one');
        const input = holder.querySelector('input');
        input.focus();
        input.value = 'typed';
        draw('two');
        return [holder.querySelector('input') === input, document.activeElement === input, input.value,
            holder.querySelector('p').textContent];
    """)
    assert found == [True, True, "typed", "two"]


def test_a_patch_moves_nodes_by_their_key_and_removes_the_others(components: Components) -> None:
    found = components("""
        const draw = keys => dom.replace(holder,
            dom.h('ul', null, keys.map(key => dom.h('li', { key }, key))));
        draw(['a', 'b', 'c']);
        const before = new Map([...holder.querySelectorAll('li')].map(node => [node.textContent, node]));
        draw(['d', 'c', 'a']);
        const after = [...holder.querySelectorAll('li')];
        return [after.map(node => node.textContent).join(''),
            after.map(node => before.get(node.textContent) === node)];
    """)
    assert found == ["dca", [False, True, True]]


def test_a_patch_replaces_handlers_and_attributes(components: Components) -> None:
    found = components("""
        const calls = [];
        const draw = (props) => dom.replace(holder, dom.h('div', null, dom.h('button', props, 'go')));
        const click = () => holder.querySelector('button').click();
        draw({ title: 'first', onclick: () => calls.push('first') });
        click();
        draw({ onclick: () => calls.push('second') });
        click();
        draw({});
        click();
        return [calls, holder.querySelector('button').hasAttribute('title')];
    """)
    assert found == [["first", "second"], False]


def test_text_never_becomes_markup(components: Components) -> None:
    found = components("""
        dom.replace(holder, dom.h('p', { title: '"><b>' }, ['<b>bold</b>', null, false, 0]));
        return [holder.querySelectorAll('b').length, holder.textContent];
    """)
    assert found == [0, "<b>bold</b>0"]


def test_durations_have_one_spelling(components: Components) -> None:
    seconds = [0, 0.012, 1, 1.5, 9.97, 59.6, 90, 3600, 90_061]
    found = components(f"return {seconds}.map(times.formatDuration)")
    assert found == ["0 s", "12 ms", "1 s", "1.5 s", "10 s", "1 m", "1 m 30 s", "1 h", "1 d 1 h"]
    assert components("return [90, 5400].map(times.shortDuration)") == ["2 m", "1.5 h"]
    assert components("return ['1h30m', '250ms', '2w'].map(times.parseDuration)") == [5400, 0.25, 1209600]


def test_the_clock_change_is_found_to_the_minute(components: Components) -> None:
    found = components("""
        const change = Date.parse('2027-03-28T01:00:00Z');
        const found = new Set();
        for (let second = 0; second < 600; second += 7)
            found.add(times.nextClockChange('Europe/Berlin', change - 3_000_000_000 - second * 1000).at);
        return [...found];
    """)
    assert found == ["2027-03-28T01:00:00.000Z"]


def test_texts_of_the_server_get_links_instants_and_durations(components: Components) -> None:
    found = components("""
        holder.append(...texts.linkedText(
            'run run_01ARZ3NDEKTSV4RRFFQ69G5FAV waited 3m17s until 2026-03-10T12:00:00Z, v1s-2m').flat());
        return [holder.querySelector('a').getAttribute('href'), holder.querySelectorAll('time').length,
            holder.textContent.replace(/until .*,/, 'until then,')];
    """)
    assert found == [
        "#/runs/run_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        1,
        "run …9G5FAV waited 3 m 17 s until then, v1s-2m",
    ]


def test_commands_are_quoted_for_a_shell(components: Components) -> None:
    quoted = components("return ['plain-1', \"it's\", 'a b', '$HOME'].map(commands.shellQuote)")
    assert quoted == ["plain-1", "'it'\\''s'", "'a b'", "'$HOME'"]
    options = components("return commands.commandOptions({ max_running: '3', reason: '', until: 'in 2h' })")
    assert options == " --max-running 3 --until 'in 2h'"


def test_a_difference_names_the_field_and_both_values(components: Components) -> None:
    found = components("return diff.differences({a: {b: 1, c: [1]}, d: 2}, {a: {b: 1, c: [1, 2]}, e: 3})")
    assert found == [["a.c", [1], [1, 2]], ["d", 2, None], ["e", None, 3]]


def test_findings_are_ordered_by_severity_and_then_by_age(components: Components) -> None:
    found = components("""
        const rows = [['ok', ''], ['warn', '2'], ['fail', '1'], ['fail', '3']];
        return rows.map(([severity, since]) => ({ severity, since })).sort(layout.worstFirst)
            .map(one => one.severity + one.since);
    """)
    assert found == ["fail3", "fail1", "warn2", "ok"]


def test_layers_follow_their_needs_and_a_cycle_is_cut(components: Components) -> None:
    found = components("""
        const needs = { a: [], b: ['a'], c: ['a', 'b'], x: ['y'], y: ['x'] };
        return Object.fromEntries(graph.assignLayers(new Map(Object.entries(needs))));
    """)
    assert found == {"a": 1, "b": 2, "c": 3, "x": 2, "y": 1}


def test_ticks_of_a_time_axis_are_round(components: Components) -> None:
    ticks = components("return waterfall.axisTicks(3_700, 64_000)")
    assert ticks == [15_000, 30_000, 45_000, 60_000]


def test_output_is_filtered_by_level_and_text_with_the_lines_that_follow(components: Components) -> None:
    found = components("""
        const at = '2026-03-10T12:00:00Z';
        const text = `${at} INFO fine\\n${at} ERROR broken\\n  traceback\\n${at} DEBUG detail`;
        const lines = output_view.parseOutput(text);
        const shown = (level, search) =>
            output_view.filterOutput(lines, { level, search }).map(line => line.text);
        const colours = output_view.parseColours('a \\x1b[31mred\\x1b[0m b');
        return [shown('WARNING', ''), shown('', 'TRACE'), colours];
    """)
    red = [
        {"text": "a ", "classes": ""},
        {"text": "red", "classes": "ansi-red"},
        {"text": " b", "classes": ""},
    ]
    assert found == [["broken", "  traceback"], ["  traceback"], red]


def test_a_slow_answer_does_not_look_like_a_wrong_clock(components: Components) -> None:
    slow, wrong = components("""
        const now = Date.now(), header = ms => new Date(ms).toUTCString();
        times.checkClock(header(now - 12_000), now - 12_000);
        const slow = times.clockOffset();
        times.checkClock(header(now - 60_000), now - 12_000);
        const wrong = times.clockOffset();
        times.checkClock(header(now), now);
        return [slow, wrong];
    """)
    assert abs(slow) <= 2000
    assert -49_000 < wrong < -45_000
