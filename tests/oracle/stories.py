"""Random stories of schedules, told to the model and to a bench, and compared row by row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from tests.oracle.model import (
    DAY,
    PRESETS,
    SECOND,
    CronInstants,
    Grid,
    Life,
    Terms,
    to_instant,
    to_time,
)
from tests.promises.schedule_outcomes import alarms
from timewright.core.recurrence.cron import Cron
from timewright.errors import TimewrightError
from timewright.testing.bench import DEFAULT_START, Bench
from timewright.testing.targets import fail, succeed

START = to_time(DEFAULT_START)
# The jitter of their backoff is not in the model, so their stories have a `retry`.
JITTERED = ("routine",)
Request = tuple[str, dict[str, Any]]
MAX_REQUESTS = 2


@dataclass(frozen=True)
class Story:
    """One schedule: how it is made, what its work does, and what is asked for before each step of time."""

    seed: int
    create: dict[str, Any]
    script: tuple[tuple[bool, int], ...]
    requests: tuple[tuple[Request, ...], ...]


@dataclass(frozen=True)
class Batch:
    """Stories that share a clock: the steps of time are the same for all of them."""

    steps: tuple[tuple[str, int], ...]
    stories: tuple[Story, ...]


def duration(time: int) -> str:
    """Microseconds as the text of a duration."""
    return f"{time // SECOND}s"


INTERVALS = (60, 90, 120, 300, 420, 600, 900, 3600)
CRONS = ("* * * * *", "*/5 * * * *", "3,17,40 * * * *", "0 * * * *", "*/7 12-13 * * *", "30 */2 * * *")


def make_batch(seed: int, size: int) -> Batch:
    """Stories that follow from a seed."""
    rng = random.Random(seed)
    steps = []
    for _ in range(rng.randint(3, 7)):
        kind = rng.choice(("live", "live", "outage"))
        steps.append((kind, rng.choice((5, 30, 60, 90, 240, 300, 600, 785, 1200, 1800, 4000)) * SECOND))
    return Batch(tuple(steps), tuple(make_story(seed * 1000 + n, len(steps)) for n in range(size)))


def make_story(seed: int, steps: int) -> Story:
    """One story that follows from a seed."""
    rng = random.Random(seed)
    create = make_definition(rng)
    terms = terms_of(create)
    script = make_script(rng, terms)
    requests = tuple(
        tuple(make_request(rng, terms.adaptive) for _ in range(rng.choice((0, 0, 1, 1, MAX_REQUESTS))))
        for _ in range(steps)
    )
    return Story(seed, create, script, requests)


def make_definition(rng: random.Random) -> dict[str, Any]:
    """A request of `schedule create`: a preset, a trigger, and some policies."""
    preset = rng.choice(list(PRESETS))
    create: dict[str, Any] = {"lease": {"length": "1d", "time_limit": "1d", "grace": "0s"}}
    create |= {"preset": preset} if preset else {}
    plain = preset in ("", "queue", "routine")
    if preset != "adaptive" and rng.random() < 0.35:
        create["cron"] = rng.choice(CRONS)
    else:
        create["every"] = duration(rng.choice(INTERVALS) * SECOND)
    if plain or rng.random() < 0.5:
        choices = ("none", "last", "all") if preset == "adaptive" else ("none", "last", "all", "spread")
        create["catch_up"] = rng.choice(choices)
    if rng.random() < 0.5:
        create["overlap"] = rng.choice(("skip", "queue", "replace", "allow"))
    if rng.random() < 0.3:
        create["grace"] = duration(rng.choice((0, 10, 200, 1000)) * SECOND)
    if rng.random() < 0.2:
        create["catch_up_window"] = duration(rng.choice((130, 601, 3601)) * SECOND)
    attempts = rng.choice((1, 1, 1, 2, 3))
    if plain or (attempts > 1 and preset != "adaptive"):
        create["retry"] = {"max_attempts": attempts, "backoff": {"constant": {"wait": "7s"}}}
    if rng.random() < 0.1:
        create["disable_after"] = rng.choice((1, 2, 3))
    return create | make_cadence(rng, create)


def make_cadence(rng: random.Random, create: dict[str, Any]) -> dict[str, Any]:
    """What failures do to the schedule, and whether it takes hints."""
    steady = {"cadence": {"kind": "none"}}
    made: dict[str, Any] = {}
    if create.get("overlap") == "allow" and create.get("preset") == "desktop":
        made = steady
    elif rng.random() < 0.1 and create.get("preset") != "adaptive":
        ladder = {"cadence": {"ladder": {"steps": ["40s", "200s"]}}}
        made = steady if create.get("overlap") == "allow" else rng.choice((ladder, steady))
    hinted = rng.random() < 0.3 and not terms_of(create | made).ladder
    return made | {"adaptive": True} if hinted else made


def make_script(rng: random.Random, terms: Terms) -> tuple[tuple[bool, int], ...]:
    """Whether each run succeeds, and how long it takes."""
    calm = rng.random() < 0.5
    lengths = (0,) if calm else (0, 0, 1, 20, 60, 90, 250, 300, 700)
    script = tuple(
        (rng.random() < (0.95 if calm else 0.5), rng.choice(lengths) * SECOND)
        for _ in range(rng.randint(1, 12))
    )
    if terms.overlap == "allow":
        # Which of two ready runs starts first is not promised: all of them do the same.
        script = script[:1]
    if terms.catch_up in ("all", "spread"):
        # More than a hundred held runs would meet the limits, which have tests of their own.
        script = tuple((ok or terms.overlap == "replace", 0) for ok, _ in script)
    if terms.ladder:
        # What comes due during a late run of a streak of failures has tests of its own.
        script = tuple((ok, 0) for ok, _ in script)
    return script


def make_request(rng: random.Random, adaptive: bool) -> Request:
    """One request of a person or an agent."""
    names = ["run", "skip", "pause", "resume", "edit"] + [
        "interval",
        "once",
        "clear",
        "hint_pause",
    ] * adaptive
    name = rng.choice(names)
    if name == "pause":
        return name, {"until": rng.choice((None, 60, 500, 1700))}
    if name == "hint_pause":
        return "pause_hint", {"until": rng.choice((60, 500, 1700))}
    if name == "edit":
        if rng.random() < 0.7:
            return name, {"every": duration(rng.choice(INTERVALS) * SECOND)}
        return name, {"catch_up": rng.choice(("none", "last", "all"))}
    if name == "interval":
        return name, {"interval": rng.choice((30, 60, 130, 1000)), "ttl": rng.choice((100, 600, 3600))}
    if name == "once":
        return name, {"at": rng.choice((10, 60, 400)), "ttl": rng.choice((500, 1800))}
    return name, {}


def parse(text: str) -> int:
    """The text of a duration as microseconds."""
    return int(text.removesuffix("s")) * SECOND


def terms_of(create: dict[str, Any]) -> Terms:
    """The policies that a request asks for, as the model knows them."""
    made: dict[str, Any] = dict(PRESETS[create.get("preset", "")])
    for name in ("catch_up", "overlap", "adaptive", "disable_after"):
        if name in create:
            made[name] = create[name]
    if "grace" in create:
        made["grace"] = parse(create["grace"])
    if "catch_up_window" in create:
        made["window"] = parse(create["catch_up_window"])
    if "retry" in create:
        made |= {"max_attempts": create["retry"]["max_attempts"], "backoff": (7 * SECOND,)}
    if "cadence" in create:
        steps = create["cadence"].get("ladder", {}).get("steps", ())
        made |= {"stretch": False, "ladder": tuple(parse(step) for step in steps)}
    if "clamp" in create:
        made |= {f"clamp_{side}": parse(text) for side, text in create["clamp"].items()}
    if "every" in create:
        return Terms(Grid(parse(create["every"]), START), **made)
    return Terms(CronInstants(Cron(create["cron"])), **made)


def tell_model(story: Story, steps: Sequence[tuple[str, int]]) -> tuple[Life, Story]:
    """What the design says, and the story without requests of which it says nothing."""
    create = dict(story.create)
    asked: list[tuple[Request, ...]] = []
    life = Life(terms_of(create), START, list(story.script))
    for (kind, lasts), requests in zip(steps, story.requests, strict=True):
        asked.append(())
        for name, details in requests:
            if not life.is_promised(name):
                continue
            asked[-1] += ((name, details),)
            if name == "edit":
                if "every" in details:
                    create.pop("cron", None)
                create |= details
                life.edit(terms_of(create))
            else:
                ask_model(life, name, details)
            life.tick()
        if kind == "live":
            life.live_until(life.now + lasts)
        else:
            life.now += lasts
            life.tick()
    return life, replace(story, requests=tuple(asked))


def ask_model(life: Life, name: str, details: dict[str, Any]) -> None:
    """One request, made to the model."""
    if name == "run":
        life.run_by_hand()
    elif name == "skip":
        life.skip()
    elif name in ("pause", "pause_hint"):
        until = details["until"]
        life.pause(None if until is None else life.now + until * SECOND, hint=name == "pause_hint")
    elif name == "resume":
        life.resume()
    elif name == "interval":
        life.hint_interval(details["interval"] * SECOND, details["ttl"] * SECOND)
    elif name == "once":
        life.hint_once(life.now + details["at"] * SECOND, details["ttl"] * SECOND)
    elif name == "clear":
        life.clear_hints()


def tell_bench(batch: Batch) -> Bench:
    """What the product does."""
    bench = Bench(capacity=1000)
    for story in batch.stories:
        name = f"s{story.seed}"
        bench.call("schedule create", name=name, call="x", **story.create)
        acts = [(succeed if ok else fail)(after=timedelta(microseconds=lasts)) for ok, lasts in story.script]
        bench.target.script(name, *acts)
    for number, (kind, lasts) in enumerate(batch.steps):
        for index in range(MAX_REQUESTS):
            for story in batch.stories:
                for request in story.requests[number][index : index + 1]:
                    ask_bench(bench, f"s{story.seed}", *request)
            bench.tick()
        if kind == "live":
            bench.advance(timedelta(microseconds=lasts))
        else:
            bench.clock.advance(timedelta(microseconds=lasts))
            bench.tick()
    return bench


REFUSED: dict[str, int] = {}


def ask_bench(bench: Bench, schedule: str, name: str, details: dict[str, Any]) -> None:
    """One request, made to the product; what it refuses has no effect."""
    now = bench.now
    operation, fields = {
        "run": ("schedule run", {}),
        "skip": ("schedule skip", {}),
        "pause": ("schedule pause", {}),
        "pause_hint": ("hint pause", {}),
        "resume": ("schedule resume", {}),
        "clear": ("hint clear", {}),
        "edit": ("schedule update", details),
        "interval": ("hint interval", {key: f"{value}s" for key, value in details.items()}),
        "once": ("hint once", {"after": f"{details.get('at')}s", "ttl": f"{details.get('ttl')}s"}),
    }[name]
    if details.get("until"):
        fields = {"until": now + timedelta(seconds=details["until"])}
    try:
        bench.call(operation, schedule=schedule, **fields)
    except TimewrightError as error:
        key = f"{operation}: {error}"[:160]
        REFUSED[key] = REFUSED.get(key, 0) + 1


OutcomeRow = tuple[Any, ...]
ENDED = ("succeeded", "failed", "parked", "cancelled")


def outcomes_of_model(life: Life) -> list[OutcomeRow]:
    """The rows of the model, comparable."""
    found = [
        (
            row.planned,
            row.by_hand,
            row.state,
            row.reason,
            row.started if row.state in ENDED else None,
            row.finished if row.state in (*ENDED, "skipped") else None,
            row.attempts,
            row.last,
            row.count,
        )
        for row in life.rows
    ]
    return sorted(found, key=repr)


def outcomes_of_bench(bench: Bench, name: str) -> list[OutcomeRow]:
    """The rows of the product, comparable."""
    found = [
        (
            to_time(run.planned_at),
            bool(run.dedupe_scope),
            run.state.value,
            run.reason.partition(":")[0],
            time_of(run.started_at) if run.state in ENDED else None,
            time_of(run.finished_at),
            run.attempts,
            time_of(run.last_of),
            run.dropped,
        )
        for run in bench.runs(name)
    ]
    return sorted(found, key=repr)


def time_of(instant: datetime | None) -> int | None:
    """An instant in microseconds, if there is one."""
    return None if instant is None else to_time(instant)


def differences(batch: Batch, counts: Counter[str] | None = None) -> dict[int, list[str]]:
    """For each story that differs, the lines that differ: `-` the model, `+` the product."""
    told = [tell_model(story, batch.steps) for story in batch.stories]
    # How more missed occurrences than the limit are carried over has tests of its own.
    told = [(life, story) for life, story in told if not life.overflowed]
    bench = tell_bench(replace(batch, stories=tuple(story for _, story in told)))
    found: dict[int, list[str]] = {}
    for life, story in told:
        model, product = outcomes_of_model(life), outcomes_of_bench(bench, f"s{story.seed}")
        progress = bench.progress(f"s{story.seed}")
        model.append(("next", life.next_at, life.state, life.failures))
        state = "active" if progress.state == "paused" else progress.state.value
        next_at = time_of(progress.next_at)
        if any(row[0] == next_at and row[3] == "by_hand" for row in product):
            next_at = life.next_at  # it is passed when it comes due
        product.append(("next", next_at, state, progress.failures))
        model, product = ([tuple(map(coarse, row)) for row in rows] for rows in (model, product))
        if counts is not None:
            counts.update(row[2] for row in product[:-1])
            counts.update(("stories", f"preset {story.create.get('preset', 'none')}"))
            counts["requests"] += sum(map(len, story.requests))
        if model != product:
            found[story.seed] = [f"+ {show(row)}" for row in product if row not in model]
            found[story.seed] += [f"- {show(row)}" for row in model if row not in product]
    for alarm in alarms(bench):
        named = [story.seed for _, story in told if f"s{story.seed}:" in alarm] or [told[0][1].seed]
        found.setdefault(named[0], []).append(f"verify {alarm}")
    return found


def coarse(part: Any) -> Any:
    """A time to the hundredth of a second: a bench may need some microseconds for what happens at once."""
    return part // 10_000 * 10_000 if isinstance(part, int) and part > DAY else part


def show(row: OutcomeRow) -> str:
    """A row with readable times."""
    words = [
        f"{to_instant(part):%d %H:%M:%S.%f}"[:-4] if isinstance(part, int) and part > DAY else str(part)
        for part in row
    ]
    return " ".join(words)


def shrink(batch: Batch, seed: int) -> Batch:
    """The smallest batch that still differs: this story alone, with as few steps, requests and fields."""
    story = next(story for story in batch.stories if story.seed == seed)
    best = Batch(batch.steps, (story,))
    if not differences(best):
        return batch
    changed = True
    while changed:
        changed = False
        for smaller in smaller_batches(best):
            try:
                still = bool(differences(smaller))
            except TimewrightError:
                continue
            if still:
                best, changed = smaller, True
                break
    return best


def smaller_batches(batch: Batch) -> Iterator[Batch]:
    """The batches with one thing less."""
    (story,) = batch.stories
    count = len(batch.steps)
    if count > 1:
        yield Batch(batch.steps[:-1], (replace(story, requests=story.requests[:-1]),))
    for smaller in smaller_stories(story):
        yield Batch(batch.steps, (smaller,))
    for number in range(count):
        before, after = batch.steps[:number], batch.steps[number + 1 :]
        if batch.steps[number][0] == "outage":
            yield Batch((*before, ("live", batch.steps[number][1]), *after), batch.stories)
        if not story.requests[number] and count > 1:
            requests = story.requests[:number] + story.requests[number + 1 :]
            yield Batch(before + after, (replace(story, requests=requests),))


def smaller_stories(story: Story) -> Iterator[Story]:
    """The stories with one request, act or policy less."""
    for number, asked in enumerate(story.requests):
        before, after = story.requests[:number], story.requests[number + 1 :]
        for index in range(len(asked)):
            yield replace(story, requests=(*before, asked[:index] + asked[index + 1 :], *after))
    if len(story.script) > 1:
        yield replace(story, script=story.script[:-1])
    for index, act in enumerate(story.script):
        for simpler in {(True, act[1]), (act[0], 0)} - {act}:
            yield replace(story, script=(*story.script[:index], simpler, *story.script[index + 1 :]))
    for name in set(story.create) - {"every", "cron", "lease"}:
        create = {key: value for key, value in story.create.items() if key != name}
        if "retry" in create or create.get("preset", "") not in JITTERED:
            yield replace(story, create=create)
