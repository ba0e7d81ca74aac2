"""Every method of the store interface has a test in this folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from timewright.ports import Store, Transaction

FOLDER = Path(__file__).parent.parent
METHODS = sorted(name for name in {*dir(Transaction), *dir(Store)} if not name.startswith("_"))


@pytest.fixture(scope="module")
def suite() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*/test_*.py"))


@pytest.mark.parametrize("method", METHODS)
def test_every_store_method_is_called_by_a_test(method: str, suite: str) -> None:
    assert re.search(rf"\b(?:tx|store|first)\.{method}\(", suite), f"no test calls {method}"
