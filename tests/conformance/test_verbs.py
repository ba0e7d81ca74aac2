"""Every verb of a store has its promises in this folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from timewright.ports import Store, Transaction

HERE = Path(__file__)
VERBS = sorted(name for name in {*dir(Transaction), *dir(Store)} if not name.startswith("_"))


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_spoken_of_in_the_suite(verb: str) -> None:
    told = "".join(path.read_text(encoding="utf-8") for path in HERE.parent.glob("test_*.py") if path != HERE)
    assert re.search(rf"\b(?:tx|store|first)\.{verb}\(", told), f"nobody says what {verb} means"
