"""Numbers as one reads them, and what statistics say in sentences and in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .stats import Comparison, Interval, Standing, Study, client_mean, differences, signed

COLUMNS = (
    "method",
    "mean client",
    "10th percentile",
    "worst client",
    "against training alone",
    "helped / hurt",
    "a client sends",
)


def percent(value: float) -> str:
    """
    >>> percent(0.98765)
    '98.8 %'
    """
    return f"{100 * value:.1f} %"


def with_interval(found: Interval) -> str:
    """A mean in percent, ± half its interval in points.

    >>> with_interval(Interval(0.9876, 0.98, 0.9952, 5)), with_interval(Interval(0.5, -1.0, 2.0, 1))
    ('98.8 ± 0.8', '50.0 ± 150.0')
    """
    return f"{100 * found.mean:.1f} ± {100 * found.half:.1f}" if found.known else f"{100 * found.mean:.1f}"


def human(size: float) -> str:
    """Bytes.

    >>> human(0), human(512), human(23160), human(4289432.0)
    ('0 B', '512 B', '23.2 kB', '4.3 MB')
    """
    for unit, base in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= base:
            return f"{size / base:.1f} {unit}"
    return f"{size:.0f} B"


def shares(comparison: Comparison | None) -> str:
    """Of all clients in all replicates, how many are helped and how many are hurt."""
    if comparison is None:
        return "–"
    n = len(comparison.gains)
    return f"{100 * comparison.helped / n:.0f} % / {100 * comparison.hurt / n:.0f} %"


def verdict_lines(found: Comparison) -> list[str]:
    """A verdict, and who is helped and hurt, line by line."""
    helped, hurt = shares(found).split(" / ")
    start = [found.verdict] if found.sign else ["not distinguishable", found.amount]
    return [*start, f"{helped} helped, {hurt} hurt"]


def listed(parts: Sequence[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# ---- the verdict


def verdict(study: Study, focus: str) -> str:
    """Whether joining pays, in one sentence."""
    mine, alone = study.standing(focus), study.standing(study.local)
    found = mine.local
    if found is None:
        raise ValueError(f"'{focus}' is what the others are measured by, so it has no verdict of its own.")
    start = {1: "Joining helps here", -1: "Joining does not pay here", 0: "Joining makes no clear difference here"}
    return (
        f"{start[found.sign]}: with {focus} the mean client reaches {percent(mine.mean.mean)}, against "
        f"{percent(alone.mean.mean)} trained alone; that is {found.verdict}."
    )


def rivals(study: Study, focus: str) -> str:
    """How the method stands to every other, in one sentence."""
    found = study.rivals(focus)
    parts = [_beside(found, sign, word) for sign, word in ((1, "better than"), (-1, "worse than"))]
    level = [name for name, c in found.items() if c.sign == 0]
    if level:
        parts.append(f"not distinguishable from {listed(level)}")
    return f"{focus} is {listed([part for part in parts if part])}."


def _beside(found: Mapping[str, Comparison], sign: int, word: str) -> str:
    names = [f"{name} (by {c.amount})" for name, c in found.items() if c.sign == sign]
    return f"{word} {listed(names)}" if names else ""


def share_of_personal(study: Study, focus: str) -> str:
    """How much of it the shared model brings, and how much the personal part; "" where there are not both."""
    mine, shared = study.standing(focus), study.shared(focus)
    if mine.shared is None or shared is None:
        return ""
    everybody = sum(map(client_mean, shared.values())) / len(shared)
    return f"{focus}'s one model for everybody reaches {percent(everybody)} by itself; the personal models are {mine.shared.verdict}."


def helped(study: Study, focus: str) -> str:
    """Who is helped and who is hurt by joining, counted over all replicates."""
    found = study.standing(focus).local
    if found is None:
        return ""
    many, n = len(study.replicates), len(found.gains)
    return (
        f"Of {n} clients ({n // many} in each of {many} partition{'s' if many > 1 else ''}), {found.helped} score higher "
        f"with {focus} than alone, {found.hurt} lower, {found.same} the same."
    )


def hurt_most(study: Study, focus: str, most: int = 5) -> str:
    """The clients that lose most by joining."""
    paired = differences(study.scores(focus), study.scores(study.local))
    losses = sorted((gain, r, c) for r, clients in paired.items() for c, gain in clients.items() if gain < 0)
    if not losses:
        return ""
    named = [
        f"{c} of partition {study.replicates.index(r) + 1} ({signed(gain)} points)" for gain, r, c in losses[:most]
    ]
    return f"Hurt most: {listed(named)}."


def sentences(study: Study, focus: str) -> list[str]:
    """All of it, the verdict first."""
    found = [verdict(study, focus), rivals(study, focus), share_of_personal(study, focus), helped(study, focus)]
    return [text for text in found if text]


# ---- the table


def cells(standing: Standing) -> tuple[str, ...]:
    """A line of the table."""
    return (
        standing.method,
        with_interval(standing.mean),
        with_interval(standing.tenth),
        with_interval(standing.worst),
        "–" if standing.local is None else standing.local.verdict,
        shares(standing.local),
        human(standing.up),
    )


def markdown(study: Study) -> str:
    """The table of methods in Markdown."""
    lines = [COLUMNS, ("---", *["---:"] * 3, "---", "---:", "---:"), *map(cells, study.standings)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def caption(study: Study) -> str:
    """What the table is of."""
    many = len(study.replicates)
    return (
        f"Accuracy in % on each client's held-out rows, over {many} partition{'s' if many > 1 else ''}: "
        "mean ± half of the 95 % t-interval. "
        "Differences are paired by partition and client; verdicts are corrected for the number of methods (Holm)."
    )
