"""Labels as they enter: any plain column will do, and the first that is none is named."""

from typing import Any

import numpy as np
import pytest

from homeward.core.errors import BadData
from homeward.data.laws import dirichlet, iid, quantity

TEN = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 200))


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ([], "y is empty"),
        (np.zeros((3, 2), int), r"y has shape \(3, 2\), .* such as y\[:, 0\]"),
        (0, r"y has shape \(\)"),
        ([[1], [2, 3]], "row 0 is \\[1\\]"),
        (["a", None, "b"], "row 1 is None"),
        (["a", float("nan"), "b"], "row 1 is nan"),
        (["a", 1, "b"], "row 1 is 1, unlike the others"),
        ([0, 1, float("nan")], "row 2 is nan"),
        (np.array([0.0, np.inf]), "row 1 is inf"),
        (np.array([0.0, 1.5]), "row 1 is 1.5: real numbers, but classes are needed.* or use the law iid"),
        (np.array([0.0, 2.0**70]), "row 1 is 1.18.*: real numbers"),
        (np.array(["2020-01-01"], "M8[D]"), "values of type datetime64"),
        ([2**70, 1], "values of type object"),
        ([2**63, 2**63 + 1], "values of type uint64, .* smaller whole numbers"),
    ],
)
def test_labels_that_are_none_are_refused_with_their_place(y: Any, said: str) -> None:
    with pytest.raises(BadData, match=said):
        dirichlet(y, clients=2, alpha=1.0)


def test_real_numbers_that_are_whole_are_labels() -> None:
    whole, part = dirichlet(TEN.astype(np.float32), clients=4, alpha=0.5), dirichlet(TEN, clients=4, alpha=0.5)
    assert whole.hash == part.hash
    assert part.match(TEN.astype(float)).hash == part.match(TEN).hash


@pytest.mark.parametrize("law", [iid, quantity])
def test_laws_that_need_no_classes_take_real_numbers_for_targets(law: Any) -> None:
    assert len(law(TEN.astype(float), clients=4).labels) == 0
    assert len(law(TEN, clients=4).labels) == 10
