"""Rules of the code base that no other tool checks."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import socket
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.project import DOCS, MODULES, ROOT, SOURCE, error_types
from timewright import errors

MAX_LINES = 400
MAX_LINE_LENGTH = 110
# Path below src/timewright -> why the file is longer than MAX_LINES.
LONG_FILES: dict[str, str] = {
    "ledger/replan.py": "every change of a schedule by a person: all decide first what they replace"
}
MAX_FILES_PER_FOLDER = 15
# Path below src/timewright -> why the folder has more files.
LARGE_FOLDERS: dict[str, str] = {}

VAGUE_NAMES = {"common", "helper", "helpers", "manager", "managers", "misc", "service", "util", "utils"}

# The names of `import timewright`, sorted. A change here is a change for every user.
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
    "Later",
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
    "cron",
    "every",
]

# Installed by default, but not imported by `import timewright`.
HEAVY = {"aiohttp", "asyncio", "click", "prometheus_client", "psycopg", "starlette", "uvicorn", "yaml"}

# Private metaphors of earlier versions -> the word to use instead. Matched as whole words with or without a
# plural "s", also inside identifiers: `take_room` and `RoomKeepers` contain the word "room".
PRIVATE_WORDS = {
    "book": "catalog, statements",
    "brew": "start_faults",
    "broom": "cleanup",
    "desk": "session",
    "discreet": "redacting",
    "door": "interface",
    "doorkeeper": "AuthCache",
    "ear": "listener",
    "errand": "task",
    "eve": "commit_at",
    "fate": "outcome",
    "foresight": "forecast",
    "gate": "limit",
    "glimpse": "non-blocking read",
    "hear": "receive",
    "heard": "received",
    "hears": "receives",
    "house": "instance",
    "hush": "stop_faults",
    "journey": "round trip",
    "lane": "dedupe scope",
    "lookout": "pending work",
    "onlooker": "read executor",
    "outlook": "pending work",
    "overheard": "log capture",
    "patience": "timeout",
    "pulse": "health",
    "rider": "pipelined statement",
    "room": "package, or free capacity",
    "rouse": "wake",
    "sayings": "output",
    "shelf": "records",
    "speaker": "executor",
    "stairs": "layers",
    "standstill": "idle",
    "teller": "dispatcher",
    "vigil": "wait",
    "weather": "fault schedule",
    "whoever": "name the subject: the caller, another process",
    "workplace": "worker state",
    "workshop": "factory",
}
# Phrases that hide the subject or the number -> what to write instead.
PRIVATE_PHRASES = {
    "in no time": "how long",
    "no more than": "at most",
    "nobody's": "name the owner, or: neither is used",
    "so many": "the number, or: at most",
    "that which": "name it",
    "what is said": "the value, the output, the message",
}
PRIVATE_CONSTANTS = re.compile(r"\b_?(?:MOST|LONGEST|LARGEST|DEEPEST|SHORTEST)_[A-Z]\w*")
# (path below the root, word) -> why the word is ordinary English there.
ALLOWED_WORDS: dict[tuple[str, str], str] = {
    ("mkdocs.yml", "weather"): "the name of an icon",
    ("src/timewright/testing/demo.py", "book"): "the books of accounting, in a reason that a person gives",
    ("src/timewright/testing/demo_jobs.py", "book"): "the books of accounting, in the name of a job",
}

GENERATED_FOLDERS = {"__pycache__", "build", "dist", "node_modules", "site", "venv"}
BINARY = {".db", ".gif", ".ico", ".jpg", ".png", ".woff2"}
HOME_PATH = re.compile(r"(?<![\w.])/(?:home|root|Users)/\w")
INDEX = re.compile(r"pypi\.\w|pythonhosted|(?<!no-emit-)(?:extra-)?index-url|/simple/?\s*$", re.MULTILINE)


def below(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def project_files() -> Iterator[Path]:
    """Every text file of the project, without generated and hidden folders."""
    for path in sorted(ROOT.rglob("*")):
        folders = path.relative_to(ROOT).parts[:-1]
        skipped = any(
            name in GENERATED_FOLDERS or (name.startswith(".") and name != ".ci") for name in folders
        )
        if path.is_file() and not skipped and path.suffix not in BINARY:
            yield path


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), ROOT / ".ci" / "run"]


def private_words_in(text: str) -> list[str]:
    """The private words, phrases and constants in a text, also as parts of identifiers."""
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text)
    found = {word.lower() for word in re.findall(r"[A-Za-z]+", split)}
    words = {one for word in found for one in (word, word.removesuffix("s"))}
    prose = " ".join(re.sub(r"[#*]", " ", text.lower()).split())
    phrases = [phrase for phrase in PRIVATE_PHRASES if re.search(rf"\b{phrase}\b", prose)]
    return sorted({*words & PRIVATE_WORDS.keys(), *phrases, *PRIVATE_CONSTANTS.findall(text)})


def unplain(path: Path) -> list[str]:
    """The private words of a file with their replacements, without the allowed ones."""
    name = path.relative_to(ROOT).as_posix()
    found = private_words_in(path.read_text(encoding="utf-8"))
    replacements = {**PRIVATE_WORDS, **PRIVATE_PHRASES}
    return [
        f"{name}: {word!r}, write: {replacements.get(word, 'MAX_ or MIN_ with the unit')}"
        for word in found
        if (name, word) not in ALLOWED_WORDS
    ]


@pytest.fixture(scope="module")
def dev() -> ModuleType:
    spec = spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", MODULES, ids=below)
def test_every_module_has_a_docstring_whose_first_line_is_a_sentence(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring, "the module has no docstring"
    assert docstring.splitlines()[0].endswith(".")


def test_a_file_has_at_most_400_lines_or_a_reason() -> None:
    lengths = {below(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    long = {name for name, lines in lengths.items() if lines > MAX_LINES}
    assert long == set(LONG_FILES), "list a long file with its reason; remove it when it shrinks"
    assert all(LONG_FILES.values())


def dashboard_files() -> list[Path]:
    folder = SOURCE / "interfaces" / "dashboard"
    return [path for ending in ("js", "css", "html") for path in sorted(folder.rglob(f"*.{ending}"))]


def test_a_line_of_the_dashboard_has_at_most_110_characters() -> None:
    """The formatter breaks code, but neither comments nor long texts."""
    assert [
        f"{path.name}:{number}"
        for path in dashboard_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MAX_LINE_LENGTH
    ] == []


def test_a_file_of_the_dashboard_has_at_most_400_lines_and_a_folder_at_most_15_files() -> None:
    files = dashboard_files()
    assert len(files) > MAX_FILES_PER_FOLDER
    long = [path for path in files if len(path.read_text(encoding="utf-8").splitlines()) > MAX_LINES]
    assert list(map(below, long)) == []
    folders = Counter(path.parent for path in files)
    assert [below(folder) for folder, count in folders.items() if count > MAX_FILES_PER_FOLDER] == []


def test_a_folder_has_at_most_15_modules_or_a_reason() -> None:
    folders = {path.parent for path in MODULES}
    large = {below(folder) for folder in folders if len([*folder.glob("*.py")]) > MAX_FILES_PER_FOLDER + 1}
    assert large == set(LARGE_FOLDERS), "group the modules of a large folder by feature"
    assert all(LARGE_FOLDERS.values())


def test_no_module_or_folder_has_a_vague_name() -> None:
    assert [below(path) for path in MODULES if path.stem.split("_")[-1] in VAGUE_NAMES] == []
    assert [below(path) for path in MODULES if VAGUE_NAMES.intersection(path.relative_to(SOURCE).parts)] == []


def test_every_file_uses_plain_words() -> None:
    files = [path for path in project_files() if path != Path(__file__).resolve()]
    assert [line for path in files for line in unplain(path)] == []


def test_the_name_of_a_test_is_a_promise_with_a_subject() -> None:
    vague = re.compile(r"def (test_(?:what|whether|whoever)_\w+)")
    tests = (ROOT / "tests").rglob("*.py")
    assert [name for path in tests for name in vague.findall(path.read_text(encoding="utf-8"))] == []


def test_an_allowed_word_has_a_reason_and_is_still_used() -> None:
    assert all(ALLOWED_WORDS.values())
    for name, word in ALLOWED_WORDS:
        assert word in private_words_in((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def take_room(): ...", ["room"]),
        ("class FileEars:", ["ear"]),
        ("MOST_ROWS = 5", ["MOST_ROWS"]),
        ("# at most so\n# many rows", ["so many"]),
        ("Nobody's key", ["nobody's"]),
        ("a mushroom, a warehouse, an eventual year", []),
    ],
)
def test_private_words_are_found_in_names_and_prose(text: str, words: list[str]) -> None:
    assert private_words_in(text) == words


def test_the_source_has_no_type_ignore() -> None:
    assert [below(path) for path in MODULES if "type: ignore" in path.read_text(encoding="utf-8")] == []


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    skip = re.compile(r"pytest\.(?:skip|xfail|importorskip)\(|mark\.(?:skip|skipif|xfail)\b|unittest\.skip")
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__).resolve()]
    assert [path.name for path in tests if skip.search(path.read_text(encoding="utf-8"))] == []


def test_no_test_imports_from_another_test_module() -> None:
    importing = re.compile(r"^\s*(?:from|import) tests(?:\.\w+)*\.test_\w+", re.MULTILINE)
    tests = (ROOT / "tests").rglob("*.py")
    assert [path.name for path in tests if importing.search(path.read_text(encoding="utf-8"))] == []


def test_every_error_is_in_the_tree_of_the_docstring_under_its_parent() -> None:
    parents = {kind.__name__: kind.__bases__[0].__name__ for kind in error_types()}
    del parents["TimewrightError"]
    assert parse_tree(errors.__doc__ or "") == parents


def parse_tree(drawing: str) -> dict[str, str]:
    """Read a drawn tree: each name with the name of its parent."""
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


def test_every_error_has_its_own_code() -> None:
    codes = [kind.code for kind in error_types()]
    assert len(codes) == len(set(codes))


def test_the_public_names_are_pinned_and_sorted() -> None:
    public = importlib.import_module("timewright").__all__
    assert list(public) == sorted(public)
    assert list(public) == PUBLIC_NAMES


def test_every_public_name_has_a_docstring() -> None:
    package = importlib.import_module("timewright")
    things = {name: getattr(package, name) for name in PUBLIC_NAMES}
    documented = {name: thing for name, thing in things.items() if inspect.isclass(thing) or callable(thing)}
    assert [name for name, thing in documented.items() if not (thing.__doc__ or "").strip()] == []


def test_importing_the_package_imports_no_interface_and_no_extra() -> None:
    probe = "import sys, timewright; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=SOURCE.parent
    )
    assert HEAVY.intersection(done.stdout.split()) == set()


def test_the_version_is_written_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    literal = re.compile(rf"""["']{re.escape(project["version"])}["']""")
    assert [below(path) for path in MODULES if literal.search(path.read_text(encoding="utf-8"))] == []


def test_the_changelog_has_an_unreleased_section() -> None:
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_constraints_are_package_versions_only() -> None:
    pin = re.compile(r"[a-z0-9][a-z0-9.-]*==[A-Za-z0-9.+!-]+(?: ; [^:@]+)?")
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    odd = [line for line in lines if not line.startswith("#") and not pin.fullmatch(line)]
    assert odd == []
    assert len(lines) > 50


def test_no_file_contains_a_package_index_or_a_home_directory() -> None:
    found: list[str] = []
    for path in project_files():
        if path == Path(__file__).resolve():
            continue
        text = path.read_text(encoding="utf-8")
        found += [
            f"{path.relative_to(ROOT)}: {match}"
            for rule in (HOME_PATH, INDEX)
            for match in rule.findall(text)
        ]
    assert found == []


def test_every_command_in_the_pages_exists(dev: ModuleType) -> None:
    shown = {
        name for page in pages() for name in re.findall(r"dev\.py ([a-z]+)", page.read_text(encoding="utf-8"))
    }
    assert {"up", "test"} <= shown
    assert shown <= set(dev.COMMANDS)


def test_the_makefile_has_the_same_commands(dev: ModuleType) -> None:
    found = re.search(r"^COMMANDS := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert found[1].split() == list(dev.COMMANDS)


def test_the_list_of_commands_has_a_line_for_each(dev: ModuleType) -> None:
    done = subprocess.run([sys.executable, ROOT / "dev.py"], capture_output=True, text=True, check=True)
    rows = re.findall(r"^  ([a-z]+) +(\S.*\.)$", done.stdout, re.MULTILINE)
    assert [name for name, _ in rows] == list(dev.COMMANDS)


def test_an_unknown_command_is_refused_with_the_closest_one() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "dev.py", "tset"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "python3 dev.py test" in done.stderr


def test_the_build_runs_the_same_command_as_a_developer() -> None:
    run = ROOT / ".ci" / "run"
    assert run.read_text(encoding="utf-8").splitlines()[-1] == "exec python3 dev.py test"
    assert run.stat().st_mode & 0o111


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80), ("example.invalid", 80)])
def test_a_test_cannot_connect_to_another_machine(address: tuple[str, int]) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as sock, pytest.raises(AssertionError, match="this machine only"):
        sock.connect(address)


def test_a_test_can_connect_to_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sock:
        sock.connect(server.getsockname())
        assert sock.getpeername() == server.getsockname()


def test_a_class_name_stands_for_one_thing() -> None:
    """A name that two packages use for two things makes a reader guess."""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).add(str(path.relative_to(SOURCE)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
