"""Joining and leaving: equal to having been there from the start, or never."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import homeward as hw
from homeward.core import wire
from homeward.core.errors import BadData, Pending
from homeward.testing import toy

METHODS = [
    hw.AFL(),
    hw.AFL(ridge="loo"),
    hw.APFL(maps=24),
    hw.APFL(maps=24, joint=True),
    hw.APFL(maps=24, share=True),
    hw.FedHiP(),
    hw.FedHiP(form="weighted"),
    hw.FedHiP(form="blend"),
    hw.LocalRidge(maps=24),
    hw.Masked(maps=24),
    hw.LogPrior(maps=24),
    hw.standardised(hw.APFL(maps=24)),
]
X = toy().pooled.x


def same(a, b, tolerance=1e-8):
    """All models of all clients agree, relative to their size."""
    assert a.ids == b.ids
    for client in a.ids:
        for slot, model in a.models(client).items():
            left, right = model.decision_function(X), b.models(client)[slot].decision_function(X)
            finite = np.isfinite(right)
            assert (finite == np.isfinite(left)).all()
            assert np.abs(left[finite] - right[finite]).max() <= tolerance * max(1.0, np.abs(right[finite]).max())


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_forget_is_never_having_been_there(method):
    same(hw.fit(method, toy()).forget("b"), hw.fit(method, toy().without("b")))


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_join_is_having_been_there_from_the_start(method):
    run = hw.fit(method, toy().without("b", "one row"))
    same(run.join(toy().only("b", "one row")), hw.fit(method, toy()))


@settings(max_examples=10, deadline=None)
@given(st.permutations(sorted(toy().clients)))
def test_clients_join_in_any_order(order):
    run = hw.fit(hw.APFL(maps=16), toy().only(order[0]))
    for client in order[1:]:
        run = run.join(toy().only(client))
    same(run, hw.fit(hw.APFL(maps=16), toy()))


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(["b", "c", "no class 2", "one class", "one row"]), unique=True, min_size=1, max_size=4))
def test_join_after_forget_restores_everything(leavers):
    run = whole = hw.fit(hw.FedHiP(), toy())
    for client in leavers:
        run = run.forget(client)
    same(run.join(toy().only(*leavers)), whole)


FORGET = """
import sys
import numpy as np
import homeward as hw
from homeward.testing import toy
run = hw.load_run(sys.argv[1])
left = run.forget("b", federation=toy().only("b"))
assert left.pending == ("a", "c", "no class 2", "one class", "one row"), left.pending
left.save(sys.argv[2])
back = hw.load_run(sys.argv[2], federation=toy().without("b"))
x = toy().pooled.x
np.savez(sys.argv[3], stranger=left.stranger.decision_function(x), a=back.model("a").decision_function(x))
"""


def test_forget_in_a_new_process_from_the_saved_run(tmp_path):
    hw.fit(hw.APFL(maps=24), toy()).save(tmp_path / "run")
    subprocess.run([sys.executable, "-c", FORGET, *(str(tmp_path / n) for n in ("run", "left", "out.npz"))], check=True)
    fresh = hw.fit(hw.APFL(maps=24), toy().without("b"))
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_allclose(found["stranger"], fresh.stranger.decision_function(X), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(found["a"], fresh.model("a").decision_function(X), rtol=1e-8, atol=1e-8)
    assert not (tmp_path / "left" / "models" / "b.safetensors").exists()


def test_a_leaver_s_message_is_enough(tmp_path):
    run = hw.fit(hw.APFL(maps=24), toy(), keep_messages=True)
    run.save(tmp_path / "run")
    fresh = hw.fit(hw.APFL(maps=24), toy().without("b"))
    kept = hw.load_run(tmp_path / "run").forget("b")
    given = hw.load_run(tmp_path / "run").forget("b", message=run.carrier.messages["b"])
    for left in (kept, given):
        np.testing.assert_allclose(left.stranger.decision_function(X), fresh.stranger.decision_function(X), atol=1e-8)
        with pytest.raises(Pending, match="federation="):
            left.model("a")


def test_with_a_second_round_the_run_is_pending_until_everyone_is_there(tmp_path):
    method = hw.LogPrior(maps=24)
    hw.fit(method, toy()).save(tmp_path / "run")
    left = hw.load_run(tmp_path / "run").forget("b", federation=toy().only("b"))
    assert left.pending == left.ids and left.stranger is None
    left.save(tmp_path / "left")
    same(hw.load_run(tmp_path / "left", federation=toy().without("b")).resume(), hw.fit(method, toy().without("b")))


def test_a_standardised_method_measures_again_or_keeps_its_scale():
    method = hw.standardised(hw.APFL(maps=24))
    run = hw.fit(method, toy())
    again, kept = run.forget("b"), run.forget("b", scale="keep")
    same(again, hw.fit(method, toy().without("b")))
    assert np.array_equal(kept.progress.server["mean"], run.progress.server["mean"])
    assert not np.array_equal(again.progress.server["mean"], run.progress.server["mean"])
    assert [r.receipts[-1]["scale"] for r in (again, kept)] == ["again", "keep"]
    same(kept.join(toy().only("b"), scale="keep"), run)


def test_a_receipt_names_the_sums_before_and_after():
    run = hw.fit(hw.AFL(), toy())
    left = run.forget("c")
    (receipt,) = left.receipts
    assert receipt["action"] == "forget" and receipt["clients"] == ["c"]
    assert receipt["sums_before"] != receipt["sums_after"] and "not that models handed out" in receipt["proves"]
    assert left.join(toy().only("c")).receipts[-1]["sums_before"] == receipt["sums_after"]


def test_other_rows_under_a_leaver_s_name_are_refused(tmp_path):
    hw.fit(hw.AFL(), toy()).save(tmp_path / "run")
    other = toy(rows=30).only("b")
    with pytest.raises(BadData, match="'b' are not those that it joined with"):
        hw.load_run(tmp_path / "run").forget("b", federation=other)


def test_newcomers_with_fewer_classes_are_looked_up_in_the_run_s():
    run = hw.fit(hw.AFL(), toy().without("no class 2"))
    data = toy().clients["no class 2"]
    newcomer = hw.Federation.from_arrays(data.x, data.y, ["no class 2"] * data.n)
    assert newcomer.task.classes == 2
    same(run.join(newcomer), hw.fit(hw.AFL(), toy()))


def test_a_message_travels_to_the_same_bytes():
    run = hw.fit(hw.AFL(), toy(), keep_messages=True)
    (message,) = run.carrier.messages["a"]
    assert wire.to_bytes(wire.from_bytes(wire.to_bytes(message))[0]) == wire.to_bytes(message)


@pytest.mark.parametrize("factor", [1e4, 1e8])
def test_a_leaver_whose_rows_dwarf_all_others_is_forgotten_as_well(factor, tmp_path):
    federation = toy()
    huge = hw.Federation.from_arrays(
        factor * federation.clients["b"].x, federation.clients["b"].y, ["b"] * 19, classes=[0, 1, 2]
    )
    run = hw.fit(hw.APFL(maps=24), federation.without("b").joined(huge))
    same(run.forget("b"), hw.fit(hw.APFL(maps=24), federation.without("b")), 1e-6)
    run.save(tmp_path / "run")
    if factor == 1e8:
        with pytest.raises(Pending, match="so much larger than all others"):
            hw.load_run(tmp_path / "run").forget("b", federation=huge)


def test_receipts_lead_from_one_to_the_next():
    for method in (hw.AFL(), hw.standardised(hw.APFL(maps=8)), hw.LogPrior(maps=8)):
        run = hw.fit(method, toy()).forget("a").forget("c").join(toy().only("a"))
        first, second, third = run.receipts
        assert first["sums_after"] == second["sums_before"] and second["sums_after"] == third["sums_before"]
        assert first["rows"] == [toy().clients["a"].hash] == third["rows"]
        assert ("b" in first["asked_again"]) == (len(method.plan()) > 1)
        assert "forgotten" in first["proves"] and "forgotten" not in third["proves"]


def test_another_client_s_message_does_not_take_this_one_out():
    run = hw.fit(hw.AFL(), toy(), keep_messages=True)
    with pytest.raises(BadData, match="not the one that 'a' sent"):
        run.forget("a", message=run.carrier.messages["b"])


def test_a_join_keeps_to_the_number_of_clients_that_was_declared(tmp_path):
    data = [toy().clients[name] for name in "abc"]
    x, y = np.concatenate([d.x for d in data]), np.concatenate([d.y for d in data])
    names = np.repeat(["a", "b", "c"], [d.n for d in data])
    here = names != "c"
    federation = hw.Federation.from_arrays(
        x[here], y[here], names[here], declare=hw.Bounds(clients=2), classes=[0, 1, 2]
    )
    hw.fit(hw.AFL(), federation).save(tmp_path / "run")
    with pytest.raises(BadData, match="declared at most 2"):
        hw.load_run(tmp_path / "run").join(toy().only("c"))


def test_a_leaver_s_rows_of_results_leave_too(tmp_path):
    hw.fit(hw.LogPrior(maps=8), toy().holdout(0.3), keep_messages=True).save(tmp_path / "run")
    hw.load_run(tmp_path / "run").forget("b").save(tmp_path / "left")
    assert '"client": "b"' not in (tmp_path / "left" / "results.jsonl").read_text()


@pytest.mark.parametrize("method", [hw.standardised(hw.APFL(maps=24)), hw.standardised(hw.LogPrior(maps=8))], ids=str)
def test_after_the_old_scale_was_kept_it_can_be_measured_anew_exactly(method):
    without = toy().without("b", "c")
    run = hw.fit(method, without).join(toy().only("b", "c"), scale="keep").forget("b", scale="keep")
    same(run.forget("c"), hw.fit(method, without))
    same(run.join(toy().only("b")), hw.fit(method, toy()))
    kept = [receipt["asked_again"] for receipt in run.receipts]
    assert (kept == [[], []]) == (len(method.plan()) == 2)
    last = run.forget("c")
    assert last.receipts[-1]["asked_again"] == ["a", "no class 2", "one class", "one row"]
    assert all(a["sums_after"] == b["sums_before"] for a, b in zip(last.receipts, last.receipts[1:], strict=False))


def test_receipts_lead_on_over_a_time_of_waiting(tmp_path):
    method = hw.standardised(hw.AFL())
    hw.fit(method, toy()).save(tmp_path / "run")
    left = hw.load_run(tmp_path / "run").forget("b", federation=toy().only("b"))
    left.save(tmp_path / "run")
    assert not (tmp_path / "run" / "global.safetensors").exists(), "a model for everybody that still holds the leaver"
    assert '"client": "a"' in (tmp_path / "run" / "results.stale.jsonl").read_text()
    back = hw.load_run(tmp_path / "run", federation=toy().without("b")).resume()
    again = back.forget("c")
    assert again.receipts[0]["sums_after"] == again.receipts[1]["sums_before"]
    back.save(tmp_path / "run")
    assert (
        not (tmp_path / "run" / "results.stale.jsonl").exists() and (tmp_path / "run" / "global.safetensors").exists()
    )
