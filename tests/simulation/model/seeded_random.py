"""Reproducible randomness: each stream is forked from the seed by its label, so streams do not interfere."""

from __future__ import annotations

import hashlib
import random


class SeededRandom(random.Random):
    """One random stream; a fork depends only on the seed and the labels, not on earlier draws.

    Labels never change, even when names in the code do, because saved seeds would then mean other scenarios.
    """

    def __init__(self, seed: int, label: str = "") -> None:
        self._root = seed
        self._label = label
        digest = hashlib.blake2b(f"{seed}:{label}".encode(), digest_size=8).digest()
        super().__init__(int.from_bytes(digest, "big"))

    def fork(self, label: str) -> SeededRandom:
        """Another stream below this label."""
        return SeededRandom(self._root, f"{self._label}/{label}")

    def happens(self, probability: float) -> bool:
        """True with this probability."""
        return probability > 0 and self.random() < probability

    def random_bytes(self, size: int) -> bytes:
        """Random bytes, for ids."""
        return self.getrandbits(size * 8).to_bytes(size, "big")

    def random_micros(self, low: float, high: float) -> int:
        """A random duration between two numbers of seconds, in microseconds."""
        return int(self.uniform(low, high) * 1_000_000)
