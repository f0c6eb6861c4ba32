"""Charts are valid specifications, carry every row, and are legible in both palettes."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import altair as alt
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeward.study import charts
from homeward.study.stats import Study

Charts = dict[str, charts.Chart]


@pytest.fixture
def drawn(study: Study, labels: list[dict[str, Any]]) -> Charts:
    return {
        "methods": charts.methods(study, "apfl"),
        "clients": charts.clients(study, "apfl", "p0"),
        "cost": charts.cost(study, "apfl"),
        "labels": charts.label_map(labels),
        "picture": charts.picture(study, "apfl", "p0"),
    }


@pytest.mark.parametrize("name", ["methods", "clients", "cost", "labels", "picture"])
def test_a_chart_is_valid_and_describes_itself(drawn: Charts, name: str) -> None:
    spec = charts.spec(drawn[name])
    jsonschema.Draft7Validator(alt.load_schema()).validate(spec)
    assert len(spec["description"]) > 40
    assert charts.still(drawn[name])["background"] == charts.LIGHT["paper"]


@pytest.mark.parametrize("name", ["methods", "clients", "cost", "labels", "picture"])
def test_every_colour_is_a_name_that_both_palettes_define(drawn: Charts, name: str) -> None:
    text = json.dumps(charts.spec(drawn[name]))
    used = set(re.findall(r"var\(--([a-z]+)\)", text))
    assert used
    assert used <= set(charts.LIGHT) == set(charts.DARK)
    assert not re.findall(r"#[0-9a-fA-F]{6}", text)
    assert "var(" not in json.dumps(charts.still(drawn[name]))


@pytest.mark.parametrize("palette", [charts.LIGHT, charts.DARK], ids=["light", "dark"])
def test_contrast_is_sufficient(palette: dict[str, str]) -> None:
    least = {"ink": 7.0, "soft": 4.5, "own": 4.5, "hurt": 4.5, "alone": 3.0}  # WCAG 2.2: text 4.5, graphics 3
    assert {name: contrast(palette[name], palette["paper"]) >= c for name, c in least.items()} == dict.fromkeys(
        least, True
    )


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_clients_are_sorted_from_the_worst_off(study: Study) -> None:
    rows = charts.client_rows(study, "apfl", "p0")
    assert [r["alone"] for r in rows] == sorted(r["alone"] for r in rows)
    assert {r["client"]: r["change"] for r in rows}["c005"] == "hurt"
    assert "5 score higher with apfl, 1 lower, 0 the same" in charts.clients_in_words(study, "apfl", "p0")


def test_methods_are_sorted_from_the_best(study: Study) -> None:
    values = [r["value"] for r in charts.method_rows(study, "apfl")]
    assert values == sorted(values, reverse=True)


def test_pictures_are_made_without_a_browser(drawn: Charts) -> None:
    picture = ET.fromstring(charts.svg(drawn["picture"]))
    text = " ".join(picture.itertext())
    assert picture.tag.endswith("svg")
    for word in ("apfl", "local-ridge", "c000", "c005"):
        assert word in text
    assert charts.png(drawn["labels"], scale=1).startswith(b"\x89PNG")


def test_a_study_of_one_partition_and_one_client_is_drawn(build: Callable[..., list[dict[str, Any]]]) -> None:
    study = Study(build(lambda method, model, p, k: 1.0, partitions=1, clients=1))
    for chart in (charts.methods(study, "apfl"), charts.clients(study, "apfl", "p0"), charts.cost(study, "apfl")):
        charts.spec(chart)
    assert b"apfl" in charts.svg(charts.picture(study, "apfl", "p0"))


def test_many_clients_and_classes_are_drawn_smaller() -> None:
    many = [{"client": f"c{k:03d}", "class": c, "rows": k + 1} for k in range(200) for c in range(100)]
    of = [charts.spec(charts.label_map(rows))["height"] / n for rows, n in ((many[:400], 4), (many, 200))]
    assert of == [22, 5]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6), st.floats(0.1, 5))
def test_labels_keep_their_order_and_a_distance(values: list[float], gap: float) -> None:
    found = charts.apart(sorted(values, reverse=True), gap)
    assert all(upper - lower >= 0.95 * gap for upper, lower in pairwise(found))
    assert sum(found) == pytest.approx(sum(values), abs=1e-6)
