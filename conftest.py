"""What tests and doctests find ready: the names of the docs' examples, and the folder of data that is shared between checkouts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import homeward as hw
from homeward.core.linalg import solve_ridge
from homeward.core.rng import rng_for
from homeward.engine.carry import carry
from homeward.engine.inprocess import InProcess

SHARED = Path(__file__).parents[1] / "shared" / "data"

# The same examples on every run, and no time limit: machines are shared. To look further: --hypothesis-profile=explore.
settings.register_profile("homeward", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("homeward")


def toy_federation() -> hw.Federation:
    """Three clients of a dozen rows in 4 columns and 3 classes; 'c' has no row of the last class."""
    owner = np.repeat(["a", "b", "c"], 12)
    y = np.arange(36) % 3
    y[24:] %= 2
    x = (2.0 * rng_for("toy").uniform(36 * 4) - 1.0).reshape(36, 4)
    x[np.arange(36), y] += 1.0
    return hw.Federation.from_arrays(x, y, owner)


@pytest.fixture(scope="session")
def toy() -> hw.Federation:
    """A small federation that is the same everywhere."""
    return toy_federation()


@pytest.fixture(autouse=True, scope="session")
def names_of_examples(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace |= {
        "np": np,
        "hw": hw,
        "fit": hw.fit,
        "toy": toy_federation(),
        "carry": carry,
        "InProcess": InProcess,
        "solve_ridge": solve_ridge,
    }


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder `../shared/data` beside the checkout: real images and features that are not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"there is no folder {SHARED}: its data is not part of the repository")
    return SHARED


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever reads the shared data is marked so."""
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared)
