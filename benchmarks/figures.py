"""The closed forms on real features, as a command: `python -m benchmarks.figures FEATURES.npz [table|few]`.

FEATURES.npz holds `train`, `test` (int8 with `step` and `offset`, or floats), `y_train`, `y_test`.

table: 50 clients, capped Dirichlet 0.1 and 0.5, matched test split, default settings, mean over three partitions of the mean client
accuracy, with the leave-one-out estimate beside it (joint: the row leaves the global fit too; otherwise it does not: too rosy).
few: 200, 600 and 5,000 rows of ten random classes over 10 clients, against the best single ridge/u chosen on test rows, and with all
features multiplied by 1000.

One JSON line a result.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import homeward as hw
from homeward.core.method import Method, Slot
from homeward.core.model import score_of
from homeward.core.rng import rng_for
from homeward.engine.store import machine, versions
from homeward.methods._closed import RIDGES, Normal
from homeward.methods.label_prior import class_counts, log_prior

Rows = tuple[Any, Any]


def read(path: str) -> tuple[Rows, Rows]:
    """Train and test rows, as float32."""
    with np.load(path) as z:

        def rows(name: str) -> Any:
            x = z[name].astype(np.float32)
            return x * z["step"] + z["offset"] if "step" in z else x

        return (rows("train"), z["y_train"].astype(int)), (rows("test"), z["y_test"].astype(int))


def standard(train: Any, test: Any) -> tuple[Any, Any]:
    mean, scale = train.mean(axis=0), train.std(axis=0)
    scale = np.where(scale > 0, scale, 1)
    return (train - mean) / scale, (test - mean) / scale


def client_mean(run: hw.Run, split: str) -> dict[str, float]:
    """Mean over clients of the accuracy of each kind of model, in percent."""
    rows = run.scores(split)
    kinds = sorted({r["model"] for r in rows})
    return {kind: 100 * float(np.mean([r["value"] for r in rows if r["model"] == kind])) for kind in kinds}


TABLE: Mapping[str, Method] = {
    "afl": hw.AFL(),
    "masked": hw.Masked(),
    "log-prior": hw.LogPrior(),
    "local-ridge": hw.LocalRidge(),
    "fedhip": hw.FedHiP(),
    "fedhip joint": hw.FedHiP(joint=True),
    "apfl": hw.APFL(),
    "apfl joint": hw.APFL(joint=True),
}


def table(path: str, partitions: int, alphas: Sequence[float] = (0.1, 0.5)) -> Iterator[dict[str, Any]]:
    (x, y), (xt, yt) = read(path)
    x, xt = standard(x, xt)
    for alpha in alphas:
        parts = [hw.dirichlet(y, 50, alpha, seed=s) for s in range(partitions)]
        feds = [hw.Federation.from_arrays(x, y, p, test=(xt, yt, p.match(yt))) for p in parts]
        for name, method in TABLE.items():
            start = time.perf_counter()
            runs = [hw.fit(method, fed) for fed in feds]
            test = [client_mean(run, "test") for run in runs]
            loo = [{kind: 100 * float(np.mean(values)) for kind, values in left_out(name, run).items()} for run in runs]
            yield {
                "name": "table",
                "alpha": alpha,
                "method": name,
                "test": summary(test),
                "leave_one_out": summary(loo),
                "partitions": [p.hash[:12] for p in parts],
                "bytes_up": runs[0].traffic["c000"]["up"],
                "seconds": round(time.perf_counter() - start, 1),
            }


def left_out(name: str, run: hw.Run) -> dict[str, list[float]]:
    """Leave-one-out accuracy of every client's rows, by kind of model.

    The methods without a factor at their clients are judged by a twin whose global head is the same and comes down with its factor; the
    controls correct its scores by class counts without the row.
    """
    twin = {"afl": hw.FedHiP(joint=True), "masked": hw.APFL(joint=True), "log-prior": hw.APFL(joint=True)}.get(name)
    if twin is None:
        rows = run.scores("loo")
        return {k: [r["value"] for r in rows if r["model"] == k] for k in {r["model"] for r in rows}}
    assert run.federation is not None
    down, found = hw.fit(twin, run.federation).shared, {"global": [], "personal": []}
    for data in run.federation.clients.values():
        scores = twin.estimate(down, data, None, rng_for(0))[Slot("global")]
        found["global"].append(score_of(data, scores))
        counts = class_counts(data)[None, :] - data.target
        if name == "masked":
            found["personal"].append(score_of(data, np.where(counts > 0, scores, -np.inf)))
        elif name == "log-prior":
            found["personal"].append(score_of(data, scores + float(run.shared["tau"]) * log_prior(counts)))
    return {kind: values for kind, values in found.items() if values}


def summary(results: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    return {
        kind: {
            "mean": round(float(np.mean([r[kind] for r in results])), 2),
            "each": [round(r[kind], 2) for r in results],
        }
        for kind in (results[0] if results else {})
    }


def few_rows(path: str, draws: int) -> Iterator[dict[str, Any]]:
    train, test = read(path)
    for n in (200, 600, 5000):
        found: list[dict[str, float]] = []
        for draw in range(draws):
            found.append(one_draw(train, test, n, draw))
        mean = {k: round(float(np.mean([f[k] for f in found])), 2) for k in found[0]}
        yield {"name": "few", "rows": n, "draws": draws, "mean client accuracy": mean}


def one_draw(train: Rows, test: Rows, n: int, draw: int) -> dict[str, float]:
    rng = np.random.default_rng([n, draw])
    classes = rng.choice(100, 10, replace=False)
    some = rng.permutation(np.flatnonzero(np.isin(train[1], classes)))[:n]
    held = np.flatnonzero(np.isin(test[1], classes))
    x, xt = standard(train[0][some], test[0][held])
    y, yt = train[1][some], test[1][held]
    p = hw.dirichlet(y, 10, 0.3, seed=draw)
    out: dict[str, float] = {}
    for factor in (1.0, 1000.0):
        fed = hw.Federation.from_arrays(factor * x, y, p, test=(factor * xt, yt, p.match(yt)))
        tag = "" if factor == 1 else " x1000"
        for name, method in {
            "afl": hw.AFL(),
            "fedhip": hw.FedHiP(),
            "apfl": hw.APFL(),
            "local-ridge": hw.LocalRidge(),
        }.items():
            scores = client_mean(hw.fit(method, fed), "test")
            out[name + tag] = scores["global" if name == "afl" else "personal"]
            if name == "apfl" and factor == 1:
                out["apfl's global"] = scores["global"]
        if factor == 1:
            out |= best_ridges(fed)
    return out


def best_ridges(fed: hw.Federation) -> dict[str, float]:
    """The best single ridge/u for each method, chosen on test rows: what no honest rule can beat by much."""
    best: dict[str, float] = {}
    for name, make, kind in (
        ("afl", hw.AFL, "global"),
        ("fedhip", hw.FedHiP, "personal"),
        ("apfl", hw.APFL, "personal"),
    ):
        unit = Normal.of(hw.fit(make(), fed).progress.totals[0], True).unit
        tried = [client_mean(hw.fit(make(ridge=r * unit), fed), "test")[kind] for r in RIDGES]
        best[f"best {name}"] = max(tried)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features")
    parser.add_argument("what", choices=["table", "few"], nargs="?", default="table")
    parser.add_argument("--repeats", type=int, help="partitions of `table` (3), draws of `few` (6)")
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.1, 0.5], help="of `table`")
    args = parser.parse_args()
    rows = (
        table(args.features, args.repeats or 3, args.alpha)
        if args.what == "table"
        else few_rows(args.features, args.repeats or 6)
    )
    print(json.dumps({"machine": machine(), "versions": versions()}))
    for row in rows:
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
