"""Remove secrets from output: by the values this process has decrypted, and by field names."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from timewright.core.sensitive_keys import redact_text

MAX_VALUES = 10_000
MIN_VALUE_CHARS = 4


class SecretRedactor:
    """Knows the secret values that this process decrypted, and replaces them; thread-safe."""

    def __init__(self, *, max_values: int = MAX_VALUES) -> None:
        self._max_values = max_values
        self._known: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def add_secret(self, name: str, value: str) -> None:
        """Remember a secret value, also as JSON, URL-encoded and by lines; the oldest are dropped."""
        forms = {value, json.dumps(value)[1:-1], quote(value, safe=""), *value.splitlines()}
        with self._lock:
            for one in forms:
                if len(one.strip()) >= MIN_VALUE_CHARS:
                    self._known[one] = name
                    self._known.move_to_end(one)
            while len(self._known) > self._max_values:
                self._known.popitem(last=False)

    def redact_text(self, text: str) -> str:
        """Return a text without known values, and without values after names like `password=`."""
        return redact_text(self._without_values(text))

    def redact_data(self, data: Any) -> Any:
        """Return data without known values, and otherwise unchanged."""
        if isinstance(data, str):
            return self._without_values(data)
        if isinstance(data, Mapping):
            return {key: self.redact_data(value) for key, value in data.items()}
        return [self.redact_data(one) for one in data] if isinstance(data, list | tuple) else data

    def _without_values(self, text: str) -> str:
        with self._lock:
            known = [(value, name) for value, name in self._known.items() if value in text]
        for value, name in sorted(known, key=lambda one: -len(one[0])):
            text = text.replace(value, f"secret://{name}")
        return text
