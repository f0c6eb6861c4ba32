"""The page: self-contained, accessible in its structure, and safe with any client's name."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote

import pytest

from homeward.study import report
from homeward.study.report import Story, page
from homeward.study.stats import Study

EVIL = '</script><script>alert("x")</script>'


def story(labels: list[dict[str, Any]], **more: Any) -> Story:
    partitions = [{"number": 1, "seed": 0, "hash": "abc"}, {"number": 2, "seed": 1, "hash": "def"}]
    told: dict[str, Any] = {
        "title": "Toys at six clients", "intro": "Rows & more.", "focus": "apfl", "about": {"apfl": "two ridges"},
        "sends": {"apfl": "sums"}, "labels": labels, "partitions": partitions, "facts": {"machine": "this one"},
        "command": "homeward demo --seed 3", "notes": ["Nothing was tuned."],
    }  # fmt: skip
    return Story(**{**told, **more})


class Page(HTMLParser):
    """Elements with their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.words, self.inside = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside in ("script", "style"):
            self.raw.append((self.inside, data))
        else:
            self.words += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture
def shown(study: Study, labels: list[dict[str, Any]]) -> Page:
    return Page(page(study, story(labels)))


def test_nothing_is_loaded_from_anywhere(shown: Page) -> None:
    for tag, attrs in shown.elements:
        for name, value in attrs.items():
            if name in ("src", "href", "srcset", "action", "poster", "data", "formaction", "xlink:href"):
                assert (value or "").startswith(("data:text/csv", "#")), (tag, name, value)
    assert not shown.all("link")
    for tag, text in shown.raw:
        assert tag != "style" or not re.search(r"url\(|@import|https?:", text)
    policy = next(m["content"] for m in shown.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")  # the browser refuses whatever a script might try
    assert "http" not in policy


def test_the_drawing_library_is_there_once(shown: Page) -> None:
    assert sum("vegaEmbed=" in text for _, text in shown.raw) == 1


def test_the_verdict_stands_on_top(shown: Page) -> None:
    words = " ".join(shown.words.replace("\u00a0", " ").split())
    assert 0 < words.index("Joining helps here: with apfl") < words.index("Every method")
    for text in ("homeward demo --seed 3", "Nothing was tuned.", "Rows & more.", "this one", "abc", "two ridges"):
        assert text in words


def test_the_structure_can_be_heard(shown: Page) -> None:
    assert shown.all("html")[0]["lang"] == "en"
    assert len(shown.all("h1")) == 1
    assert len(shown.all("h2")) == 5
    assert len(shown.all("caption")) == len(shown.all("table"))
    assert {th.get("scope") for th in shown.all("th")} == {"col", "row"}
    plots = [d for d in shown.all("div") if "data-chart" in d]
    assert len(plots) == 4
    assert all(d["role"] == "img" and len(d["aria-label"] or "") > 40 for d in plots)
    assert len(shown.all("figure")) == len(shown.all("figcaption")) == 4
    assert len(shown.all("details")) == 5  # the data of each chart, and the partitions


def test_the_data_of_a_chart_can_be_saved(shown: Page, study: Study) -> None:
    link = next(a["href"] for a in shown.all("a") if a.get("download") == "clients.csv")
    rows = list(csv.reader(io.StringIO(unquote((link or "").partition(",")[2]))))
    assert rows[0] == ["client", "alone, %", "apfl, %", "is"]
    assert {r[0] for r in rows[1:]} == set(study.scores("apfl")["p0"])


def test_no_name_breaks_out(rows: list[dict[str, Any]], labels: list[dict[str, Any]]) -> None:
    named = [{**r, "client": EVIL if r["client"] == "c000" else r["client"]} for r in rows]
    where = [{**r, "client": EVIL if r["client"] == "c000" else r["client"]} for r in labels]
    safe = Page(page(Study(named), story(where, title=EVIL, command=EVIL, intro=EVIL)))
    plain = Page(page(Study(rows), story(labels)))
    assert len(safe.all("script")) == len(plain.all("script"))
    scripts = [text for tag, text in safe.raw if tag == "script"]
    specs = [json.loads(text) for text, a in zip(scripts, safe.all("script"), strict=True) if a.get("type")]
    assert EVIL.replace('"', '\\"') in json.dumps(specs)


def test_specifications_are_json(shown: Page) -> None:
    found = [attrs for attrs in shown.all("script") if attrs.get("type") == "application/json"]
    assert [a["id"] for a in found] == ["methods-spec", "clients-spec", "cost-spec", "labels-spec"]


def test_a_number_stays_with_its_unit() -> None:
    assert report.tied("from 3 % to 4.0 points & 2 MB") == "from 3&nbsp;% to 4.0&nbsp;points &amp; 2&nbsp;MB"
