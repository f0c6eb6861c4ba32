"""What a run comes to, for people and as JSON: how good its models are, whether joining helps each client, what left it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ._show import note, score, some, table

if TYPE_CHECKING:
    from ..engine.run import Run
    from ..study.alone import Beside
    from ..study.paired import Paired
    from ._show import Waiting

MOST_CONTROLLED = 300  # clients that are also trained alone, unasked
MOST_LINES = 30  # of the table of clients
MOST_WARNINGS = 5
SPLITS = {"test": "test rows", "loo": "training rows, each left out in turn", "train": "the training rows"}


def why_not_alone(run: Run) -> str | None:
    """Why clients are not also trained alone, where the user has not said so; None: they are. "" goes without saying."""
    from ..core.method import Standardised
    from ..methods import name_of

    inner = run.method.method if isinstance(run.method, Standardised) else run.method
    if name_of(inner) == "local-ridge" or not run.finished or set(run.ids) - set(run.here):
        return ""
    if run.federation is None or not any(data.n for data in run.federation.tests.values()):
        return "Whether joining helps each client is told from test rows: hold some out with partition.test=0.25."
    if len(run.ids) > MOST_CONTROLLED:
        return (
            f"With more than {MOST_CONTROLLED} clients they are not also trained alone. That is a run of its own: "
            "method.name=local-ridge run.out=..."
        )
    return None


@dataclass(frozen=True, eq=False)
class Told:
    """What a run comes to."""

    run: Run
    split: str  # test; or without test rows loo (leave-one-out on training rows), or train
    rows: list[dict[str, Any]]
    alone: Run | None = None  # the control that trains each client alone
    silent: str = ""  # why there is none

    @classmethod
    def of(cls, run: Run) -> Told:
        """On rows that no model has seen, where there are any."""
        if not run.finished:
            return cls(run, "test", [])
        for split in ("test", "loo"):
            rows = _own(run, split) if split == "loo" or (run.federation and run.federation.tests) else []
            if rows:
                return cls(run, split, rows)
        return cls(run, "train", _own(run, "train"))

    @classmethod
    def beside_alone(cls, run: Run, notice: Waiting, wanted: bool = True) -> Told:
        """The same, and each client trained alone, where that can be had and is wanted."""
        from dataclasses import replace

        from ..study.alone import fitted_alone

        told, silent = cls.of(run), why_not_alone(run) if wanted else ""
        if silent is not None:
            return replace(told, silent=silent)
        return replace(told, alone=fitted_alone(run, notice))

    def files(self) -> dict[str, bytes]:
        """All rows, with those of the control, as a run folder keeps them; nothing where there is no control."""
        from ..study.alone import rows_alone
        from ..study.rows import to_jsonl

        if self.alone is None:
            return {}
        return {"results.jsonl": to_jsonl([*self.run.scores(), *rows_alone(self.alone)])}

    # facts
    @property
    def heading(self) -> str:
        facts = self.run.facts
        rounds = f"{self.run.progress.done} round{'s' * (self.run.progress.done != 1)}"
        return f"{facts['method']} on {facts['data'] or 'rows'}, {len(self.run.ids)} clients, {rounds}"

    def values(self, model: str) -> dict[str, float]:
        """Of each client."""
        return {row["client"]: row["value"] for row in self.rows if row["model"] == model}

    @cached_property
    def summary(self) -> list[dict[str, Any]]:
        """A row for each model: the unweighted mean over clients, the 10th percentile, and the worst of them."""
        from ..study.alone import MODEL

        models = {str(row["model"]): self.values(str(row["model"])) for row in self.rows}
        if self.beside:
            models[MODEL] = {one.client: one.alone for one in self.beside}
        return [_summarised(model, values) for model, values in models.items()]

    @cached_property
    def beside(self) -> list[Beside]:
        """Every client alone and together, whom joining helps least first."""
        from ..study.alone import beside

        return [] if self.alone is None else beside(self.run, self.alone)

    @cached_property
    def not_scored(self) -> list[str]:
        """Clients whose rows are here, but no test row, where others have some."""
        from ..study.alone import scorable

        if self.split != "test" or self.run.federation is None or not self.rows:
            return []
        tests = self.run.federation.tests
        return [
            name for name in self.run.ids if name in self.run.here and not (name in tests and scorable(tests[name]))
        ]

    @cached_property
    def gives_away(self) -> dict[str, list[str]]:
        """Clients whose plain message holds a row, with the classes that they have one row of."""
        from ..data.inspect import held_once
        from ..study.sent import given_away

        once = {} if self.run.federation is None else held_once(self.run.federation)
        return once if given_away(self.run.method, once) else {}

    @cached_property
    def leaves(self) -> str:
        """What a client sends, in words."""
        from ..study.sent import leaves

        task = self.run.task
        return leaves(self.run.method, f"its {task.dimension} columns", classes=task.kind == "classes")

    @cached_property
    def larger(self) -> str:
        """A sentence where a message is larger than the rows it is of."""
        from ..study.sent import smaller

        own = {name: data.n * self.run.task.dimension * 8 for name, data in self.run.here.items()}
        return smaller(self.run.method, {name: load["up"] for name, load in self.run.traffic.items()}, own)

    @cached_property
    def facts(self) -> dict[str, Any]:
        return {
            **self.run.facts,
            "clients": len(self.run.ids),
            "split": self.split,
            "metric": self.rows[0]["metric"] if self.rows else None,
            "models": self.summary,
            "joining": self._joining(),
            "not_scored": self.not_scored,
            "leaves": self.leaves,
            "gives_away": self.gives_away,
            "traffic": self.run.traffic,
            "pending": list(self.run.pending),
        }

    def _joining(self) -> dict[str, Any] | None:
        """Alone against together; None where clients were not also trained alone."""
        from ..study.alone import counts, together

        if self.alone is None:
            return None
        facts = self.alone.facts
        control = {"method": facts["method"], "settings": facts["settings"]}
        clients = [_as_facts(one) for one in self.beside]
        return {
            "control": control,
            "counts": counts(self.beside),
            "all": _proof(together(self.beside)),
            "clients": clients,
        }

    # words
    def show(self) -> None:
        """The tables, and in words whom the personal model helps and what was sent."""
        metric = self.facts["metric"]
        if self.rows:
            columns = ["model", f"mean {metric}", "10th percentile", "worst client", ""]
            cells = (
                [r["model"], *(score(metric, r[key]) for key in ("mean", "tenth", "worst")), r["worst_client"]]
                for r in self.summary
            )
            table(columns, cells, title=f"{metric} on {SPLITS[self.split]}, mean over clients")
        if self.split == "train":
            note("Warning: these rows were learnt from, so the scores flatter. Hold some out: partition.test=0.25")
        self._show_clients()
        print("\n".join(self._words()))

    def _show_clients(self) -> None:
        """Does joining help, client by client."""
        if self.beside:
            columns, lines = _client_table(self.beside[:MOST_LINES], self.facts["metric"])
            table(columns, lines, title="alone and together, on each client's own test rows; least helped first")
            print("\n".join([*_below(self), ""]))

    def _words(self) -> Iterator[str]:
        from ..study.words import human

        if self.not_scored:
            rows = {name: self.run.here[name].n for name in self.not_scored}
            named = [f"{name} ({n} training row{'s' * (n != 1)})" for name, n in rows.items()]
            yield f"Not scored, for want of test rows: {some(named)}."
        own, common = self.values("personal"), self.values("global")
        both = own.keys() & common.keys()
        if both:
            better, worse = (sum(sign * (own[c] - common[c]) > 0 for c in both) for sign in (1, -1))
            yield f"The personal model is better than the global one for {better} of {len(both)} clients, worse for {worse}."
        if self.silent:
            yield self.silent
        loads = self.run.traffic.values()
        up, down = (max((load[way] for load in loads), default=0) for way in ("up", "down"))
        if not up:
            yield "Nothing left any client."
            return
        yield f"What left each client: {self.leaves}."
        yield f"Each client sent at most {human(up)} and received at most {human(down)}, in all.{' ' * bool(self.larger)}{self.larger}"

    def warn(self, *clients: str) -> None:
        """Of rows that a plain message gives away, and columns in what may be other units; clients: of these alone."""
        from ..data.inspect import odd_columns
        from ..study.sent import given_away
        from .data import odd_words

        once = {name: labels for name, labels in self.gives_away.items() if not clients or name in clients}
        for sentence in given_away(self.run.method, once)[:MOST_WARNINGS]:
            note(f"Warning: {sentence}.")
        if len(once) > MOST_WARNINGS:
            note(f"Warning: so for {len(once) - MOST_WARNINGS} more clients; `data inspect` lists them all.")
        if self.run.federation is not None:
            odd = [f for f in odd_columns(self.run.federation) if not clients or f["client"] in clients]
            for found in odd[:MOST_WARNINGS]:
                note(f"Warning: {odd_words(found)}")


def _own(run: Run, split: str) -> list[dict[str, Any]]:
    """A run's rows without those of its control, which a folder keeps beside them."""
    return [row for row in run.scores(split) if row["method"] == run.facts["method"]]


def _summarised(model: str, values: dict[str, float]) -> dict[str, Any]:
    from ..study.stats import client_mean, tenth

    worst = min(values, key=lambda client: (values[client], client))
    return {
        "model": model,
        "mean": client_mean(values),
        "tenth": tenth(values),
        "worst": values[worst],
        "worst_client": worst,
    }


def _proof(found: Paired | None) -> dict[str, Any]:
    """Where a difference may truly lie, and what is believed of it."""
    if found is None:
        return {}
    return {name: getattr(found, name) for name in ("low", "high", "gained", "lost", "p", "verdict")}


def _as_facts(one: Beside) -> dict[str, Any]:
    proof = _proof(one.paired)
    return {
        **{name: value for name, value in vars(one).items() if name != "paired"},
        "difference": one.difference,
        **proof,
    }


def _client_table(found: Sequence[Beside], metric: str) -> tuple[list[str], list[list[str]]]:
    """A line for each client; columns that nobody has an entry in are left out."""
    columns = ["client", "rows", "test rows", "alone", "together", "one for all", "difference", "95 % interval", ""]
    lines = [_line(one, metric) for one in found]
    used = [i for i in range(len(columns)) if any(line[i] for line in lines)]
    return [columns[i] for i in used], [[line[i] for i in used] for line in lines]


def _line(one: Beside, metric: str) -> list[str]:
    from ..study.stats import signed

    proof = ["", ""]
    if one.paired is not None:
        proof = [f"{signed(one.paired.low)} to {signed(one.paired.high)}", one.paired.verdict]
    everybody = "" if one.everybody is None else score(metric, one.everybody)
    difference = f"{one.difference:+.3f}" if metric == "r2" else signed(one.difference)
    scores = (score(metric, one.alone), score(metric, one.together))
    return [one.client, str(one.rows), str(one.test_rows), *scores, everybody, difference, *proof]


def _below(told: Told) -> Iterator[str]:
    """What the table of clients says and does not say."""
    from ..study.alone import counts, together
    from ..study.stats import signed

    found, verdicts, all_rows = told.beside, counts(told.beside), together(told.beside)
    if len(found) > MOST_LINES:
        yield f"... and {len(found) - MOST_LINES} more clients, whom joining helps more: results.jsonl and --json have all."
    if not verdicts:
        yield (
            "Together less alone, on one split. Targets are no classes, or rows weigh unlike: there are no hits to count, "
            "so no interval and no verdict."
        )
        return
    yield (
        f"Joining helped {verdicts['helped']} of {len(found)} clients and hurt {verdicts['hurt']}; "
        f"for {verdicts['cannot tell']} their test rows cannot tell."
    )
    if all_rows is not None and len(found) > 1:
        yield (
            f"All {all_rows.rows} test rows as one: {signed(all_rows.difference)} points "
            f"({signed(all_rows.low)} to {signed(all_rows.high)}), {all_rows.verdict}."
        )
    yield (
        "Difference in points. The verdict is an exact sign test at 5 % on the rows that only one of the two answers right: per client, "
        "on one split, not corrected for many clients."
    )
