"""The import contracts hold here, and break when someone takes a wrong step."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = [
    contract["name"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
]
STAIRS, ASSEMBLY_ONLY, PURE_CORE, THROUGH_OPERATIONS, SQL_IN_STORES = CONTRACTS


class Step(NamedTuple):
    """One file added to a copy of the source, and the contract that must notice."""

    story: str
    path: str
    text: str
    broken: str


WRONG_STEPS = [
    Step("the core reads the clock", "core/probe.py", "import time\n", PURE_CORE),
    Step("the core reads the environment", "core/probe.py", "from os import environ\n", PURE_CORE),
    Step(
        "the core starts a thread, inside a function",
        "core/probe.py",
        "def f():\n    import threading\n",
        PURE_CORE,
    ),
    Step("the core looks up to the ledger", "core/probe.py", "from timewright import ledger\n", STAIRS),
    Step("the ledger looks up to the engine", "ledger/probe.py", "import timewright.engine\n", STAIRS),
    Step("the engine looks at its neighbour", "engine/probe.py", "import timewright.operations\n", STAIRS),
    Step("the ledger looks at the stores beside it", "ledger/probe.py", "import timewright.stores\n", STAIRS),
    Step("the proof borrows from what it checks", "proof/probe.py", "import timewright.core\n", STAIRS),
    Step("a room that nobody planned", "utils/__init__.py", "", STAIRS),
    Step(
        "the planner names a store",
        "planner/probe.py",
        "from timewright.stores import probe\n",
        ASSEMBLY_ONLY,
    ),
    Step("a door names a target", "doors/probe.py", "import timewright.targets\n", ASSEMBLY_ONLY),
    Step(
        "a door reaches into the ledger", "doors/probe.py", "import timewright.ledger\n", THROUGH_OPERATIONS
    ),
    Step(
        "the planner talks to the engine",
        "planner/probe.py",
        "import timewright.engine\n",
        THROUGH_OPERATIONS,
    ),
    Step("the engine speaks SQL", "engine/probe.py", "import apsw\n", SQL_IN_STORES),
    Step("a door speaks SQL", "doors/probe.py", "import psycopg\n", SQL_IN_STORES),
]
RIGHT_STEPS = {
    "testing/probe.py": "import timewright.engine\nimport timewright.stores\nimport timewright.targets\n",
    "doors/probe.py": "import timewright.operations\nimport timewright.planner\n",
    "stores/probe.py": "import apsw\nimport timewright.core\n",
    "engine/probe.py": "import time\nimport timewright.ledger\n",
    "core/probe.py": "import zoneinfo\nimport timewright.errors\n",
}
ROOMS = ("doors", "engine", "ledger", "operations", "planner", "proof", "stores", "targets", "testing")


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the source with every room in it, also those that are still to be built."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(
        ROOT / "src" / "timewright",
        tmp_path / "src" / "timewright",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for room in ROOMS:
        for name in ("__init__.py", "probe.py"):
            add(tmp_path, f"{room}/{name}", "")
    return tmp_path


def add(house: Path, path: str, text: str) -> None:
    place = house / "src" / "timewright" / path
    place.parent.mkdir(exist_ok=True)
    if text or not place.exists():
        place.write_text(text, encoding="utf-8")


def lint(house: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of one copy: its own source comes before the installed one."""
    environment = {**os.environ, "PYTHONPATH": str(house / "src"), "COLUMNS": "200", "NO_COLOR": "1"}
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    return subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, check=False)


def test_every_contract_is_kept_by_the_house_as_it_stands() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout
    assert f"{len(CONTRACTS)} kept, 0 broken" in done.stdout


def test_every_step_down_the_stairs_is_allowed(house: Path) -> None:
    for path, text in RIGHT_STEPS.items():
        add(house, path, text)
    done = lint(house)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("step", WRONG_STEPS, ids=lambda step: step.story)
def test_a_wrong_step_is_noticed_by_its_contract(house: Path, step: Step) -> None:
    add(house, step.path, step.text)
    done = lint(house)
    assert done.returncode != 0
    assert f"{step.broken} BROKEN" in done.stdout


def test_every_contract_has_a_wrong_step_that_breaks_it() -> None:
    assert {step.broken for step in WRONG_STEPS} == set(CONTRACTS)


READS_THE_TIME = [
    "from datetime import UTC, datetime\n\nNOW = datetime.now(UTC)\n",
    "import time\n\nNOW = time.time()\n",
    "import time\n\ntime.sleep(1)\n",
    "import random\n\nLUCK = random.choice([1, 2])\n",
]


def banned(text: str, *, path: str) -> bool:
    command = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--stdin-filename", path, "-"]
    done = subprocess.run(command, input=text, cwd=ROOT, capture_output=True, text=True, check=False)
    return "TID251" in done.stdout


@pytest.mark.parametrize("text", READS_THE_TIME)
def test_only_the_clocks_read_the_time_and_nobody_throws_dice(text: str) -> None:
    assert banned(text, path="src/timewright/core/probe.py")
    assert banned(text, path="src/timewright/engine/probe.py")
    assert not banned(text, path="src/timewright/clocks.py")
