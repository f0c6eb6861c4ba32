"""`demo`: a first result, offline. Methods side by side on digits that ship with scikit-learn, a page, and a model for each client."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._show import Json, Waiting, as_json, next_steps, table

if TYPE_CHECKING:
    from ..config import Config
    from ..core.task import Federation
    from ..data.partition import Partition
    from ..engine.run import Run
    from ..study.report import Story
    from ..study.rows import Row
    from ..study.stats import Standing, Study

FOCUS = "apfl"
ABOUT = {
    "local-ridge": "each client alone, on 1,024 random features",
    "afl": "one model for everybody, on the 64 pixels",
    "masked": "one model on 1,024 random features, classes a client lacks ruled out",
    "log-prior": "the same, moved by each client's class shares",
    "fedhip": "afl's model, pulled to each client's rows",
    "apfl": "masked's one model, and a private one for what it leaves",
}
NOTES = (
    "Every method has its default settings. None was tuned to these data, and no held-out row was seen before the final score.",
    "afl and fedhip read the 64 pixels as they are, by default; the others read 1,024 random features of them. Between these two "
    "groups the features differ as well as the methods: compare within a group, or each personal model with its shared one.",
    "Pixels go in as they are, not standardised: they share one scale, and dividing by a deviation would blow up those at the rim, "
    "which are nearly always empty. Standardise columns of different units (hw.standardised, or standardise = true in a TOML file).",
    "The partitions are deals of the same rows, all with one random map. Rows are held out class by class, so no client is tested on a "
    "class that it never saw: that favours whatever rules such classes out.",
    "Sums are not rows, but plain sums tell which classes a client has, and a class that it has once gives that row away. Sums that "
    "hide it are not in this version.",
)
PIXELS, HELD_OUT = "digits", 0.3
LEAST, FEWEST = 30, 3  # rows of a client that the law asks for; fewer than the second cannot be learnt from and tested


def sends() -> dict[str, str]:
    """What a client of each method sends."""
    from ..methods import METHODS
    from ..study.sent import leaves

    return {name: leaves(METHODS[name](), "pixels") for name in ABOUT}


Out = Annotated[Path, typer.Option(help="The folder to write; an earlier run there is replaced.")]
Clients = Annotated[int, typer.Option(help="Among how many clients the rows are dealt.")]
Alpha = Annotated[float, typer.Option(help="Of the Dirichlet law: the smaller, the more the clients differ.")]
Partitions = Annotated[int, typer.Option(help="How often the rows are dealt anew; intervals need two, and like ten.")]
Seed = Annotated[int, typer.Option(help="Of the first partition; the others count on from it.")]


def demo(
    out: Out = Path("runs/demo"),
    clients: Clients = 20,
    alpha: Alpha = 0.3,
    partitions: Partitions = 10,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """A first result, offline: methods side by side on handwritten digits."""
    from ..config import threads
    from ..core.errors import BadSetting
    from ..engine.store import refuse_foreign
    from ..study.stats import Study

    if partitions < 1:
        raise BadSetting(f"--partitions {partitions}, but at least one is needed. Intervals need two, and like ten.")
    refuse_foreign(out)
    start, settings = time.perf_counter(), Setup(out, clients, alpha, partitions, seed)
    with threads(1), Waiting() as notice:  # matrices this small gain nothing from more, and lose where others want them
        rows, run, dealt = _computed(settings, notice)
        study = Study(rows)
        notice("writing the page", 0, 1)
        story = _story(settings, study, run, dealt)
        run.save(out, files=_files(settings, study, story, run, dealt[0]))
    seconds = time.perf_counter() - start
    if json:
        as_json(_told(study, settings, dealt, seconds))
    else:
        _show(study, settings, run, seconds)


@dataclass(frozen=True)
class Setup:
    """What was asked for."""

    out: Path
    clients: int
    alpha: float
    partitions: int
    seed: int

    def config(self, replicate: int = 0) -> Config:
        """One cell as a TOML file would say it: digits, the partition of this number, APFL."""
        from ..config import Config
        from ..data.sources import BUILTIN, Deal

        fair = BUILTIN[PIXELS].rows // max(self.clients, 1)
        law = {"clients": self.clients, "alpha": self.alpha, "seed": self.seed + replicate}
        dealt = Deal.of({"law": "dirichlet", **law, "min_rows": max(FEWEST, min(LEAST, fair // 3)), "test": HELD_OUT})
        run = {"out": str(self.out.with_name(f"{self.out.name}-{FOCUS}")), "seed": self.seed, "threads": 1}
        return Config.model_validate(
            {
                "data": {"source": PIXELS, "standardise": False},
                "partition": dealt.section,
                "method": {"name": FOCUS},
                "run": run,
            }
        )

    @property
    def command(self) -> str:
        """What was typed, in full where it is not the default."""
        given = {"--clients": (self.clients, 20), "--alpha": (self.alpha, 0.3), "--partitions": (self.partitions, 10)}
        given["--seed"] = (self.seed, 0)
        return " ".join(["homeward demo", *(f"{flag} {v}" for flag, (v, usual) in given.items() if v != usual)])


# ---- what is computed


def _computed(settings: Setup, notice: Waiting) -> tuple[list[Row], Run, list[Partition]]:
    """The rows of all cells, the focus's run on the first partition, and all partitions."""
    from ..methods import METHODS
    from ..study.grid import cells

    dealt = [settings.config(r).federation() for r in range(settings.partitions)]
    federations: list[Federation] = [federation for federation, _ in dealt]
    rows: list[Row] = []
    first: Run | None = None
    todo = len(ABOUT) * len(federations)
    for done, cell in enumerate(cells({name: METHODS[name]() for name in ABOUT}, federations, settings.seed), 1):
        rows += cell.rows
        first = cell.run if cell.method == FOCUS and cell.replicate == 0 else first
        notice("fitting", done, todo)
    assert first is not None  # ABOUT names the focus
    return rows, first, [part for _, part in dealt]


def _files(settings: Setup, study: Study, story: Story, run: Run, first: Partition) -> dict[str, bytes]:
    """What the demo puts beside the run."""
    from ..study import charts, words
    from ..study.report import page
    from ..study.rows import to_jsonl

    picture = charts.picture(study, FOCUS, study.replicates[0])
    return {
        "results.jsonl": to_jsonl(study.rows),
        "config.toml": settings.config().to_toml().encode(),
        "partition.npz": first.to_bytes(),
        "report.html": page(study, story).encode(),
        "table.md": words.markdown(study).encode(),
        "picture.svg": charts.svg(picture),
        "picture.png": charts.png(picture),
        f"{_example(run)}.npz": _held_out(run),
    }


def _example(run: Run) -> str:
    """The client that what comes next is shown with: the eighth, or the next one that has rows to predict."""
    assert run.federation is not None  # it has just been fitted
    tests = run.federation.tests
    return next((c for c in (*run.ids[7:], *run.ids) if tests[c].n), run.ids[0])


def _held_out(run: Run) -> bytes:
    """The held-out rows of that client, to predict."""
    import numpy as np

    assert run.federation is not None  # it has just been fitted
    data, buffer = run.federation.tests[_example(run)], io.BytesIO()
    np.savez_compressed(buffer, X=data.x, y=run.task.labels[data.y])
    return buffer.getvalue()


# ---- what is told


def _story(settings: Setup, study: Study, run: Run, dealt: Sequence[Partition]) -> Story:
    from ..data.inspect import label_map
    from ..engine.store import machine, versions
    from ..study.report import Story

    on = machine()
    facts = {
        "data": f"{PIXELS}, {run.origin['data_hash'][:12]}: 1,797 handwritten digits of 8 × 8 pixels (UCI 1998)",
        "seeds": f"{settings.seed} to {settings.seed + settings.partitions - 1}, one for each partition; random maps: 0",
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items() if name != "torch"),
        "machine": f"{on['system']}, {on['processor']}, {on['cores']} cores, of which {on['threads']} was used",
        "fitting": f"{_seconds(study.rows):.1f} s for {len(study.methods) * len(study.replicates)} fits with their scores",
        "settings": "config.toml beside this page: the first partition with apfl, for `homeward run`",
    }
    return Story(
        title=f"Handwritten digits at {settings.clients} clients: does learning together pay?",
        intro=(
            f"1,797 rows are dealt to {settings.clients} clients by a Dirichlet law (α = {settings.alpha:g}), which gives each client "
            f"few classes, and this {settings.partitions} times. "
            f"{100 * HELD_OUT:.0f} % of each client's rows are held out; accuracy is on these."
        ),
        focus=FOCUS,
        about=ABOUT,
        sends=sends(),
        labels=label_map(dealt[0]),
        partitions=[_line(r, part) for r, part in enumerate(dealt)],
        facts=facts,
        command=settings.command,
        notes=NOTES,
    )


def _line(replicate: int, part: Partition) -> dict[str, Any]:
    """A partition in a few facts."""
    from ..data.inspect import skew

    numbers = skew(part)
    return {
        "number": replicate + 1,
        "seed": part.settings["seed"],
        "rows of a client": f"{numbers['size_min']} to {numbers['size_max']}",
        "classes of a client": f"{numbers['classes']:.1f}",
        "largest class": f"{100 * numbers['top_share']:.0f} %",
        "hash": part.hash,
    }


def _seconds(rows: Sequence[Row]) -> float:
    from ..study.rows import select

    return sum(float(row["value"]) for row in select(rows, metric="seconds"))


def _told(study: Study, settings: Setup, dealt: Sequence[Partition], seconds: float) -> dict[str, Any]:
    """The same for programs."""
    from dataclasses import asdict

    from ..study import words

    def compared(found: Any) -> Any:
        if found is None:
            return None
        counts = {"helped": found.helped, "hurt": found.hurt, "same": found.same}
        return {**asdict(found.interval), "p": found.p, "verdict": found.verdict, **counts}

    methods = [
        {**asdict(s), "local": compared(s.local), "shared": compared(s.shared), "about": ABOUT[s.method]}
        for s in study.standings
    ]
    return {
        "verdict": words.sentences(study, FOCUS),
        "methods": methods,
        "rivals": {name: compared(found) for name, found in study.rivals(FOCUS).items()},
        "partitions": [part.hash for part in dealt],
        "out": str(settings.out),
        "seconds": seconds,
    }


def _show(study: Study, settings: Setup, run: Run, seconds: float) -> None:
    """The table, the verdict, where things are, what to do next."""
    from ..study import words

    title = f"accuracy in % on held-out digits, {settings.clients} clients, {settings.partitions} partitions"
    columns, lines = _table(study.standings)
    table(columns, lines, title=title)
    print("Mean ± half of the 95 % interval. Against alone: points, in brackets where not distinguishable.\n")
    for sentence in words.sentences(study, FOCUS):
        print(fill(sentence, 100), end="\n\n")
    print("What left each client, in all:")
    sent = sends()
    for s in study.standings:
        print(f"  {s.method:<12} {words.human(s.up):>8}  {sent[s.method]}")
    print(
        "afl and fedhip read 64 pixels, the others 1,024 random features of them: the features differ as well as the methods."
    )
    out, client = settings.out, _example(run)
    following = {
        f"predict {out} --client {client} {out}/{client}.npz": "labels and scores from a client's own model",
        f"data inspect {out}/config.toml": "who holds which labels",
        f"run {out}/config.toml partition.alpha=0.1": "one method on one partition; change what you like",
        "list": "methods, data sets, partition laws",
    }
    print(f"\nThe page: {out}/report.html. A model for each client: {out}/models/. All numbers: {out}/results.jsonl.")
    print(f"{seconds:.0f} s. Next:", *next_steps(following), sep="\n")


def _table(standings: Sequence[Standing]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Columns and lines; a narrow terminal gets fewer."""
    from ..study import words

    narrow = sys.stdout.isatty() and get_terminal_size().columns < 100
    columns = ("method", "mean client", "10th", "worst", "against alone", "helped / hurt", "sends")
    lines: list[Sequence[str]] = []
    for s in standings:
        name, mean, tenth, worst, _, helped, sends = words.cells(s)
        brief = [f"{100 * s.tenth.mean:.1f}", f"{100 * s.worst.mean:.1f}"]
        lines.append([name, mean, *(brief if narrow else [tenth, worst]), _gain(s), helped, sends])
    return (columns[:-1], [line[:-1] for line in lines]) if narrow else (columns, lines)


def _gain(standing: Standing) -> str:
    """The difference to training alone, as an interval with signs."""
    from ..study.stats import signed

    found = standing.local
    if found is None:
        return "–"
    if not found.interval.known:
        return f"({signed(found.interval.mean)})"
    ends = f"{signed(found.interval.low)} to {signed(found.interval.high)}"
    return ends if found.sign else f"({ends})"
