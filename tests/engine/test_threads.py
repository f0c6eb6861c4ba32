"""Several clients side by side give the bits that each gives alone."""

import os
import subprocess
import sys

from homeward.engine.threads import blas_threads, side_by_side

CHILD = """
import numpy as np
import homeward as hw
from homeward.engine.threads import blas_threads, side_by_side
assert blas_threads() == 2
rng = np.random.default_rng(0)
y = np.arange(900) % 3
federation = hw.Federation.from_arrays(rng.normal(size=(900, 30)) + y[:, None], y, np.repeat(["a", "b", "c"], 300))
at_once, alone = (hw.fit(hw.APFL(maps=200), federation) for _ in range(2))
at_once.compute()
for client in reversed(alone.ids):
    x = federation.clients[client].x
    assert np.array_equal(alone.model(client).decision_function(x), at_once.model(client).decision_function(x))
with side_by_side(3) as each:
    assert blas_threads() == 1 and each is not map
    assert list(each(lambda i: i * i, range(9))) == [i * i for i in range(9)]
with side_by_side(1) as each:
    assert blas_threads() == 2 and each is map
assert blas_threads() == 2
print("same")
"""


def test_models_computed_side_by_side_are_those_computed_one_by_one():
    two = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", CHILD], env=two, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "same", done.stderr


def test_with_one_thread_there_is_no_pool():
    with side_by_side(5) as each:
        assert (each is map) == (blas_threads() < 2)
