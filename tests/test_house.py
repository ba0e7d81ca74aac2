"""The house rules that no tool keeps for us."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from timewright import errors

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "timewright"
MODULES = sorted(SOURCE.rglob("*.py"))

READ_IN_ONE_SITTING = 400
# Path below src/timewright → why it is longer than one sitting.
LONG: dict[str, str] = {}

VAGUE = {"common", "helper", "helpers", "manager", "managers", "misc", "service", "util", "utils"}

# What `import timewright` gives, sorted; a change here is a change for every user.
PUBLIC_NAMES: list[str] = [
    "After",
    "AnyOf",
    "AsyncScheduler",
    "Call",
    "CatchUp",
    "Clamp",
    "Context",
    "Cron",
    "Decision",
    "Every",
    "Handoff",
    "Hints",
    "Http",
    "InvalidInput",
    "LeaseTerms",
    "Manual",
    "NotBefore",
    "NotFound",
    "Note",
    "Once",
    "Outcome",
    "Overlap",
    "Publish",
    "QueuePolicy",
    "Retry",
    "Rrule",
    "Run",
    "RunState",
    "Schedule",
    "ScheduleState",
    "Scheduler",
    "Settings",
    "Shell",
    "Source",
    "TimewrightError",
    "Workflow",
    "after",
    "every",
]

# Installed by default, and still not for the one who only writes `import timewright`.
HEAVY = {"aiohttp", "asyncio", "click", "prometheus_client", "psycopg", "starlette", "uvicorn", "yaml"}

NOT_OURS = {"__pycache__", "build", "dist", "node_modules", "site", "venv"}
BINARY = {".db", ".gif", ".ico", ".jpg", ".png", ".woff2"}
HOME_PATH = re.compile(r"(?<![\w.])/(?:home|root|Users)/\w")
INDEX = re.compile(r"pypi\.\w|pythonhosted|(?<!no-emit-)(?:extra-)?index-url|/simple/?\s*$", re.MULTILINE)


def below(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def our_files() -> Iterator[Path]:
    """Every text file of the project; what tools leave behind is in hidden folders or named above."""
    for path in sorted(ROOT.rglob("*")):
        folders = path.relative_to(ROOT).parts[:-1]
        foreign = any(name in NOT_OURS or (name.startswith(".") and name != ".ci") for name in folders)
        if path.is_file() and not foreign and path.suffix not in BINARY:
            yield path


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / ".ci" / "run"]


@pytest.fixture(scope="module")
def dev() -> ModuleType:
    spec = spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", MODULES, ids=below)
def test_a_module_says_what_it_is_in_a_sentence_that_ends(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert said, "a module without a docstring"
    assert said.splitlines()[0].endswith(".")


def test_a_file_is_read_in_one_sitting_or_says_why_not() -> None:
    lengths = {below(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    long = {name for name, lines in lengths.items() if lines > READ_IN_ONE_SITTING}
    assert long == set(LONG), "a long file is listed with its reason, and leaves the list when it shrinks"
    assert all(LONG.values())


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert {below(path) for path in MODULES if VAGUE.intersection(path.stem.split("_"))} == set()
    assert {below(path) for path in MODULES if VAGUE.intersection(path.relative_to(SOURCE).parts)} == set()


def test_types_are_never_waved_through_in_the_source() -> None:
    waved = [below(path) for path in MODULES if "type: ignore" in path.read_text(encoding="utf-8")]
    assert waved == []


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    shrug = re.compile(r"pytest\.(?:skip|xfail|importorskip)\(|mark\.(?:skip|skipif|xfail)\b|unittest\.skip")
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__).resolve()]
    assert [path.name for path in tests if shrug.search(path.read_text(encoding="utf-8"))] == []


def our_errors() -> list[type[errors.TimewrightError]]:
    kinds = (kind for _, kind in inspect.getmembers(errors, inspect.isclass))
    return [kind for kind in kinds if issubclass(kind, errors.TimewrightError)]


def test_every_error_stands_in_the_drawn_tree_under_its_parent() -> None:
    parents = {kind.__name__: kind.__bases__[0].__name__ for kind in our_errors()}
    del parents["TimewrightError"]
    assert drawn_parents(errors.__doc__ or "") == parents


def drawn_parents(drawing: str) -> dict[str, str]:
    """Read the tree of a docstring: each name with the one it hangs from."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in drawing.splitlines():
        found = re.match(r"^([\s│├└─]*)([A-Z][A-Za-z]+)(?:\s{2,}|$)", line)
        if found is None or not found[1]:
            continue
        depth, name = len(found[1]), found[2]
        above = [(other, named) for other, named in above if other < depth]
        if above:
            parents[name] = above[-1][1]
        above.append((depth, name))
    return parents


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in our_errors()]
    assert len(codes) == len(set(codes))


def test_the_public_names_are_pinned_and_sorted() -> None:
    public = importlib.import_module("timewright").__all__
    assert list(public) == sorted(public)
    assert list(public) == PUBLIC_NAMES


def test_every_public_name_says_what_it_is() -> None:
    house = importlib.import_module("timewright")
    things = {name: getattr(house, name) for name in PUBLIC_NAMES}
    spoken = {name: thing for name, thing in things.items() if inspect.isclass(thing) or callable(thing)}
    assert [name for name, thing in spoken.items() if not (thing.__doc__ or "").strip()] == []


def test_importing_the_package_imports_no_door_and_no_extra() -> None:
    probe = "import sys, timewright; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=SOURCE.parent
    )
    assert HEAVY.intersection(done.stdout.split()) == set()


def test_the_version_is_written_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    literal = re.compile(rf"""["']{re.escape(project["version"])}["']""")
    assert [below(path) for path in MODULES if literal.search(path.read_text(encoding="utf-8"))] == []


def test_the_changelog_has_room_for_what_comes() -> None:
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_constraints_name_packages_and_versions_and_nothing_else() -> None:
    pin = re.compile(r"[a-z0-9][a-z0-9.-]*==[A-Za-z0-9.+!-]+(?: ; [^:@]+)?")
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    odd = [line for line in lines if not line.startswith("#") and not pin.fullmatch(line)]
    assert odd == []
    assert len(lines) > 50


def test_no_file_knows_an_index_or_somebodys_home() -> None:
    told: list[str] = []
    for path in our_files():
        if path == Path(__file__).resolve():
            continue
        text = path.read_text(encoding="utf-8")
        told += [
            f"{path.relative_to(ROOT)}: {found}"
            for rule in (HOME_PATH, INDEX)
            for found in rule.findall(text)
        ]
    assert told == []


def test_every_command_in_the_pages_exists(dev: ModuleType) -> None:
    shown = {
        name for page in pages() for name in re.findall(r"dev\.py ([a-z]+)", page.read_text(encoding="utf-8"))
    }
    assert {"up", "test"} <= shown
    assert shown <= set(dev.COMMANDS)


def test_make_knows_the_same_commands(dev: ModuleType) -> None:
    found = re.search(r"^COMMANDS := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert found[1].split() == list(dev.COMMANDS)


def test_the_list_of_commands_has_a_line_for_each(dev: ModuleType) -> None:
    done = subprocess.run([sys.executable, ROOT / "dev.py"], capture_output=True, text=True, check=True)
    rows = re.findall(r"^  ([a-z]+) +(\S.*\.)$", done.stdout, re.MULTILINE)
    assert [name for name, _ in rows] == list(dev.COMMANDS)


def test_an_unknown_command_is_refused_and_the_nearest_named() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "dev.py", "tset"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "python3 dev.py test" in done.stderr


def test_the_build_runs_what_a_person_runs() -> None:
    run = ROOT / ".ci" / "run"
    assert run.read_text(encoding="utf-8").splitlines()[-1] == "exec python3 dev.py test"
    assert run.stat().st_mode & 0o111


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80), ("example.invalid", 80)])
def test_a_test_cannot_reach_beyond_this_machine(address: tuple[str, int]) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as reaching, pytest.raises(AssertionError, match="this machine only"):
        reaching.connect(address)


def test_a_test_can_reach_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as reaching:
        reaching.connect(server.getsockname())
        assert reaching.getpeername() == server.getsockname()
