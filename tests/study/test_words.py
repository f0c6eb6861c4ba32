"""Sentences and the table, from values whose verdict is known."""

from collections.abc import Callable
from typing import Any

import pytest

from homeward.study import words
from homeward.study.stats import Study

Build = Callable[..., list[dict[str, Any]]]


def lifted(by: float) -> Callable[[str, str, int, int], float]:
    """apfl is so much above the rest, and a little more on each partition."""

    def score(method: str, model: str, partition: int, client: int) -> float:
        return 0.5 + 0.01 * client + (by + 0.001 * (partition - 2)) * (method == "apfl" and model == "personal")

    return score


@pytest.mark.parametrize(
    ("by", "start", "end"),
    [
        (0.05, "Joining helps here: with apfl the mean client reaches 57.5 %", "better by 4.8 to 5.2 points."),
        (-0.05, "Joining does not pay here: with apfl", "worse by 4.8 to 5.2 points."),
        (0.0, "Joining makes no clear difference here", "not distinguishable (−0.2 to +0.2 points)."),
    ],
)
def test_the_verdict_follows_the_sign(build: Build, by: float, start: str, end: str) -> None:
    sentence = words.verdict(Study(build(lifted(by))), "apfl")
    assert sentence.startswith(start)
    assert sentence.endswith(end)


def test_rivals_are_told_apart(build: Build) -> None:
    def score(method: str, model: str, partition: int, client: int) -> float:
        return {"apfl": 0.5, "afl": 0.45, "ditto": 0.6}.get(method, 0.5) + 0.001 * partition * (method != "apfl")

    sentence = words.rivals(Study(build(score, methods=("local-ridge", "afl", "apfl", "ditto"))), "apfl")
    assert "better than afl (by" in sentence
    assert sentence.endswith("worse than local-ridge (by up to 0.4 points) and ditto (by 10.0 to 10.4 points).")
    level = Study(build(lifted(0.0)))
    assert words.rivals(level, "apfl") == "apfl is not distinguishable from local-ridge and afl."


def test_it_says_who_is_hurt(study: Study) -> None:
    assert words.helped(study, "apfl") == (
        "Of 30 clients (6 in each of 5 partitions), 25 score higher with apfl than alone, 5 lower, 0 the same."
    )
    assert words.hurt_most(study, "apfl", 1).startswith("Hurt most: c005 of partition")
    assert words.hurt_most(study, "local-ridge") == ""


def test_it_says_what_the_shared_model_brings(study: Study) -> None:
    assert words.share_of_personal(study, "apfl").startswith("apfl's one model for everybody reaches 8")
    assert words.share_of_personal(study, "afl") == ""


def test_the_table_has_a_line_for_every_method(study: Study) -> None:
    lines = words.markdown(study).splitlines()
    assert [line.count("|") for line in lines] == [8] * 5
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["local-ridge", "afl", "apfl"]
    assert "4.0 MB" in lines[4]
    assert "83 % / 17 %" in lines[4]


def test_one_partition_is_told_without_intervals(build: Build) -> None:
    study = Study(build(lifted(0.05), partitions=1))
    assert "one partition has no interval" in words.verdict(study, "apfl")
    assert "±" not in words.markdown(study)
    assert "1 partition)" in words.helped(study, "apfl")


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (4_290_856, "4.3 MB"), (2.5e9, "2.5 GB"), (3e15, "3000.0 TB")],
)
def test_bytes_are_shown_in_the_unit_that_fits(count: float, shown: str) -> None:
    assert words.human(count) == shown
