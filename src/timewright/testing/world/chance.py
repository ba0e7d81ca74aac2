"""Chance that replays: every stream is forked from the seed by its label, and no two share a draw."""

from __future__ import annotations

import hashlib
import random


class Chance(random.Random):
    """One stream of draws; a fork of it depends on the seed and the labels, never on what was drawn."""

    def __init__(self, seed: int, label: str = "") -> None:
        self._root = seed
        self._label = label
        digest = hashlib.blake2b(f"{seed}:{label}".encode(), digest_size=8).digest()
        super().__init__(int.from_bytes(digest, "big"))

    def fork(self, label: str) -> Chance:
        """Another stream, named below this one."""
        return Chance(self._root, f"{self._label}/{label}")

    def maybe(self, share: float) -> bool:
        """Whether something happens that does so in this share of cases."""
        return share > 0 and self.random() < share

    def entropy(self, size: int) -> bytes:
        """Random bytes, for ids."""
        return self.getrandbits(size * 8).to_bytes(size, "big")

    def micros(self, low: float, high: float) -> int:
        """A length between so many seconds and so many, in microseconds."""
        return int(self.uniform(low, high) * 1_000_000)
