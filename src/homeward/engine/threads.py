"""Threads: of the linear algebra inside one client's work, or of several clients side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def blas_threads() -> int:
    """Threads that the linear algebra may use now."""
    return max((int(pool["num_threads"]) for pool in _controller().info() if pool["user_api"] == "blas"), default=1)


@contextmanager
def side_by_side(clients: int) -> Iterator[Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]]:
    """A `map` over clients, in their order, on as many threads as the linear algebra may use, which has one in each of them.

    NumPy's products and eigenvalues let other threads go on. A run of a single client leaves all threads to the linear algebra.
    """
    threads = blas_threads()
    if clients < 2 or threads < 2:
        yield map
        return
    with _controller().limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        yield pool.map
