"""Random feature maps x -> act(x P) that every client on every platform draws alike, from a short key.

P is uniform in [-1/sqrt(d), 1/sqrt(d)], from raw 64-bit words of NumPy's Philox (a fixed algorithm, not a Generator's distribution,
whose stream may change between versions), keyed by the seed, the stream, the shape and the law.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import array_api_compat
import numpy as np
import scipy.special
from numpy.typing import NDArray

from .algebra import Array, namespace
from .linalg import any_array

LAW = "uniform"


def _erf(x: Array) -> Array:
    if array_api_compat.is_torch_array(x):
        return x.erf()
    return scipy.special.erf(x)


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + namespace(x).tanh(0.5 * x))  # no overflow at either end


def _relu(x: Array) -> Array:
    return namespace(x).clip(x, min=0.0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": _relu,
    "leaky-relu": lambda x: namespace(x).where(x > 0, x, 0.01 * x),
    "identity": lambda x: x,
    "gelu": lambda x: 0.5 * x * (1.0 + _erf(x * 2.0**-0.5)),
    "tanh": lambda x: namespace(x).tanh(x),
    "sigmoid": _sigmoid,
    "hardswish": lambda x: x * namespace(x).clip(x + 3.0, min=0.0, max=6.0) / 6.0,
    "softshrink": lambda x: _relu(x - 0.5) - _relu(-x - 0.5),
}
"""The eight activations of the APFL paper's list. The first three keep a common factor of all features a common factor."""


@lru_cache(maxsize=16)
def _matrix(seed: int, stream: str, inputs: int, width: int) -> NDArray[np.float64]:
    key = hashlib.blake2b(f"homeward map 1|{seed}|{stream}|{inputs}x{width}|{LAW}".encode(), digest_size=16).digest()
    words = np.random.Philox(key=int.from_bytes(key, "little")).random_raw(inputs * width)
    unit = (np.asarray(words, dtype=np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    p: NDArray[np.float64] = ((2.0 * unit - 1.0) / np.sqrt(inputs)).reshape(inputs, width)
    p.setflags(write=False)
    return p


@dataclass(frozen=True)
class RandomMap:
    """act(x P), with P drawn from (seed, stream, shape, law).

    >>> RandomMap(0, "primary", 3, 2, "identity")(np.ones((1, 3))).round(6)
    array([[-0.616625, -0.553854]])
    """

    seed: int
    stream: str
    inputs: int
    width: int
    activation: str = "relu"

    @property
    def matrix(self) -> NDArray[np.float64]:
        """P, read-only. (inputs, width)"""
        return _matrix(self.seed, self.stream, self.inputs, self.width)

    @property
    def hash(self) -> str:
        """Of the bytes of P and the activation: two sites must agree on it."""
        digest = hashlib.sha256(self.matrix.tobytes())
        digest.update(self.activation.encode())
        return digest.hexdigest()

    def __call__(self, x: Array) -> Array:
        """Rows through the map, in the precision of x. (n, width)"""
        p = namespace(x).astype(any_array(self.matrix, like=x), x.dtype)
        return ACTIVATIONS[self.activation](x @ p)
