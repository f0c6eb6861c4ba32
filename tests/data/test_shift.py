"""Features that differ by client: the map is the client's own, and training and test rows share it."""

from typing import Any

import numpy as np
import pytest

from homeward.core.errors import BadData, BadSetting
from homeward.data.shift import shifted

ROWS = np.random.default_rng(0).normal(size=(60, 7))
OWNER = np.arange(60) % 3
IDS = ("c000", "c001", "c002")
each_kind = pytest.mark.parametrize("kind", ["offset", "rotation", "affine"])


@each_kind
def test_no_strength_is_no_shift(kind: str) -> None:
    assert np.array_equal(shifted(ROWS, OWNER, IDS, 0, 0.0, kind), ROWS)


@each_kind
def test_test_rows_are_shifted_as_training_rows_are(kind: str) -> None:
    together = shifted(ROWS, OWNER, IDS, 0, 0.7, kind)
    alone = shifted(ROWS[OWNER == 2], np.zeros(20, int), ("c002",), 0, 0.7, kind)
    assert np.array_equal(together[OWNER == 2], alone)


@each_kind
def test_rows_of_nobody_stay_and_arguments_are_not_written_to(kind: str) -> None:
    x, owner = ROWS.copy(), np.where(OWNER == 1, -1, OWNER)
    x.flags.writeable = owner.flags.writeable = False
    moved = shifted(x, owner, IDS, 0, 0.7, kind)
    assert np.array_equal(moved[OWNER == 1], ROWS[OWNER == 1])
    assert not np.isclose(moved[OWNER != 1], ROWS[OWNER != 1]).all(axis=1).any()


@each_kind
def test_seed_and_client_choose_the_map(kind: str) -> None:
    one = np.tile(ROWS[:1], (3, 1))
    moved = shifted(one, [0, 1, 2], IDS, 0, 0.7, kind)
    assert len(np.unique(moved.round(12), axis=0)) == 3
    assert not np.allclose(moved, shifted(one, [0, 1, 2], IDS, 1, 0.7, kind))


def test_an_offset_moves_a_client_as_one_and_grows_with_its_strength() -> None:
    move = shifted(ROWS, OWNER, IDS, 0, 1.0, "offset") - ROWS
    assert np.ptp(move[OWNER == 0], axis=0).max() < 1e-12
    assert np.allclose(shifted(ROWS, OWNER, IDS, 0, 3.0, "offset") - ROWS, 3 * move)
    wide = shifted(np.zeros((2, 20_000)), [0, 1], IDS, 0, 1.0, "offset")
    assert np.allclose(wide.std(axis=1), 1, atol=0.02)
    assert np.allclose(wide.mean(axis=1), 0, atol=0.03)


@pytest.mark.parametrize("strength", [0.01, 0.5, 1.0])
def test_a_rotation_keeps_all_products_of_a_clients_rows(strength: float) -> None:
    moved = shifted(ROWS, OWNER, IDS, 0, strength, "rotation")
    for mine in (OWNER == 0, OWNER == 1, OWNER == 2):
        assert np.allclose(moved[mine] @ moved[mine].T, ROWS[mine] @ ROWS[mine].T)
    assert np.linalg.norm(moved - ROWS, axis=1).max() <= strength * np.pi * np.linalg.norm(ROWS, axis=1).max()


def test_affine_is_the_rotation_and_then_the_offset() -> None:
    turned = shifted(ROWS, OWNER, IDS, 0, 0.7, "rotation")
    assert np.array_equal(shifted(ROWS, OWNER, IDS, 0, 0.7, "affine"), shifted(turned, OWNER, IDS, 0, 0.7, "offset"))


def test_types_of_real_features_are_kept() -> None:
    assert shifted(ROWS.astype(np.float32), OWNER, IDS, 0, 1.0, "affine").dtype == np.float32
    assert shifted(np.ones((3, 2), int), [0, 1, 2], IDS, 0, 1.0).dtype == np.float64


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((np.zeros(3), [0, 1, 2], IDS, 0, 1.0), r"x has shape \(3,\)"),
        ((np.full((3, 1), "a"), [0, 1, 2], IDS, 0, 1.0), "rows of numbers"),
        ((ROWS, [0, 1], IDS, 0, 1.0), "for each of the 60 rows"),
        ((ROWS, OWNER + 1, IDS, 0, 1.0), "from -1 to 2"),
        ((ROWS, OWNER, IDS, 0, -1.0), "strength = -1.0, but shifted needs a finite number >= 0"),
        ((ROWS, OWNER, IDS, 0, float("nan")), "strength = nan"),
        ((ROWS, OWNER, IDS, 0, 1.0, "offsets"), "Did you mean 'offset'"),
    ],
)
def test_shifts_that_cannot_be_are_refused(arguments: Any, said: str) -> None:
    with pytest.raises((BadData, BadSetting), match=said):
        shifted(*arguments)
