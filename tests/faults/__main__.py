"""The command `python3 dev.py faults`: run every fault scenario on this machine and print a table."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from tests.faults.scenario import CannotRun, CoveredFault, FaultEnvironment, FaultScenario
from tests.faults.scenarios import clocks, files, moves, pauses, pressure, servers
from tests.faults.scenarios.covered import COVERED

SCENARIOS: tuple[FaultScenario | CoveredFault, ...] = (
    *COVERED,
    *clocks.SCENARIOS,
    *files.SCENARIOS,
    *moves.SCENARIOS,
    *pauses.SCENARIOS,
    *pressure.SCENARIOS,
    *servers.SCENARIOS,
)
ROOT = Path(__file__).resolve().parents[2]
PASSED = re.compile(r"(\d+) passed")
COLUMNS = (("row", 9), ("fault", 18), ("action", 44), ("expected", 44), ("result", 44))


class FaultResult(Struct, frozen=True, kw_only=True):
    """How one scenario ended: `ok`, `FAILED`, or `NOT RUN` with the reason."""

    scenario: FaultScenario | CoveredFault
    verdict: str
    seen: str
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected scenarios; the exit code is 1 if one of them fails."""
    asked = _parser().parse_args(arguments)
    chosen = [scenario for scenario in SCENARIOS if not asked.only or scenario.name in asked.only]
    if asked.list:
        _print(*(f"{scenario.row:<9} {scenario.name:<18} {scenario.action}" for scenario in chosen))
        return 0
    results = []
    with ExitStack() as stack, _environment(stack) as (folder, server):
        for number, scenario in enumerate(chosen, start=1):
            _print(f"[{number}/{len(chosen)}] {scenario.name}: {scenario.action} …")
            results.append(_run_scenario(scenario, folder / scenario.name, server))
            _print(f"        {results[-1].verdict}, {results[-1].seconds:.1f} s: {results[-1].seen}")
    _summary(results)
    return int(any(result.verdict == "FAILED" for result in results))


@contextmanager
def _environment(stack: ExitStack) -> Iterator[tuple[Path, LazyServer]]:
    with tempfile.TemporaryDirectory(prefix="tw-faults-") as folder:
        yield Path(folder), LazyServer(stack)


class LazyServer:
    """One PostgreSQL for all scenarios, started by the first that needs it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._url = ""

    def __call__(self) -> str:
        """The URL of the server."""
        from timewright.testing.postgres import shared_postgres

        if not self._url:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tw-faults-"))
            self._url = self._stack.enter_context(shared_postgres(Path(folder)))
        return self._url


def _run_scenario(scenario: FaultScenario | CoveredFault, folder: Path, server: LazyServer) -> FaultResult:
    folder.mkdir()
    began = time.monotonic()
    try:
        seen = (
            scenario.run(FaultEnvironment(folder, server))
            if isinstance(scenario, FaultScenario)
            else _run_tests(scenario.tests)
        )
        verdict = "ok"
    except CannotRun as reason:
        seen, verdict = str(reason), "NOT RUN"
    except Exception as error:  # noqa: BLE001  the other scenarios run all the same
        seen, verdict = f"{type(error).__name__}: {error}", "FAILED"
    return FaultResult(
        scenario=scenario, verdict=verdict, seen=" ".join(seen.split()), seconds=time.monotonic() - began
    )


def _run_tests(tests: tuple[str, ...]) -> str:
    """Run tests; return pytest's count, or raise with the end of its output."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    counted = PASSED.search(done.stdout)
    if done.returncode or counted is None:
        raise AssertionError(done.stdout[-1500:] + done.stderr[-500:])
    return f"{counted[1]} passed"


def _summary(results: Sequence[FaultResult]) -> None:
    _print("", _line([name for name, _ in COLUMNS], "ok"))
    for result in results:
        scenario = result.scenario
        _print(
            _line(
                [scenario.row, scenario.name, scenario.action, scenario.expected, result.seen], result.verdict
            )
        )
    counts = {
        verdict: sum(result.verdict == verdict for result in results)
        for verdict in ("ok", "FAILED", "NOT RUN")
    }
    seconds = sum(result.seconds for result in results)
    _print(
        "",
        f"{len(results)} scenarios in {seconds:.0f} s: " + ", ".join(f"{n} {w}" for w, n in counts.items()),
    )
    for result in results:
        if result.verdict != "ok":
            _print(f"{result.verdict}: {result.scenario.name} (row {result.scenario.row}): {result.seen}")


def _line(cells: Sequence[str], verdict: str) -> str:
    widths = [width for _, width in COLUMNS]
    shown = [
        text if len(text) <= width else f"{text[: width - 1]}…"
        for text, width in zip(cells, widths, strict=True)
    ]
    return "  ".join([*(text.ljust(width) for text, width in zip(shown, widths, strict=True)), verdict])


def _print(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dev.py faults", description=__doc__)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="only this scenario")
    parser.add_argument("--list", action="store_true", help="list the scenarios without running them")
    return parser


if __name__ == "__main__":
    sys.exit(main())
