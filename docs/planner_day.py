# ruff: noqa: INP001, T201 - docs is not a package; the script prints its figures
"""A day of a queue that grows and drains, lived twice: at its own pace, and with the heuristic planner.

`python -m docs.planner_day` draws `docs/learn/planner-day.svg` from the two days. Everything is decided by
the clock of a bench, so that the figures are the same on every machine.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

from msgspec import Struct

from timewright.core.run.run import Run
from timewright.operations import OperationContext
from timewright.planner.heuristic_advisor import HeuristicAdvisor
from timewright.planner.planner_loop import DEFAULT_INTERVAL, Planner
from timewright.testing.bench import Bench
from timewright.wiring import new_registry

PLOT = Path(__file__).parent / "learn" / "planner-day.svg"
BEGAN = datetime(2026, 3, 10, tzinfo=UTC)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
WARNING, CRITICAL = 300, 500

# The minute of the day and the depth of the queue there; between two of them it moves evenly.
KNOTS = (
    (0, 22), (165, 30), (254, 560), (281, 40), (505, 35), (580, 120), (633, 590), (668, 60), (790, 45),
    (902, 610), (931, 70), (1080, 55), (1131, 180), (1190, 150), (1287, 545), (1322, 35), (1440, 20),
)  # fmt: skip


class Lived(Struct, frozen=True):
    """One way to live the day: when it looked, and how long after each alarm."""

    looked: tuple[datetime, ...]
    reactions: tuple[timedelta, ...]

    @property
    def mean(self) -> timedelta:
        """How long an alarm waited to be seen, on average."""
        return sum(self.reactions, timedelta(0)) / len(self.reactions)


class Queue:
    """An app whose one function answers with the depth of the queue at the instant it is asked."""

    def __init__(self, bench: Bench) -> None:
        self.registry = new_registry()
        self.registry.register("orders.depth")(lambda: answer_at(bench.now))
        self.declared: tuple[dict[str, Any], ...] = (
            {
                "name": "orders",
                "every": "30m",
                "call": "orders.depth",
                "adaptive": True,
                "clamp": {"min": "2m"},
            },
        )


def answer_at(moment: datetime) -> dict[str, int]:
    """What the queue says of itself at an instant."""
    return {
        "queue_depth": depth_at(moment),
        "warning_threshold": WARNING,
        "critical_threshold": CRITICAL,
    }


def depth_at(moment: datetime) -> int:
    """The depth at an instant: between its knots, and never quite even."""
    minute = min((moment - BEGAN) / MINUTE, KNOTS[-1][0])
    place = max(bisect_left([at for at, _ in KNOTS], minute), 1)
    (left, low), (right, high) = KNOTS[place - 1], KNOTS[place]
    even = low + (high - low) * (minute - left) / (right - left)
    shake = (crc32(str(int(minute)).encode()) % 1000 / 1000 - 0.5) * 0.08
    return max(round(even * (1 + shake)), 0)


def alarms() -> tuple[datetime, ...]:
    """The minutes in which the queue became critical, each after it had been calm."""
    found: list[datetime] = []
    calm = True
    for minute in range(int(DAY / MINUTE)):
        depth = depth_at(BEGAN + minute * MINUTE)
        if calm and depth >= CRITICAL:
            found.append(BEGAN + minute * MINUTE)
            calm = False
        calm = calm or depth < WARNING
    return tuple(found)


def live(*, planned: bool) -> Lived:
    """Live the day, with the planner looking every five minutes or without it."""
    bench = Bench(start=BEGAN)
    bench.adopt(Queue(bench))
    context = OperationContext(store=bench.store, ids=bench.ids, notify=bench.loop.notify_observers)
    planner = Planner(context, HeuristicAdvisor(), clock=bench.clock)
    while bench.now < BEGAN + DAY:
        bench.advance(DEFAULT_INTERVAL)
        if planned:
            planner.run_once()
    return _lived(bench.runs("orders"))


def _lived(runs: list[Run]) -> Lived:
    looked = tuple(run.started_at for run in runs if run.started_at is not None)
    return Lived(looked, tuple(next(at for at in looked if at >= alarm) - alarm for alarm in alarms()))


def draw(alone: Lived, advised: Lived) -> str:
    """The two days as a picture: the depth, its limits, and a mark for every look."""
    points = " ".join(
        f"{_x(BEGAN + m * MINUTE)},{_y(depth_at(BEGAN + m * MINUTE))}" for m in range(0, 1440, 2)
    )
    told = (
        f"A queue over a day. Critical at {CRITICAL}: seen after {_minutes(alone)} at its own pace"
        f" ({len(alone.looked)} runs), after {_minutes(advised)} with the planner"
        f" ({len(advised.looked)} runs)."
    )
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 380"',
        ' font-family="sans-serif" font-size="12">',
        '<rect width="960" height="380" fill="#fff"/>',
        f'<text x="40" y="20">{told}</text>',
        *(
            f'<line x1="40" x2="940" y1="{_y(at)}" y2="{_y(at)}" stroke="{colour}" stroke-dasharray="4 4"/>'
            for at, colour in ((WARNING, "#c90"), (CRITICAL, "#c22"))
        ),
        f'<polyline points="{points}" fill="none" stroke="#357" stroke-width="1.5"/>',
        *_marks(alone, y=318, name="its own pace", colour="#888"),
        *_marks(advised, y=348, name="with the planner", colour="#272"),
        *(f'<text x="{_x(BEGAN + h * 60 * MINUTE)}" y="376">{h:02}:00</text>' for h in range(0, 24, 3)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _marks(lived: Lived, *, y: int, name: str, colour: str) -> list[str]:
    ticks = " ".join(f"M{_x(at)} {y}v14" for at in lived.looked)
    return [
        f'<text x="40" y="{y - 3}" fill="{colour}">{name}</text>',
        f'<path d="{ticks}" stroke="{colour}" stroke-width="1.5"/>',
    ]


def _minutes(lived: Lived) -> str:
    return f"{lived.mean / MINUTE:.1f} min"


def _x(moment: datetime) -> float:
    return round(40 + 900 * ((moment - BEGAN) / DAY), 1)


def _y(depth: float) -> float:
    return round(290 - 250 * depth / 650, 1)


def main() -> None:
    """Draw the picture."""
    alone, advised = live(planned=False), live(planned=True)
    PLOT.write_text(draw(alone, advised), encoding="utf-8")
    for name, lived in (("alone", alone), ("planned", advised)):
        print(name, len(lived.looked), "runs,", _minutes(lived), [str(one) for one in lived.reactions])


if __name__ == "__main__":
    main()
