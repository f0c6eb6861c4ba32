"""Statistics against scipy's, in words, and in simulations where the truth is known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from homeward.core.errors import BadData, UnknownName
from homeward.study import stats
from homeward.study.stats import Comparison, Interval, Study, against, at_once, holm, t_interval, t_test

SAMPLES = st.lists(st.floats(-1, 1).map(lambda v: round(v, 6)), min_size=2, max_size=12).filter(
    lambda v: np.ptp(v) > 1e-4
)


@given(SAMPLES)
def test_interval_and_p_are_those_of_scipy(values: list[float]) -> None:
    found, theirs = t_interval(values), scipy.stats.ttest_1samp(values, 0.0)
    low, high = theirs.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    assert t_test(values) == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)


@given(SAMPLES, st.integers(0, 2**32 - 1))
def test_a_comparison_is_the_paired_test(values: list[float], seed: int) -> None:
    a = np.array(values)
    b = np.random.default_rng(seed).normal(size=len(a))
    found = against(*({str(r): {"only": float(v)} for r, v in enumerate(x)} for x in (a, b)))
    assert found.p == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue, rel=1e-6, abs=1e-12)


def test_one_replicate_has_no_interval_and_claims_nothing() -> None:
    found = against({"p": {"c": 0.9}}, {"p": {"c": 0.1}})
    assert not found.interval.known
    assert (found.p, found.sign) == (1.0, 0)
    assert found.verdict == "not distinguishable (one partition has no interval)"


@pytest.mark.parametrize("replicates", [3, 5, 10])
def test_the_interval_covers_the_truth_as_often_as_it_says(replicates: int) -> None:
    draws = np.random.default_rng(replicates).normal(0.02, 0.01, size=(4000, replicates))
    hits = [found.low <= 0.02 <= found.high for found in map(t_interval, draws)]
    assert 0.93 <= np.mean(hits) <= 0.97


def test_five_comparisons_without_a_difference_rarely_claim_one() -> None:
    draws = np.random.default_rng(0).normal(size=(1000, 5, 6))
    claims = [any(p < 0.05 for p in holm([t_test(d) for d in five])) for five in draws]
    assert np.mean(claims) <= 0.07  # 5 % and the chance of 1000 draws; without correction it is about 23 %


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_lowers_nothing(ps: list[float]) -> None:
    found = holm(ps)
    assert all(p <= q <= 1 for p, q in zip(ps, found, strict=True))
    order = np.argsort(ps, kind="stable")
    assert np.all(np.diff(np.array(found)[order]) >= 0)
    assert min(found) == pytest.approx(min(1.0, len(ps) * min(ps)))


def test_correction_leaves_intervals_and_counts() -> None:
    one = against({str(r): {"c": 0.5 + 0.01 * r} for r in range(4)}, {str(r): {"c": 0.4} for r in range(4)})
    both = at_once({"a": one, "b": one})
    assert both["a"].interval == one.interval
    assert both["a"].gains == one.gains
    assert both["a"].p == pytest.approx(2 * one.p)


# ---- words


def found(low: float, high: float, p: float) -> Comparison:
    return Comparison(Interval((low + high) / 2, low, high, 5), p, (0.1, -0.1, 0.0))


@pytest.mark.parametrize(
    ("low", "high", "p", "verdict"),
    [
        (0.012, 0.0204, 0.001, "better by 1.2 to 2.0 points"),
        (-0.0204, -0.012, 0.001, "worse by 1.2 to 2.0 points"),
        (-0.003, 0.0021, 0.4, "not distinguishable (−0.3 to +0.2 points)"),
        (0.0002, 0.0104, 0.04, "better by 0.02 to 1.04 points"),
        (0.00001, 0.0104, 0.04, "better by up to 1.0 points"),
        (0.001, 0.02, 0.08, "not distinguishable (+0.1 to +2.0 points uncorrected)"),
        (0.0, 0.0, 1.0, "not distinguishable (0.0 to 0.0 points)"),
        (-0.00001, 0.0, 1.0, "not distinguishable (0.0 to 0.0 points)"),
    ],
)
def test_verdicts_in_words(low: float, high: float, p: float, verdict: str) -> None:
    assert found(low, high, p).verdict == verdict


def test_who_is_helped_and_hurt_is_counted_but_for_rounding() -> None:
    gains = (0.1, 0.2, -0.1, 0.0, 1e-12, -1e-12)
    counted = Comparison(t_interval(gains), 1.0, gains)
    assert (counted.helped, counted.hurt, counted.same) == (2, 1, 3)


# ---- from rows


def test_both_means_differ_by_the_covariance_with_size() -> None:
    draw = np.random.default_rng(1)
    sizes, values = draw.integers(1, 50, size=9), draw.random(9)
    clients, rows = ({str(k): float(v) for k, v in enumerate(x)} for x in (values, sizes))
    gap = stats.row_mean(clients, rows) - stats.client_mean(clients)
    assert gap == pytest.approx(np.cov(sizes, values, bias=True)[0, 1] / sizes.mean())


def test_percentile_and_worst() -> None:
    clients = {str(k): v for k, v in enumerate(np.random.default_rng(2).random(17))}
    assert stats.tenth(clients) == pytest.approx(np.percentile(list(clients.values()), 10))
    assert stats.worst(clients) == min(clients.values())


def test_seeds_on_one_partition_are_one_replicate(rows: list[dict[str, Any]]) -> None:
    again = [{**r, "seed": 1, "value": r["value"] + 0.02 * (r["metric"] == "accuracy")} for r in rows]
    one, two = Study(rows).standing("apfl"), Study(rows + again).standing("apfl")
    assert two.mean.replicates == one.mean.replicates == 5
    assert two.mean.mean == pytest.approx(one.mean.mean + 0.01)


def test_pairs_are_of_the_same_partition_and_client(build: Callable[..., list[dict[str, Any]]]) -> None:
    def hard(method: str, model: str, partition: int, client: int) -> float:
        return 0.1 * partition + 0.05 * client + 0.01 * (method == "apfl")  # partitions differ more than methods

    comparison = Study(build(hard)).standing("apfl").local
    assert comparison is not None
    assert comparison.verdict == "better by 1.0 to 1.0 points"


def test_order_of_rows_decides_nothing_but_the_order_of_methods(rows: list[dict[str, Any]]) -> None:
    shuffled = [rows[i] for i in np.random.default_rng(3).permutation(len(rows))]
    headline = {m: Study(rows).standing(m).model for m in ("afl", "local-ridge")}
    for method, model in headline.items():
        one, two = (stats.over(stats.scores(r, method, model), stats.client_mean) for r in (rows, shuffled))
        assert (one.mean, one.low, one.high) == pytest.approx((two.mean, two.low, two.high))


def test_a_standing_says_all(study: Study) -> None:
    standing = study.standing("apfl")
    assert standing.model == "personal"
    assert standing.local is not None
    assert standing.shared is not None
    assert (standing.local.helped, standing.local.hurt) == (25, 5)
    assert standing.up == 4_000_000
    assert standing.by_row is not None
    assert standing.by_row.mean > standing.mean.mean  # larger clients are better here


def test_a_personal_model_is_measured_by_its_own_shared_one(study: Study) -> None:
    assert study.shared("apfl") == study.scores("apfl", "global")
    assert study.shared("local-ridge") == study.scores("afl")
    assert study.shared("afl") is None


def test_a_clients_training_alone_is_measured_by_nobody(study: Study) -> None:
    assert study.standing("local-ridge").local is None
    assert set(study.rivals("apfl")) == {"local-ridge", "afl"}


def test_other_splits_do_not_mix_in(rows: list[dict[str, Any]]) -> None:
    others = [{**r, "split": "train", "value": 1.0} for r in rows if r["split"] == "test"]
    assert Study(others + rows).standing("apfl").mean == Study(rows).standing("apfl").mean


def test_an_unknown_method_is_named_with_the_nearest(study: Study) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'apfl'"):
        study.scores("apfll")
    with pytest.raises(UnknownName, match="Did you mean 'apfl'"):
        study.standing("apfll")


def test_nothing_in_common_and_nothing_at_all_are_errors() -> None:
    with pytest.raises(BadData, match="nothing can be paired"):
        against({"p": {"a": 1.0}}, {"p": {"b": 1.0}})
    with pytest.raises(BadData, match="no replicate"):
        t_interval([])


def test_rows_of_one_name_and_two_settings_are_refused() -> None:
    facts = {"method": "afl", "partition": "p", "client": "a", "split": "test", "model": "global", "metric": "accuracy"}
    rows = [{**facts, "settings": {"ridge": r}, "value": 0.5} for r in (1.0, 2.0)]
    with pytest.raises(BadData, match=r"two sets of settings.*Give each a label"):
        Study(rows)
