"""Addressed randomness: the same address gives the same numbers, however often and in whatever order it is read.

An `Rng` is a 64-bit key. Its numbers are splitmix64's finaliser over key and position, in wrapping integer arithmetic, so they are
alike in pure Python, NumPy and torch, on every platform. Nothing is a stream: drawing changes nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from operator import index

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX1, _MIX2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _mixed(z: int) -> int:
    z = ((z ^ (z >> 30)) * _MIX1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX2) & _MASK
    return z ^ (z >> 31)


@lru_cache(maxsize=65536)
def _word(part: str | int) -> int:
    """A name or a number as 64 bits; an integer and its decimal string are different addresses."""
    tag = b"i" if isinstance(part, int) else b"s"
    return int.from_bytes(hashlib.blake2b(tag + str(part).encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Rng:
    """A place in the space of addresses.

    >>> rng_for(0, "train", 3, "clinic_07") == rng_for(0, "train").at(3, "clinic_07")
    True
    >>> rng_for(0).uniform(3).round(4).tolist() == rng_for(0).uniform(3).round(4).tolist()
    True
    """

    key: int

    def at(self, *where: str | int) -> Rng:
        """Another address, below this one."""
        key = self.key
        for part in where:
            key = _mixed((key + _GOLDEN + _word(part if isinstance(part, str) else int(index(part)))) & _MASK)
        return Rng(key)

    def bits(self, n: int) -> NDArray[np.uint64]:
        """n words of 64 bits. (n,)"""
        z = np.uint64(self.key) + np.uint64(_GOLDEN) * np.arange(1, n + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX2)
        return z ^ (z >> np.uint64(31))

    def uniform(self, n: int) -> NDArray[np.float64]:
        """n numbers in [0, 1). (n,)"""
        return (self.bits(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def order(self, n: int) -> NDArray[np.intp]:
        """A permutation of n rows: the argsort of their hashed numbers. (n,)"""
        return np.argsort(self.bits(n), kind="stable")

    def generator(self) -> np.random.Generator:
        """A NumPy generator that starts here, for host-side draws whose result is stored (partitions)."""
        return np.random.Generator(np.random.Philox(key=self.key))


def rng_for(*where: str | int) -> Rng:
    """The address made of these parts, such as `rng_for(seed, "train", 3, client)`."""
    return Rng(0).at(*where)
