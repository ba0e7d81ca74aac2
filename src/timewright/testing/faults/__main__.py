"""The lane `python3 dev.py faults`: every fault story on this machine, a line each, and a table at last."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from timewright.testing.faults import clocks, files, servers
from timewright.testing.faults.held import HELD
from timewright.testing.faults.story import CannotRun, Held, Scene, Story
from timewright.testing.faults.suite import run_tests

STORIES: tuple[Story | Held, ...] = (*HELD, *clocks.STORIES, *files.STORIES, *servers.STORIES)
COLUMNS = (("row", 9), ("fault", 18), ("what was done", 44), ("expected", 44), ("seen", 44))


class Result(Struct, frozen=True, kw_only=True):
    """How one story ended: `ok`, `FAILED`, or `NOT RUN` with the reason."""

    story: Story | Held
    word: str
    seen: str
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Tell the stories that are asked for; the exit code is 1 when one of them fails."""
    asked = _parser().parse_args(arguments)
    chosen = [story for story in STORIES if not asked.only or story.name in asked.only]
    if asked.list:
        _say(*(f"{story.row:<9} {story.name:<18} {story.done}" for story in chosen))
        return 0
    results = []
    with ExitStack() as stack, _stage(stack) as (folder, server):
        for number, story in enumerate(chosen, start=1):
            _say(f"[{number}/{len(chosen)}] {story.name}: {story.done} …")
            results.append(_tell(story, folder / story.name, server))
            _say(f"        {results[-1].word}, {results[-1].seconds:.1f} s: {results[-1].seen}")
    _summary(results)
    return int(any(result.word == "FAILED" for result in results))


@contextmanager
def _stage(stack: ExitStack) -> Iterator[tuple[Path, Server]]:
    with tempfile.TemporaryDirectory(prefix="tw-faults-") as folder:
        yield Path(folder), Server(stack)


class Server:
    """One PostgreSQL for every story that asks for one, started by the first."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._url = ""

    def __call__(self) -> str:
        """How to reach it."""
        from timewright.testing.postgres import shared_postgres

        if not self._url:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tw-faults-"))
            self._url = self._stack.enter_context(shared_postgres(Path(folder)))
        return self._url


def _tell(story: Story | Held, folder: Path, server: Server) -> Result:
    folder.mkdir()
    began = time.monotonic()
    try:
        seen = story.work(Scene(folder, server)) if isinstance(story, Story) else run_tests(story.tests)
        word = "ok"
    except CannotRun as reason:
        seen, word = str(reason), "NOT RUN"
    except Exception as error:  # noqa: BLE001  whatever went wrong, the other stories are told
        seen, word = f"{type(error).__name__}: {error}", "FAILED"
    return Result(story=story, word=word, seen=" ".join(seen.split()), seconds=time.monotonic() - began)


def _summary(results: Sequence[Result]) -> None:
    _say("", _line([name for name, _ in COLUMNS], "ok"))
    for result in results:
        story = result.story
        _say(_line([story.row, story.name, story.done, story.expected, result.seen], result.word))
    counts = {word: sum(result.word == word for result in results) for word in ("ok", "FAILED", "NOT RUN")}
    seconds = sum(result.seconds for result in results)
    _say(
        "", f"{len(results)} stories in {seconds:.0f} s: " + ", ".join(f"{n} {w}" for w, n in counts.items())
    )
    for result in results:
        if result.word != "ok":
            _say(f"{result.word}: {result.story.name} (row {result.story.row}): {result.seen}")


def _line(cells: Sequence[str], word: str) -> str:
    widths = [width for _, width in COLUMNS]
    shown = [
        text if len(text) <= width else f"{text[: width - 1]}…"
        for text, width in zip(cells, widths, strict=True)
    ]
    return "  ".join([*(text.ljust(width) for text, width in zip(shown, widths, strict=True)), word])


def _say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dev.py faults", description=__doc__)
    names = [story.name for story in STORIES]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="only this story")
    parser.add_argument("--list", action="store_true", help="say what there is, and break nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
