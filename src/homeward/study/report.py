"""One page that says what was found, for whom, and how sure: self-contained, offline, on a phone, in the dark and on paper."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from . import charts, words
from .rows import Row
from .stats import Study


@dataclass(frozen=True, eq=False)
class Story:
    """What a page says that is not in the rows."""

    title: str
    intro: str  # what was done, in a few sentences
    focus: str  # the method whose personal models are shown
    about: Mapping[str, str]  # what each method is, in a few words
    sends: Mapping[str, str]  # what a client of each method sends, in a few words
    labels: Sequence[Row]  # as `data.inspect.label_map` gives them, of the first partition
    partitions: Sequence[Mapping[str, Any]]  # a line of facts for each, alike in their keys
    facts: Mapping[str, str]  # versions, seeds, machine
    command: str  # what makes this page again
    notes: Sequence[str] = field(default=())  # below the table


@dataclass(frozen=True)
class Figure:
    """A chart as the page shows it."""

    name: str
    heading: str
    text: str  # above the chart: how to read it
    description: str  # the chart, for those who do not see it
    spec: str  # JSON
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: tuple[tuple[str, str], ...] = ()  # (mark, words)

    @property
    def csv(self) -> str:
        """The data as an address that can be saved as a file."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([self.columns, *self.rows])
        return f"data:text/csv;charset=utf-8,{quote(out.getvalue())}"


def page(study: Study, story: Story) -> str:
    """The page as HTML."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["tied"] = tied
    template = environment.from_string(files(__package__).joinpath("report.html.jinja").read_text(encoding="utf-8"))
    return template.render(
        story=story,
        study=study,
        verdict=words.verdict(study, story.focus),
        more=words.sentences(study, story.focus)[1:],
        hurt_most=words.hurt_most(study, story.focus),
        key_figures=_key_figures(study, story.focus),
        standings=study.standings,
        words=words,
        figures={figure.name: figure for figure in _figures(study, story)},
        light=_colours(charts.LIGHT),
        dark=_colours(charts.DARK),
        bundle=Markup(_library()),
    )


def tied(text: str) -> Markup:
    """A number stays with its unit on one line."""
    return Markup(re.sub(r"(?<=\d) (?=(?:%|kB|MB|GB|B|points)\b|%)", "&nbsp;", str(escape(text))))


def _inert(script: str) -> str:
    """Text that does not end the element it stands in."""
    return script.replace("</", "<\\/").replace("<!--", "<\\!--")


def _library() -> str:
    """What draws the charts, whole: Vega, Vega-Lite and Vega-Embed."""
    import vl_convert  # loads a JavaScript engine: only where a page is made

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


def _colours(named: Mapping[str, str]) -> Markup:
    return Markup(" ".join(f"--{name}: {colour};" for name, colour in named.items()))


def _key_figures(study: Study, focus: str) -> list[tuple[str, str]]:
    """(number, what it is): what is read first."""
    mine, alone = study.standing(focus), study.standing(study.local)
    found = mine.local
    figures = [
        (words.percent(mine.mean.mean), f"the mean client with {focus}"),
        (words.percent(alone.mean.mean), "the mean client alone"),
    ]
    if found is not None:
        figures.append((words.shares(found), "of the clients are helped / hurt by joining"))
    return [*figures, (words.human(mine.up), "is what a client sends, all in all")]


# ---- the charts with their data


def _figures(study: Study, story: Story) -> list[Figure]:
    first = study.replicates[0]
    return [
        _methods(study, story.focus),
        _clients(study, story.focus, first),
        _cost(study, story.focus),
        _labels(story),
    ]


def _spec(chart: charts.Chart) -> str:
    return _inert(json.dumps(charts.spec(chart), separators=(",", ":")))


def _number(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}"


def _methods(study: Study, focus: str) -> Figure:
    rows = charts.method_rows(study, focus)

    def by_row(method: str) -> str:
        found = study.standing(method).by_row
        return "–" if found is None else _number(found.mean, 2)

    return Figure(
        "methods",
        "Every method",
        "A dot is the mean over clients and partitions, the bar its 95 % interval, and each thin stroke one partition.",
        charts.methods_in_words(study, focus),
        _spec(charts.methods(study, focus)),
        ("method", "mean client, %", "from", "to", "mean row, %"),
        tuple(
            (r["method"], *(_number(r[key], 2) for key in ("value", "low", "high")), by_row(r["method"])) for r in rows
        ),
    )


def _clients(study: Study, focus: str, replicate: str) -> Figure:
    rows = charts.client_rows(study, focus, replicate)
    return Figure(
        "clients",
        "Every client",
        "The first partition, whose models are in this folder. Who is worst off alone stands first.",
        charts.clients_in_words(study, focus, replicate),
        _spec(charts.clients(study, focus, replicate)),
        ("client", "alone, %", f"{focus}, %", "is"),
        tuple((r["client"], _number(r["alone"]), _number(r["own"]), r["change"]) for r in rows),
        (("ring", "trained alone"), ("own", f"helped by {focus}"), ("hurt", "hurt"), ("alone", "the same")),
    )


def _cost(study: Study, focus: str) -> Figure:
    rows = charts.cost_rows(study, focus)
    return Figure(
        "cost",
        "Accuracy against bytes",
        "Bytes of the messages as they are sent, over all rounds. Further left and further up is better.",
        charts.cost_in_words(study, focus),
        _spec(charts.cost(study, focus)),
        ("method", "mean client, %", "a client sends"),
        tuple((r["method"], _number(r["value"], 2), r["bytes"]) for r in rows),
    )


def _labels(story: Story) -> Figure:
    classes = sorted({row["class"] for row in story.labels}, key=lambda c: (isinstance(c, str), c))
    held: dict[str, dict[Any, int]] = {}
    for row in story.labels:
        held.setdefault(str(row["client"]), {})[row["class"]] = int(row["rows"])
    return Figure(
        "labels",
        "Who holds what",
        "The first partition. The larger a disc, the more rows of that class at that client.",
        charts.labels_in_words(story.labels),
        _spec(charts.label_map(story.labels)),
        ("client", *map(str, classes), "rows"),
        tuple((name, *(str(own.get(c, 0)) for c in classes), str(sum(own.values()))) for name, own in held.items()),
    )
