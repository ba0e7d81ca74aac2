"""The import contracts hold, and each forbidden import breaks its contract."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.project import ROOT, SOURCE

CONTRACTS = [
    contract["name"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
]
LAYERS, WIRING_ONLY, PURE_CORE, THROUGH_OPERATIONS, SQL_IN_STORES = CONTRACTS


class ForbiddenImport(NamedTuple):
    """A file that is added to a copy of the source, and the contract that it breaks."""

    name: str
    path: str
    text: str
    contract: str


FORBIDDEN = [
    ForbiddenImport("core reads the clock", "core/probe.py", "import time\n", PURE_CORE),
    ForbiddenImport("core reads the environment", "core/probe.py", "from os import environ\n", PURE_CORE),
    ForbiddenImport(
        "core imports threading inside a function",
        "core/probe.py",
        "def f():\n    import threading\n",
        PURE_CORE,
    ),
    ForbiddenImport("core imports ledger", "core/probe.py", "from timewright import ledger\n", LAYERS),
    ForbiddenImport("ledger imports engine", "ledger/probe.py", "import timewright.engine\n", LAYERS),
    ForbiddenImport("engine imports operations", "engine/probe.py", "import timewright.operations\n", LAYERS),
    ForbiddenImport("ledger imports stores", "ledger/probe.py", "import timewright.stores\n", LAYERS),
    ForbiddenImport("verification imports core", "verification/probe.py", "import timewright.core\n", LAYERS),
    ForbiddenImport("a package without a layer", "utils/__init__.py", "", LAYERS),
    ForbiddenImport(
        "planner names a store", "planner/probe.py", "from timewright.stores import probe\n", WIRING_ONLY
    ),
    ForbiddenImport(
        "an interface names a target", "interfaces/probe.py", "import timewright.targets\n", WIRING_ONLY
    ),
    ForbiddenImport(
        "an interface imports ledger", "interfaces/probe.py", "import timewright.ledger\n", THROUGH_OPERATIONS
    ),
    ForbiddenImport(
        "planner imports engine", "planner/probe.py", "import timewright.engine\n", THROUGH_OPERATIONS
    ),
    ForbiddenImport("engine imports a SQL driver", "engine/probe.py", "import apsw\n", SQL_IN_STORES),
    ForbiddenImport(
        "an interface imports a SQL driver", "interfaces/probe.py", "import psycopg\n", SQL_IN_STORES
    ),
]
ALLOWED = {
    "testing/probe.py": "import timewright.engine\nimport timewright.stores\nimport timewright.targets\n",
    "interfaces/probe.py": "import timewright.operations\nimport timewright.planner\n",
    "stores/probe.py": "import apsw\nimport timewright.core\n",
    "engine/probe.py": "import time\nimport timewright.ledger\n",
    "core/probe.py": "import zoneinfo\nimport timewright.errors\n",
}
PACKAGES = (
    "engine",
    "interfaces",
    "ledger",
    "operations",
    "planner",
    "stores",
    "targets",
    "testing",
    "verification",
)


@pytest.fixture
def copied_project(tmp_path: Path) -> Path:
    """A copy of the source with an empty module `probe` in every package."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(SOURCE, tmp_path / "src" / "timewright", ignore=shutil.ignore_patterns("__pycache__"))
    for package in PACKAGES:
        for name in ("__init__.py", "probe.py"):
            add(tmp_path, f"{package}/{name}", "")
    return tmp_path


def add(project: Path, path: str, text: str) -> None:
    file = project / "src" / "timewright" / path
    file.parent.mkdir(exist_ok=True)
    if text or not file.exists():
        file.write_text(text, encoding="utf-8")


def lint(project: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of a copy. Its own source comes before the installed one."""
    environment = {**os.environ, "PYTHONPATH": str(project / "src"), "COLUMNS": "200", "NO_COLOR": "1"}
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_the_source_keeps_every_contract() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout
    assert f"{len(CONTRACTS)} kept, 0 broken" in done.stdout


def test_imports_from_lower_layers_are_allowed(copied_project: Path) -> None:
    for path, text in ALLOWED.items():
        add(copied_project, path, text)
    done = lint(copied_project)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("forbidden", FORBIDDEN, ids=lambda forbidden: forbidden.name)
def test_a_forbidden_import_breaks_its_contract(copied_project: Path, forbidden: ForbiddenImport) -> None:
    add(copied_project, forbidden.path, forbidden.text)
    done = lint(copied_project)
    assert done.returncode != 0
    assert f"{forbidden.contract} BROKEN" in done.stdout


def test_every_contract_has_a_forbidden_import() -> None:
    assert {forbidden.contract for forbidden in FORBIDDEN} == set(CONTRACTS)


READS_TIME_OR_RANDOM = [
    "from datetime import UTC, datetime\n\nNOW = datetime.now(UTC)\n",
    "import time\n\nNOW = time.time()\n",
    "import time\n\ntime.sleep(1)\n",
    "import random\n\nLUCK = random.choice([1, 2])\n",
]


def is_banned(text: str, *, path: str) -> bool:
    command = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--stdin-filename", path, "-"]
    done = subprocess.run(command, input=text, cwd=ROOT, capture_output=True, text=True, check=False)
    return "TID251" in done.stdout


@pytest.mark.parametrize("text", READS_TIME_OR_RANDOM)
def test_only_the_clocks_module_reads_the_time_or_random_numbers(text: str) -> None:
    assert is_banned(text, path="src/timewright/core/probe.py")
    assert is_banned(text, path="src/timewright/engine/probe.py")
    assert not is_banned(text, path="src/timewright/clocks.py")
