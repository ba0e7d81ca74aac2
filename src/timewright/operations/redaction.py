"""Takes secrets out of what is written down: by the values this process has revealed, and by names."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from timewright.core.telling_names import hide_named

MOST_VALUES = 10_000
SHORTEST_VALUE = 4


class Redaction:
    """Knows the values that were revealed here, and hides them; safe from any thread."""

    def __init__(self, *, most: int = MOST_VALUES) -> None:
        self._most = most
        self._known: OrderedDict[str, str] = OrderedDict()
        self._guard = threading.Lock()

    def learn(self, name: str, value: str) -> None:
        """Remember a value that was revealed, as it is and as others spell it; the oldest are forgotten."""
        spelled = {value, json.dumps(value)[1:-1], quote(value, safe=""), *value.splitlines()}
        with self._guard:
            for one in spelled:
                if len(one.strip()) >= SHORTEST_VALUE:
                    self._known[one] = name
                    self._known.move_to_end(one)
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def text(self, text: str) -> str:
        """A text for people: without known values, and without what follows a telling name."""
        return hide_named(self._without_values(text))

    def data(self, data: Any) -> Any:
        """Data that programs go on with: without known values, and otherwise as it was."""
        if isinstance(data, str):
            return self._without_values(data)
        if isinstance(data, Mapping):
            return {key: self.data(value) for key, value in data.items()}
        return [self.data(one) for one in data] if isinstance(data, list | tuple) else data

    def _without_values(self, text: str) -> str:
        with self._guard:
            known = [(value, name) for value, name in self._known.items() if value in text]
        for value, name in sorted(known, key=lambda one: -len(one[0])):
            text = text.replace(value, f"secret://{name}")
        return text
