"""`StopSignal` can be set at any time, also by a handler that interrupts `wait`."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from timewright.interfaces.python.stop_signal import StopSignal


@pytest.mark.parametrize("step", range(8))
def test_a_signal_handler_can_set_it_at_any_point_of_wait(step: int) -> None:
    ending = StopSignal()
    left = step

    def interrupt(_frame: FrameType, event: str, _value: Any) -> Any:
        nonlocal left
        if event == "line":
            if left == 0:
                ending.set()
            left -= 1
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        while not ending.wait(timeout_s=0.001):
            continue
    finally:
        sys.settrace(before)
    assert left < 0
    assert ending.wait(), "it stays said"


def test_another_thread_can_set_it() -> None:
    ending = StopSignal()
    assert not ending.wait(timeout_s=0)
    threading.Thread(target=ending.set).start()
    assert ending.wait(timeout_s=60)
