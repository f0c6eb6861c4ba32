"""Random maps: every client on every platform draws the same one."""

import hashlib
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeward.core.check import as_numpy
from homeward.core.maps import ACTIVATIONS, RandomMap

WORD = (1 << 64) - 1


def philox(key: int, n: int) -> list[int]:
    """Philox4x64-10 of Salmon et al. (SC 2011), in whole numbers."""
    words: list[int] = []
    for counter in itertools.count(1):
        c, k = [counter, 0, 0, 0], [key & WORD, key >> 64]
        for _ in range(10):
            a, b = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
            c = [(b >> 64) ^ c[1] ^ k[0], b & WORD, (a >> 64) ^ c[3] ^ k[1], a & WORD]
            k = [(k[0] + 0x9E3779B97F4A7C15) & WORD, (k[1] + 0xBB67AE8584CAA73B) & WORD]
        words += c
        if len(words) >= n:
            return words[:n]
    raise AssertionError


def test_golden_map() -> None:
    drawn = RandomMap(0, "primary", 3, 2)
    np.testing.assert_allclose(
        drawn.matrix.ravel(),
        [
            -0.4754496525303285,
            -0.3800140522365279,
            0.009699039712110726,
            0.1765381721939518,
            -0.1508743324481797,
            -0.35037808791657704,
        ],
        rtol=1e-15,
    )
    assert drawn.hash == "58b48abf3532f7c763634e29914127dc0c0af620c1058aea8979462b5cd24a9f"


@given(st.integers(0, 2**63), st.sampled_from(["primary", "refine"]), st.integers(1, 7), st.integers(1, 7))
def test_a_map_is_its_formula(seed: int, stream: str, d: int, r: int) -> None:
    key = hashlib.blake2b(f"homeward map 1|{seed}|{stream}|{d}x{r}|uniform".encode(), digest_size=16).digest()
    unit = [(word >> 11) / 2**53 for word in philox(int.from_bytes(key, "little"), d * r)]
    expected = np.array([(2 * u - 1) / math.sqrt(d) for u in unit]).reshape(d, r)
    np.testing.assert_array_equal(RandomMap(seed, stream, d, r).matrix, expected)


def test_the_law_is_uniform() -> None:
    d, r = 64, 2000
    p = RandomMap(5, "primary", d, r).matrix * math.sqrt(d)
    assert p.min() >= -1 and p.max() < 1
    n = p.size
    for k, moment in ((1, 0.0), (2, 1 / 3), (3, 0.0), (4, 1 / 5)):
        assert abs((p**k).mean() - moment) < 5 / math.sqrt(n)
    assert np.abs(np.corrcoef(p) - np.eye(d)).max() < 6 / math.sqrt(r)


def test_every_part_of_the_key_changes_the_whole_map() -> None:
    base = (0, "primary", 6, 8)
    others = [(1, *base[1:]), (0, "refine", 6, 8), (0, "primary", 8, 6), (0, "primary", 6, 9), (0, "primary", 7, 8)]
    maps = [RandomMap(*key) for key in (base, *others)]
    assert len({m.hash for m in maps}) == len(maps)
    for other in maps[1:]:  # also where the shape alone differs: no map is the beginning of another
        n = min(other.matrix.size, maps[0].matrix.size)
        a, b = maps[0].matrix.ravel()[:n] * math.sqrt(6), other.matrix.ravel()[:n] * math.sqrt(other.inputs)
        assert (np.abs(a - b) > 1e-6).all()
    assert RandomMap(*base, "tanh").hash != RandomMap(*base, "relu").hash


def test_a_map_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        RandomMap(0, "primary", 2, 2).matrix[0, 0] = 1.0


PLAIN: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "leaky-relu": lambda x: x if x > 0 else 0.01 * x,
    "identity": lambda x: x,
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0,
    "hardswish": lambda x: x * min(max(x + 3, 0), 6) / 6,
    "softshrink": lambda x: x - 0.5 if x > 0.5 else x + 0.5 if x < -0.5 else 0.0,
}
POINTS = np.array([*np.linspace(-7, 7, 141), 0.5, -0.5, 3.0, -3.0, -0.0, 800.0, -800.0])


def test_the_eight_are_all_there() -> None:
    assert set(PLAIN) == set(ACTIVATIONS)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.filterwarnings("error")
def test_activations_are_their_formulas(name: str) -> None:
    np.testing.assert_allclose(ACTIVATIONS[name](POINTS), [PLAIN[name](x) for x in POINTS], rtol=1e-14, atol=1e-15)
    single = ACTIVATIONS[name](POINTS.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, [PLAIN[name](float(x)) for x in POINTS], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_torch_s(name: str) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    theirs = {
        "identity": lambda x: x,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "leaky-relu": functional.leaky_relu,
    }
    for dtype, atol in ((torch.float64, 1e-14), (torch.float32, 2e-6)):
        x = torch.tensor(POINTS, dtype=dtype)
        ours = ACTIVATIONS[name](x)
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs.get(name, getattr(functional, name, None))(x), rtol=1e-5, atol=atol)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("error")
def test_rows_keep_their_precision_and_library(name: str, dtype: Any) -> None:
    drawn = RandomMap(1, "refine", 5, 9, name)
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(dtype)
    out = drawn(x)
    assert out.dtype == dtype and out.shape == (4, 9)
    np.testing.assert_array_equal(out, ACTIVATIONS[name](x @ drawn.matrix.astype(dtype)))
    torch = pytest.importorskip("torch")
    also = drawn(torch.from_numpy(x))
    assert also.dtype == torch.from_numpy(x).dtype
    np.testing.assert_allclose(as_numpy(also), out, rtol=0, atol=20 * np.finfo(dtype).eps)
