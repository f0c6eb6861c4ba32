"""The page in a real browser: every chart is drawn, in its colours, at every width, without a word on the console and without a network."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from homeward.study import charts
from homeward.study.report import Story, page
from homeward.study.stats import Study

CHROMIUM = shutil.which("chromium")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--allow-file-access-from-files", "--enable-logging=stderr"),
]
NOWHERE = "--host-resolver-rules=MAP * ~NOTFOUND"

# The page in a frame as wide as a telephone's, or a desk's, screen; what is seen there is written down as JSON.
FRAME = """<!DOCTYPE html><body style="margin:0"><iframe src="report.html" style="border:0;width:WIDTHpx;height:3000px"></iframe>
<pre id="seen"></pre><script>
const look = () => {
  const page = document.querySelector("iframe").contentDocument;
  const plots = [...(page?.querySelectorAll("[data-chart]") ?? [])];
  if (!plots.length || !plots.every((plot) => plot.dataset.state)) { setTimeout(look, 50); return; }
  const fills = (plot) => [...plot.querySelectorAll(".mark-symbol path")].map((path) => getComputedStyle(path).fill);
  document.getElementById("seen").textContent = JSON.stringify({
    width: page.documentElement.clientWidth,
    content: page.documentElement.scrollWidth,
    plots: plots.map((plot) => ({
      name: plot.dataset.chart, state: plot.dataset.state, pictures: plot.querySelectorAll("svg").length,
      marks: plot.querySelectorAll(".mark-symbol path, .mark-rule line").length, text: plot.textContent,
      right: plot.querySelector("svg")?.getBoundingClientRect().right ?? 0, fills: [...new Set(fills(plot))],
    })),
  });
};
look();
</script></body>"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on PATH (apt-get install chromium)"),
]


@pytest.fixture
def folder(study: Study, labels: list[dict[str, Any]], tmp_path: Path) -> Path:
    """A page on disk."""
    story = Story(
        title="Toys", intro="Rows.", focus="apfl", about={}, sends={}, labels=labels, partitions=[{"number": 1}],
        facts={"machine": "a machine with a rather long name, " * 4}, command="homeward demo " + "--partitions 10 " * 9,
    )  # fmt: skip
    (tmp_path / "report.html").write_text(page(study, story), encoding="utf-8")
    return tmp_path


def browsed(folder: Path, address: Path, *flags: str) -> tuple[str, list[str]]:
    """The page's elements after its scripts have run, and what was said on the console."""
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [
        CHROMIUM or "",
        *FLAGS,
        NOWHERE,
        profile,
        "--virtual-time-budget=20000",
        *flags,
        "--dump-dom",
        address.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def seen(folder: Path, width: int, *flags: str) -> dict[str, Any]:
    frame = folder / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)), encoding="utf-8")
    dom, said = browsed(folder, frame, f"--window-size={width + 100},3100", *flags)
    assert said == []
    found = re.search(r'<pre id="seen">(.+?)</pre>', dom, re.DOTALL)
    assert found, "the page did not finish drawing"
    told: dict[str, Any] = json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))
    return told


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_every_chart_is_drawn_and_nothing_is_wider_than_the_screen(folder: Path, width: int) -> None:
    told = seen(folder, width)
    assert told["width"] == width
    assert told["content"] <= width
    assert [p["name"] for p in told["plots"]] == ["methods-spec", "clients-spec", "cost-spec", "labels-spec"]
    for plot in told["plots"]:
        assert (plot["state"], plot["pictures"]) == ("drawn", 1)
        assert plot["marks"] >= 3, plot["name"]
        assert plot["right"] <= width, plot["name"]
    words = {p["name"]: p["text"] for p in told["plots"]}
    assert "local-ridge" in words["methods-spec"]
    assert "c005" in words["clients-spec"]


@pytest.mark.parametrize(
    ("flags", "palette"),
    [((), charts.LIGHT), (("--blink-settings=preferredColorScheme=0",), charts.DARK)],
    ids=["light", "dark"],
)
def test_charts_have_the_colours_of_the_page(folder: Path, flags: tuple[str, ...], palette: dict[str, str]) -> None:
    told = seen(folder, 800, *flags)
    for plot in told["plots"]:
        assert rgb(palette["own"]) in plot["fills"], plot["name"]


def test_the_page_by_itself_says_nothing_on_the_console(folder: Path) -> None:
    dom, said = browsed(folder, folder / "report.html")
    assert said == []
    assert dom.count('data-state="drawn"') == 4


def test_a_mistake_on_a_page_would_be_seen(folder: Path) -> None:
    """The checks above can fail: a page that fetches is refused by its own policy, and that is said."""
    broken = (folder / "report.html").read_text(encoding="utf-8")
    asked = broken.replace("</body>", "<img src='https://example.org/x.png' alt=''></body>")
    (folder / "broken.html").write_text(asked, encoding="utf-8")
    _, said = browsed(folder, folder / "broken.html")
    assert any("Content Security Policy" in line for line in said)
