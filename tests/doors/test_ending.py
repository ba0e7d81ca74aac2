"""The wish to end is heard whenever it is said, also by a handler that interrupts whoever waits for it."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from timewright.doors.ending import Ending


@pytest.mark.parametrize("step", range(8))
def test_it_may_be_said_at_any_step_of_waiting_for_it(step: int) -> None:
    ending = Ending()
    left = step

    def interrupt(_frame: FrameType, event: str, _value: Any) -> Any:
        nonlocal left
        if event == "line":
            if left == 0:
                ending.say()
            left -= 1
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        while not ending.is_near(within=0.001):
            continue
    finally:
        sys.settrace(before)
    assert left < 0
    assert ending.is_near(), "it stays said"


def test_it_may_be_said_by_another_thread() -> None:
    ending = Ending()
    assert not ending.is_near(within=0)
    threading.Thread(target=ending.say).start()
    assert ending.is_near(within=60)
