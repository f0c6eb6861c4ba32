"""Charts: one function from rows to a chart. The same chart serves a page, where it follows the page's colours, and paper.

Colours are names (`var(--own)`). A page defines them, for light, for dark and for print; `still` puts the light ones in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import altair as alt

from .rows import Row
from .stats import SAME, Study
from .words import human

Chart: TypeAlias = alt.LayerChart | alt.HConcatChart
Width: TypeAlias = int | Literal["container"]
"""Pixels, or "container": as wide as the page leaves room."""

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1c1f23",
    "soft": "#5a6169",
    "rule": "#e3e1da",
    "alone": "#858b92",
    "own": "#0b6285",
    "hurt": "#b8441a",
}
DARK = {
    "paper": "#14171a",
    "ink": "#e9e7e2",
    "soft": "#a5abb2",
    "rule": "#30353b",
    "alone": "#868d95",
    "own": "#6fc3e3",
    "hurt": "#f28c60",
}
INK, SOFT, RULE, ALONE, OWN, HURT, PAPER = (
    f"var(--{name})" for name in ("ink", "soft", "rule", "alone", "own", "hurt", "paper")
)
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": SOFT,
        "titleColor": SOFT,
        "gridColor": RULE,
        "domain": False,
        "ticks": False,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelPadding": 6,
        "titlePadding": 10,
        "labelFlush": False,
    },
    "text": {"color": INK, "fontSize": 12},
    "title": {
        "color": INK,
        "subtitleColor": SOFT,
        "fontSize": 14,
        "fontWeight": 600,
        "subtitleFontSize": 12,
        "anchor": "start",
        "frame": "group",
        "offset": 14,
        "subtitlePadding": 6,
    },
    "concat": {"spacing": 36},
}


# ---- a chart as JSON


def spec(chart: Chart) -> dict[str, Any]:
    """The chart as a Vega-Lite specification, checked against the schema, in the house's style."""
    return {**chart.to_dict(), "config": CONFIG}


def still(chart: Chart, colours: Mapping[str, str] = LIGHT) -> dict[str, Any]:
    """The same with colours in place of their names and a background: for pictures."""
    text = json.dumps(spec(chart))
    for name, colour in colours.items():
        text = text.replace(f"var(--{name})", colour)
    found: dict[str, Any] = json.loads(text)
    return {**found, "background": colours["paper"], "padding": 16}


def svg(chart: Chart) -> bytes:
    """The chart as a picture that scales. No browser."""
    import vl_convert  # loads a JavaScript engine: only where pictures are made

    return str(vl_convert.vegalite_to_svg(still(chart))).encode()


def png(chart: Chart, scale: float = 2.0) -> bytes:
    """The chart as a picture of pixels. No browser."""
    import vl_convert  # loads a JavaScript engine: only where pictures are made

    return bytes(vl_convert.vegalite_to_png(still(chart), scale=scale))


def _layers(layers: Sequence[alt.Chart], height: int, description: str, title: Any, width: Width) -> alt.LayerChart:
    chart = alt.LayerChart(layer=list(layers), width=width, height=height, description=description)
    return chart if title is None else chart.properties(title=title)


def _data(rows: Iterable[Row]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def _height(count: int, most: int) -> int:
    """Room for so many lines, less for each where they are many. In pixels: Vega-Lite complains of steps in a chart as wide as the page."""
    return count * max(5, min(most, 900 // max(count, 1)))


def _percent(field: str, title: str | None, values: Iterable[float]) -> alt.X:
    return alt.X(
        field,
        title=title,
        scale=alt.Scale(domain=[min(values), 1.0], nice=False, padding=10),
        axis=alt.Axis(labelExpr=PERCENT, tickCount=5),
    )


# ---- every method


def method_rows(study: Study, focus: str) -> list[dict[str, Any]]:
    """What `methods` shows: mean client and interval of every method, best first."""
    rows = [
        {
            "method": s.method,
            "value": s.mean.mean,
            "low": s.mean.low if s.mean.known else s.mean.mean,
            "high": s.mean.high if s.mean.known else s.mean.mean,
            "role": "focus" if s.method == focus else "alone" if s.method == study.local else "other",
            "label": f"{100 * s.mean.mean:.1f}",
        }
        for s in study.standings
    ]
    return sorted(rows, key=lambda row: -row["value"])


def methods(
    study: Study, focus: str, *, width: Width = "container", step: int = 38, title: Any = None
) -> alt.LayerChart:
    """Mean client accuracy of every method with its interval, and a tick for each partition."""
    rows = method_rows(study, focus)
    order = [row["method"] for row in rows]
    ticks = [
        {"method": m, "value": sum(clients.values()) / len(clients)}
        for m in order
        for clients in study.scores(m).values()
    ]
    edge = {m: max(t["value"] for t in ticks if t["method"] == m) for m in order}
    rows = [{**row, "edge": max(row["high"], edge[row["method"]])} for row in rows]
    y = alt.Y("method:N", sort=order, title=None, axis=alt.Axis(labelColor=INK, labelFontSize=13, grid=False))
    x = alt.X(
        "value:Q",
        title="accuracy of the mean client",
        scale=alt.Scale(zero=False, nice=True, padding=8),
        axis=alt.Axis(labelExpr=PERCENT, tickCount=5),
    )
    colour = alt.Color(
        "role:N", legend=None, scale=alt.Scale(domain=["focus", "alone", "other"], range=[OWN, ALONE, INK])
    )
    tips = [
        alt.Tooltip("method:N"),
        alt.Tooltip("value:Q", format=".1%", title="mean client"),
        alt.Tooltip("low:Q", format=".1%", title="from"),
        alt.Tooltip("high:Q", format=".1%", title="to"),
    ]
    layers = [
        _data(ticks).mark_tick(thickness=1, size=13, color=SOFT, opacity=0.45).encode(x=x, y=y),
        _data(rows).mark_rule(strokeWidth=2.5).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour),
        _data(rows).mark_point(size=70, filled=True, opacity=1).encode(x=x, y=y, color=colour, tooltip=tips),
        _data(rows).mark_text(align="left", dx=9).encode(x=alt.X("edge:Q"), y=y, text="label:N"),
    ]
    return _layers(layers, len(rows) * step, methods_in_words(study, focus), title, width)


def methods_in_words(study: Study, focus: str) -> str:
    """The same for those who do not see it."""
    found = "; ".join(
        f"{row['method']} {row['label']} % (from {100 * row['low']:.1f} to {100 * row['high']:.1f})"
        for row in method_rows(study, focus)
    )
    return f"Accuracy of the mean client with intervals, best first: {found}."


# ---- every client


def client_rows(study: Study, focus: str, replicate: str) -> list[dict[str, Any]]:
    """What `clients` shows: each client of a partition alone and with its own model; who is worst off alone comes first."""
    alone, own = study.scores(study.local)[replicate], study.scores(focus)[replicate]
    rows = [
        {"client": c, "alone": alone[c], "own": own[c], "change": _change(own[c] - alone[c])} for c in own if c in alone
    ]
    return sorted(rows, key=lambda row: (row["alone"], row["own"], row["client"]))


def _change(gain: float) -> str:
    return "helped" if gain > SAME else "hurt" if gain < -SAME else "same"


def clients(
    study: Study, focus: str, replicate: str, *, width: Width = "container", title: Any = None
) -> alt.LayerChart:
    """Accuracy of every client: a ring where it trains alone, a dot with its personal model."""
    rows = client_rows(study, focus, replicate)
    order = [row["client"] for row in rows]
    y = alt.Y("client:N", sort=order, title=None, axis=alt.Axis(labelOverlap=True, grid=False))
    ends = [row[key] for row in rows for key in ("alone", "own")]

    def x(field: str) -> alt.X:
        return _percent(field, "accuracy on the client's own held-out rows", ends)

    colour = alt.Color(
        "change:N", legend=None, scale=alt.Scale(domain=["helped", "hurt", "same"], range=[OWN, HURT, ALONE])
    )
    tips = [
        alt.Tooltip("client:N"),
        alt.Tooltip("alone:Q", format=".1%"),
        alt.Tooltip("own:Q", format=".1%", title=focus),
        alt.Tooltip("change:N", title="is"),
    ]
    data = _data(rows)
    layers = [
        data.mark_rule(strokeWidth=2, opacity=0.65).encode(x=x("alone:Q"), x2="own:Q", y=y, color=colour),
        data.mark_point(size=46, filled=True, opacity=1, fill=PAPER, stroke=ALONE, strokeWidth=1.6).encode(
            x=x("alone:Q"), y=y, tooltip=tips
        ),
        data.mark_point(size=58, filled=True, opacity=1).encode(x=x("own:Q"), y=y, color=colour, tooltip=tips),
    ]
    return _layers(layers, _height(len(rows), 19), clients_in_words(study, focus, replicate), title, width)


def clients_in_words(study: Study, focus: str, replicate: str) -> str:
    """The same for those who do not see it."""
    rows = client_rows(study, focus, replicate)
    count = {word: sum(row["change"] == word for row in rows) for word in ("helped", "hurt", "same")}
    return (
        f"Accuracy of {len(rows)} clients, trained alone and with {focus}: {count['helped']} score higher with {focus}, "
        f"{count['hurt']} lower, {count['same']} the same."
    )


# ---- who holds what


def label_map(labels: Sequence[Row], *, width: Width = "container", title: Any = None) -> alt.LayerChart:
    """Clients x classes: the larger a disc, the more rows. `labels` as `data.inspect.label_map` gives them."""
    held = list(dict.fromkeys(str(row["client"]) for row in labels))
    classes = sorted({row["class"] for row in labels}, key=lambda c: (isinstance(c, str), c))
    largest = max((int(row["rows"]) for row in labels), default=1)
    rows = [{**row, "class": str(row["class"])} for row in labels]
    area = 400 if len(classes) <= 12 else max(12, 4000 // len(classes))
    x = alt.X(
        "class:N",
        sort=[str(c) for c in classes],
        title="class",
        axis=alt.Axis(orient="top", labelAngle=0, labelOverlap=True, grid=False),
    )
    y = alt.Y("client:N", sort=held, title=None, axis=alt.Axis(labelOverlap=True, grid=True))
    size = alt.Size("rows:Q", legend=None, scale=alt.Scale(domain=[0, largest], range=[5, area]))
    tips = [alt.Tooltip("client:N"), alt.Tooltip("class:N"), alt.Tooltip("rows:Q")]
    layers = [
        _data(rows)
        .mark_point(shape="circle", filled=True, color=OWN, opacity=0.82)
        .encode(x=x, y=y, size=size, tooltip=tips)
    ]
    return _layers(layers, _height(len(held), 22), labels_in_words(labels), title, width)


def labels_in_words(labels: Sequence[Row]) -> str:
    """The same for those who do not see it."""
    held: dict[str, int] = {}
    for row in labels:
        held[str(row["client"])] = held.get(str(row["client"]), 0) + 1
    classes = len({row["class"] for row in labels})
    few, many = min(held.values()), max(held.values())
    rows = [int(row["rows"]) for row in labels]
    return (
        f"Rows of each class at each client. Of {classes} classes a client holds from {few} to {many}, "
        f"{sum(held.values()) / len(held):.1f} on average; where it holds one, it has from {min(rows)} to {max(rows)} rows of it."
    )


# ---- what it costs


def cost_rows(study: Study, focus: str) -> list[dict[str, Any]]:
    """What `cost` shows: bytes that the mean client sends, and what they buy."""
    return [
        {**row, "up": study.standing(row["method"]).up, "bytes": human(study.standing(row["method"]).up)}
        for row in method_rows(study, focus)
    ]


def cost(
    study: Study, focus: str, *, width: Width = "container", title: Any = None, height: int = 250
) -> alt.LayerChart:
    """Accuracy of the mean client against the bytes that it sent."""
    rows = cost_rows(study, focus)
    low, high = min(r["low"] for r in rows), max(r["high"] for r in rows)
    middle = 1000 * math.expm1(0.6 * math.log1p(max(r["up"] for r in rows) / 1000))  # on the axis below
    gap = 17 / height * max(high - low, 0.01) * 1.15
    left, right = ([r for r in rows if (r["up"] > middle) == side] for side in (True, False))
    placed = [
        {**r, "at": at}
        for side in (left, right)
        for r, at in zip(side, apart([r["value"] for r in side], gap), strict=True)
    ]
    x = alt.X(
        "up:Q",
        title="bytes that a client sends, all rounds",
        scale=alt.Scale(type="symlog", constant=1000, domainMin=0, padding=16, nice=False),
        axis=alt.Axis(values=[0, *(10**k for k in range(4, 13))], labelExpr=BYTES_AXIS, labelOverlap=True),
    )
    y = alt.Y(
        "value:Q",
        title=None,
        scale=alt.Scale(zero=False, nice=False, padding=14),
        axis=alt.Axis(labelExpr=PERCENT, tickCount=5),
    )
    colour = alt.Color(
        "role:N", legend=None, scale=alt.Scale(domain=["focus", "alone", "other"], range=[OWN, ALONE, INK])
    )
    ink = alt.condition("datum.role == 'focus'", alt.value(OWN), alt.value(INK))
    tips = [
        alt.Tooltip("method:N"),
        alt.Tooltip("bytes:N", title="a client sends"),
        alt.Tooltip("value:Q", format=".1%", title="mean client"),
    ]
    layers = [
        _data(rows).mark_rule(strokeWidth=1.5, opacity=0.7).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        _data(rows).mark_point(size=60, filled=True, opacity=1).encode(x=x, y=y, color=colour, tooltip=tips),
        *(
            _data([p for p in placed if (p["up"] > middle) == side])
            .mark_text(align="right" if side else "left", dx=-11 if side else 11, baseline="middle")
            .encode(x=x, y=alt.Y("at:Q"), text="method:N", color=ink)
            for side in (True, False)
        ),
    ]
    return _layers(layers, height, cost_in_words(study, focus), title, width)


PERCENT = "format(100 * datum.value, '~g') + ' %'"
BYTES_AXIS = (
    "datum.value >= 1e9 ? format(datum.value / 1e9, '~g') + ' GB' : datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' MB' "
    ": datum.value >= 1e3 ? format(datum.value / 1e3, '~g') + ' kB' : format(datum.value, '~g') + (datum.value ? ' B' : '')"
)


def cost_in_words(study: Study, focus: str) -> str:
    """The same for those who do not see it."""
    found = "; ".join(f"{row['method']} {row['label']} % for {row['bytes']}" for row in cost_rows(study, focus))
    return f"Accuracy of the mean client against the bytes that it sends: {found}."


def apart(values: Sequence[float], gap: float) -> list[float]:
    """Places for labels, in the order of falling values, that keep a gap and stay near.

    >>> apart([3.0, 1.0], 1.0), apart([1.0, 1.0], 1.0)
    ([3.0, 1.0], [1.5, 0.5])
    """
    at = list(values)
    for _ in range(100):
        for i, (upper, lower) in enumerate(pairwise(list(at))):
            upper, lower = at[i], at[i + 1]
            if upper - lower < gap - 1e-12:
                middle = (upper + lower) / 2
                at[i], at[i + 1] = middle + gap / 2, middle - gap / 2
    return at


# ---- the picture of a study


def picture(study: Study, focus: str, replicate: str) -> alt.HConcatChart:
    """Methods with intervals beside the clients of one partition: what a README shows."""
    many = len(study.replicates)
    left = alt.TitleParams("Every method", subtitle=f"mean over clients, {many} partitions, 95 % intervals")
    below = alt.TitleParams("What it costs", subtitle="mean client against bytes that it sends")
    right = alt.TitleParams("Every client", subtitle=f"ring: trained alone; dot: with {focus} (first partition)")
    return alt.HConcatChart(
        hconcat=[
            alt.VConcatChart(
                vconcat=[
                    methods(study, focus, width=310, step=27, title=left),
                    cost(study, focus, width=310, height=110, title=below),
                ]
            ),
            clients(study, focus, replicate, width=330, title=right),
        ],
        description=f"{methods_in_words(study, focus)} {clients_in_words(study, focus, replicate)}",
        resolve=alt.Resolve(scale=alt.ScaleResolveMap(color="independent")),
    )
