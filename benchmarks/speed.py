"""Speed as ratios, each measured side by side in one run: `python -m benchmarks.speed NAME`, or `all`.

gram       effective rate of forming X'X (2 n d² operations counted) over this machine's rate of a full product.           aim >= 1.5
apfl_fit   ideal over measured time of fitting APFL and all its personal models, joint leave-one-out. Ideal: the operations of the
           closed form at the float64 rate of a full product.                                                             aim >= 0.5
server     the published recursion (3 inversions a client) over our server half with a numeric ridge; `gcv` beside it.    aim >= 500
memory     the server's peak memory, 1,000 clients over 10.                                                               aim <= 1.2

profile    where the time of one client of `apfl_fit` goes.
gpu        APFL on CUDA tensors, where there is a GPU: seconds, and the difference to NumPy.

One JSON line a size. Threads are those of OMP_NUM_THREADS, or all.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib.util
import json
import pstats
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import homeward as hw
from benchmarks import published
from homeward.core import linalg
from homeward.core.algebra import Tree, summed
from homeward.core.rng import rng_for
from homeward.core.task import Task
from homeward.engine.store import machine
from homeward.methods._closed import Moments


def seconds(*runs: Callable[[], object], repeats: int = 3) -> list[float]:
    """The least of a few for each, in turns, after one of each that is thrown away."""
    for run in runs:
        run()
    taken = [[_timed(run) for run in runs] for _ in range(repeats)]
    return [min(times) for times in zip(*taken, strict=True)]


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def product(dtype: Any, n: int = 3072) -> tuple[Callable[[], object], float]:
    """A full product of two different matrices, and its operations."""
    a, b = (np.random.default_rng(i).normal(size=(n, n)).astype(dtype) for i in range(2))
    return lambda: a @ b, 2.0 * n**3


def gram() -> Iterator[dict[str, Any]]:
    """float32 rows as the aim has them; float64 is what the methods form their sums in."""
    for dtype, n, d in ((np.float32, 50_000, 2048), (np.float64, 50_000, 2048)):
        x = np.random.default_rng(0).normal(size=(n, d)).astype(dtype)
        full, operations = product(dtype)
        ours, one = seconds(lambda x=x: linalg.gram(x), full)
        rate = operations / one
        yield {
            "ratio": 2.0 * n * d * d / ours / rate,
            "aim": ">= 1.5",
            "n": n,
            "d": d,
            "dtype": np.dtype(dtype).name,
            "seconds": ours,
            "gemm_gflops": rate / 1e9,
        }


def apfl_fit(
    clients: int = 50, n: int = 1000, d: int = 2048, inputs: int = 384, classes: int = 100
) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, clients * n)
    x = (rng.normal(size=(clients * n, inputs)) + rng.normal(size=(classes, inputs))[y]).astype(np.float32)
    federation = hw.Federation.from_arrays(x, y, np.repeat(np.arange(clients), n))
    each = 2 * n * inputs * 2 * d + n * d**2 + n**2 * d + 9 * n**3 + n * d**2 + n**2 * d + 2 * n**3
    method = hw.APFL(ridge=10.0, maps=d, joint=True)

    def fit() -> None:
        hw.fit(method, federation).compute()

    full, operations = product(np.float64)
    (before,), taken, (after,) = seconds(full), _timed(fit), seconds(full)
    ideal = (clients * each + d**3 / 3 + 2 * d**2 * classes) * (before + after) / 2 / operations
    yield {
        "ratio": ideal / taken,
        "aim": ">= 0.5",
        "clients": clients,
        "rows": n,
        "inputs": inputs,
        "maps": d,
        "classes": classes,
        "seconds": taken,
        "ideal_seconds": ideal,
    }


def client_sums(d: int, classes: int, n: int, client: int) -> Moments:
    rng = np.random.default_rng(client)
    x, y = rng.normal(size=(n, d)), np.eye(classes)[rng.integers(0, classes, n)]
    count = np.float64(n)
    return Moments(count, count, x.sum(axis=0), y.sum(axis=0), linalg.gram(x), x.T @ y, count)


def server(clients: int = 100, d: int = 1024, classes: int = 100) -> Iterator[dict[str, Any]]:
    """The recursion is timed on a few clients and scaled: every client after the first costs the same."""
    messages = [client_sums(d, classes, 50, k) for k in range(clients)]
    task = Task("classes", d, classes, np.arange(classes))
    some = 6
    pairs = [published_pair(m, 1.0) for m in messages[:some]]
    theirs = _timed(lambda: published.afl_aggregate(pairs)) / (some - 1) * (clients - 1)
    for ridge in (1.0, "gcv"):
        method = hw.AFL(ridge=ridge, intercept=False)
        start = method.init(task, rng_for(0))

        def ours(method: hw.AFL = method, start: Tree = start) -> object:
            return method.solve(start, summed(messages), task, rng_for(0))  # type: ignore[arg-type]

        (taken,) = seconds(ours)
        yield {
            "ratio": theirs / taken,
            "aim": ">= 500" if ridge != "gcv" else None,
            "ridge": ridge,
            "clients": clients,
            "d": d,
            "classes": classes,
            "seconds": taken,
            "recursion_seconds": theirs,
        }


def published_pair(message: Moments, ridge: float) -> tuple[Any, Any]:
    """What a client of the published method sends: its head and its regularised autocorrelation."""
    c = linalg.unpack(message.gram) + ridge * np.eye(message.cross.shape[0])
    return np.linalg.solve(c, message.cross), c


def memory(d: int = 2048, classes: int = 10) -> Iterator[dict[str, Any]]:
    """Each count in a process of its own, which streams made-up messages into the sum and solves."""
    few, many = (
        int(subprocess.check_output([sys.executable, "-m", "benchmarks.speed", "--stream", str(k)])) for k in (10, 1000)
    )
    yield {"ratio": many / few, "aim": "<= 1.2", "d": d, "classes": classes, "peak_kib": {"10": few, "1000": many}}


def stream(clients: int, d: int = 2048, classes: int = 10) -> int:
    """The peak memory, in KiB, of a server that adds so many messages as they come."""
    base = client_sums(d, classes, 64, 0)

    def arriving() -> Iterator[Moments]:
        for _ in range(clients):
            yield base + base

    method = hw.AFL(ridge=1.0)
    task = Task("classes", d, classes, np.arange(classes))
    method.solve(method.init(task, rng_for(0)), summed(arriving()), task, rng_for(0))  # type: ignore[arg-type]
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def profile(n: int = 1000, maps: int = 2048, inputs: int = 384, classes: int = 100) -> Iterator[dict[str, Any]]:
    """Where the time of one client's models goes, one thread: the calls that take the most, in seconds and as a share."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, inputs)).astype(np.float32), rng.integers(0, classes, n)
    federation = hw.Federation.from_arrays(x, y, np.zeros(n, dtype=int), classes=list(range(classes)))
    run = hw.fit(hw.APFL(ridge=100.0, maps=maps, joint=True), federation)
    with threadpool_limits(1), cProfile.Profile(time.process_time) as spent:
        run.compute()
    found = pstats.Stats(spent)
    calls = sorted(((t, f"{Path(f).name}:{name}") for (f, _, name), (_, _, t, *_) in found.stats.items()), reverse=True)
    yield {"rows": n, "maps": maps, "seconds": found.total_tt} | {
        name: round(t / found.total_tt, 3) for t, name in calls[:8]
    }


def gpu(clients: int = 50, n: int = 1000, inputs: int = 384, classes: int = 100) -> Iterator[dict[str, Any]]:
    """APFL with joint leave-one-out on CUDA tensors, and how far its scores are from NumPy's; nothing where there is no GPU."""
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    if not torch.cuda.is_available():
        return
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, clients * n)
    x = rng.normal(size=(classes, inputs))[y] * 0.3 + rng.normal(size=(clients * n, inputs))
    owner = np.repeat(np.arange(clients), n)

    def fitted(federation: hw.Federation, maps: int) -> hw.Run:
        run = hw.fit(hw.APFL(ridge=10.0, maps=maps, joint=True), federation)
        run.compute()
        return run

    few = owner < 4
    plain, moved = (
        fitted(hw.Federation.from_arrays(to(x[few]), y[few], owner[few]), 512)
        for to in (np.asarray, lambda a: torch.tensor(a).cuda())
    )
    ours = plain.model("0").decision_function(x[:200])
    theirs = moved.model("0").decision_function(torch.tensor(x[:200]).cuda())
    yield {
        "what": "difference",
        "largest": float(np.abs(ours - theirs).max() / np.abs(ours).max()),
        "device": torch.cuda.get_device_name(0),
    }
    federation = hw.Federation.from_arrays(torch.tensor(x.astype(np.float32)).cuda(), y, owner)
    for maps in (2048, 4096):
        (taken,) = seconds(lambda maps=maps: (fitted(federation, maps), torch.cuda.synchronize()), repeats=1)
        yield {
            "what": "fit",
            "clients": clients,
            "rows": n,
            "maps": maps,
            "seconds": taken,
            "device": torch.cuda.get_device_name(0),
        }


BENCHMARKS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "gram": gram,
    "apfl_fit": apfl_fit,
    "server": server,
    "memory": memory,
    "profile": profile,
    "gpu": gpu,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*BENCHMARKS, "all"], nargs="?", default="all")
    parser.add_argument("--stream", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stream:
        print(stream(args.stream))
        return
    told = machine()
    for name in BENCHMARKS if args.name == "all" else [args.name]:
        for row in BENCHMARKS[name]():
            shown = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
            print(
                json.dumps({"name": name, "threads": told["threads"], "device": "cpu", **shown, "machine": told}),
                flush=True,
            )


if __name__ == "__main__":
    main()
