"""The carrier in this process: what it counts, keeps and hands out."""

import numpy as np
import pytest

import homeward as hw
from homeward.core import wire
from homeward.core.algebra import ByClient, Tree, received
from homeward.engine.carry import address, begun
from homeward.engine.inprocess import InProcess
from homeward.testing import toy


def packed(d: int) -> int:
    return d * (d + 1) // 2


@pytest.mark.parametrize(
    ("method", "up", "down"),
    [  # in numbers of 8 bytes, by hand: N, Ω, s, t, G, Q, Σy² up; seed and width of the map at the start, then the head, down
        (hw.AFL(), lambda d, c: 3 + d + c + packed(d) + d * c, lambda d, c: 2 + 2 + d * c + c + 2),
        (hw.APFL(maps=8), lambda d, c: 3 + d + c + packed(d) + d * c, lambda d, c: 2 + 2 + d * c + c + 2),
        (hw.Masked(maps=8), lambda d, c: 3 + d + c + packed(d) + d * c, lambda d, c: 2 + 2 + d * c + c + 2),
        (hw.LocalRidge(maps=8), lambda d, c: 0, lambda d, c: 2),
        (
            hw.APFL(maps=8, joint=True),
            lambda d, c: 3 + d + c + packed(d) + d * c,
            lambda d, c: 2 + 2 + d * c + c + 2 + packed(d) + d + 1,
        ),
        (
            hw.APFL(maps=8, share=True),
            lambda d, c: 3 + d + c + packed(d) + d * c + 90,
            lambda d, c: 2 + 2 * (2 + d * c + c + 2) + 2,
        ),
        (
            hw.LogPrior(maps=8),
            lambda d, c: 3 + d + c + packed(d) + d * c + 10,
            lambda d, c: 2 + 2 * (2 + d * c + c + 2) + packed(d) + d + 1 + 1,
        ),
    ],
    ids=["afl", "apfl", "masked", "local-ridge", "apfl joint", "apfl share", "log-prior"],
)
def test_needed_bytes_are_the_formula_at_8_features_and_3_classes(method, up, down):
    federation = hw.Federation.from_arrays(*_rows(8), classes=[0, 1, 2])
    traffic = hw.fit(method, federation).traffic["a"]
    assert traffic["needed_up"] == 8 * up(8, 3)
    assert traffic["needed_down"] == 8 * down(8, 3)
    assert traffic["up"] >= traffic["needed_up"] and traffic["down"] > traffic["needed_down"]


def _rows(d):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    return rng.normal(size=(60, d)) + y[:, None], y, np.repeat(["a", "b"], 30)


def test_sent_bytes_are_the_length_of_the_message():
    federation, method = toy(), hw.AFL()
    carrier = InProcess(method, federation.clients, keep_messages=True)
    shared = begun(method, federation.task, 0).server
    carrier.total(method.plan()[0], shared, address(method, 0, 0))
    for client, (message,) in carrier.messages.items():
        assert carrier.traffic[client]["up"] == len(wire.to_bytes(message))
        assert carrier.traffic[client]["down"] == len(wire.to_bytes(shared))


def test_states_are_kept_only_when_all_have_answered():
    class Interrupted(Exception):
        pass

    def stop(what, done, of):
        if done == 2:
            raise Interrupted

    method = hw.LogPrior(maps=8)
    carrier = InProcess(method, toy().clients, notice=stop)
    with pytest.raises(Interrupted):
        carrier.total(method.plan()[0], begun(method, toy().task, 0).server, (0, "summarise", 0))
    assert carrier.states == {} and carrier.traffic == {} and carrier.log == []


def test_each_client_receives_and_is_charged_for_its_own_entry_only():
    shared = Tree(mixed=ByClient({"a": np.zeros(100)}, np.zeros(1)), common=np.zeros(2))
    assert received(shared, "a")["mixed"].shape == (100,) and received(shared, "b")["mixed"].shape == (1,)
    assert wire.needed(received(shared, "b")) == 24


def test_the_notice_tells_how_far_a_round_is():
    told = []
    hw.fit(hw.AFL(), toy(), notice=lambda what, done, of: told.append((what, done, of)))
    assert told == [("summarise", i, 6) for i in range(7)]
