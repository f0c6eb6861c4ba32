"""A Run: models, rows, and resuming in another process."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import homeward as hw
from homeward.core.errors import Pending
from homeward.testing import toy


def test_rows_say_where_they_come_from():
    run = hw.fit(hw.APFL(maps=8), toy().holdout(0.3, 0.2), seed=4)
    rows = run.scores()
    assert {r["split"] for r in rows} == {"test", "val"} and {r["model"] for r in rows} == {"personal", "global"}
    assert set(rows[0]) == {
        "data", "partition", "method", "settings", "seed", "round", "client", "split", "model", "slot", "metric", "value",
    }  # fmt: skip
    assert (
        rows[0]["method"] == "apfl"
        and rows[0]["settings"]["maps"] == 8
        and rows[0]["seed"] == 4
        and rows[0]["round"] == 1
    )
    assert all(r["metric"] == "accuracy" and 0 <= r["value"] <= 1 for r in rows)


def test_scores_are_what_the_models_score():
    federation = toy().holdout(0.3)
    run = hw.fit(hw.FedHiP(), federation)
    data = federation.tests["a"]
    by_hand = float((run.model("a").predict(data.x) == data.task.labels[data.y]).mean())
    assert [r["value"] for r in run.scores("test") if r["client"] == "a" and r["model"] == "personal"] == [by_hand]


@pytest.mark.parametrize(("kind", "metric"), [("real", "r2"), ("multilabel", "subset_accuracy")])
def test_other_targets_have_their_own_metric(kind, metric):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4))
    y = x @ rng.normal(size=(4, 2))
    groups = np.repeat(["a", "b", "c"], 30)
    federation = hw.Federation.from_arrays(x, y if kind == "real" else (y > 0).astype(int), groups, task=kind)
    rows = hw.fit(hw.APFL(maps=32), federation).scores()
    assert {r["metric"] for r in rows} == {metric} and np.mean([r["value"] for r in rows]) > 0.6


def test_leave_one_out_is_a_split_of_its_own():
    rows = hw.fit(hw.APFL(maps=16, joint=True), toy()).scores("loo")
    assert {r["model"] for r in rows} == {"personal", "global"} and {r["split"] for r in rows} == {"loo"}
    assert hw.fit(hw.AFL(), toy()).scores("loo") == []


CHILD = """
import os, sys
import homeward as hw
from homeward.testing import toy
rounds = []
def die(what, done, of):
    rounds.append(what)
    if what == "tally-tau" and done == 3:
        os._exit(9)
hw.fit(hw.standardised(hw.LogPrior(maps=16)), toy(), seed=5, checkpoint=sys.argv[1], notice=die)
"""


def test_a_process_killed_in_the_third_round_is_resumed_by_another_to_the_same_bits(tmp_path):
    method = hw.standardised(hw.LogPrior(maps=16))
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path / "run")], check=False)
    assert killed.returncode == 9
    half = hw.load_run(tmp_path / "run", federation=toy())
    assert half.progress.done == 2 and half.pending == half.ids
    with pytest.raises(Pending):
        half.model("a")
    again = hw.fit(method, toy(), seed=5, checkpoint=tmp_path / "run", resume=True)
    whole = hw.fit(method, toy(), seed=5)
    x = toy().pooled.x
    for client in whole.ids:
        assert np.array_equal(whole.model(client).decision_function(x), again.model(client).decision_function(x))
    assert again.traffic == whole.traffic


def test_a_finished_run_resumes_to_itself(tmp_path):
    first = hw.fit(hw.AFL(), toy(), checkpoint=tmp_path / "run")
    again = hw.fit(hw.AFL(), toy(), checkpoint=tmp_path / "run", resume=True)
    assert again.traffic == first.traffic and again.progress.done == 1


def test_adding_an_evaluation_changes_nothing():
    federation = toy().holdout(0.3)
    quiet, curious = (hw.fit(hw.APFL(maps=16), federation, seed=1) for _ in range(2))
    curious.scores("train"), curious.scores("loo"), curious.scores("test")
    x = toy().pooled.x
    assert np.array_equal(quiet.model("a").decision_function(x), curious.model("a").decision_function(x))


def test_poisoned_test_labels_move_nothing_but_the_score():
    federation = toy().holdout(0.3)
    tests = {n: type(d)(d.task, d.x, (d.y + 1) % 3, d.weight) for n, d in federation.tests.items()}
    poisoned = hw.Federation(federation.task, federation.clients, tests)
    for method in (hw.APFL(maps=16), hw.LogPrior(maps=16), hw.FedHiP(form="blend")):
        a, b = hw.fit(method, federation), hw.fit(method, poisoned)
        x = toy().pooled.x
        assert all(np.array_equal(a.model(c).decision_function(x), b.model(c).decision_function(x)) for c in a.ids)
        assert [r["value"] for r in a.scores("test")] != [r["value"] for r in b.scores("test")]
