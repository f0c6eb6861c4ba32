"""The table of methods: a name -> a class that holds settings and pure functions. A class is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from ..core.errors import UnknownName, nearest
from ..core.method import Method

_TABLE = {
    "afl": "afl.AFL",
    "apfl": "apfl.APFL",
    "fedhip": "fedhip.FedHiP",
    "local-ridge": "local_ridge.LocalRidge",
    "masked": "label_prior.Masked",
    "log-prior": "label_prior.LogPrior",
}
_ALIASES = {"analytic-apfl": "apfl"}


class _Methods(Mapping[str, type[Method]]):
    """Names need no extra; the class behind a name is imported on access."""

    def __getitem__(self, name: str) -> type[Method]:
        known = _ALIASES.get(name, name)
        if known not in _TABLE:
            raise UnknownName(f"There is no method '{name}'. {nearest(name, _TABLE)}")
        module, cls = _TABLE[known].split(".")
        found: type[Method] = getattr(import_module(f".{module}", __name__), cls)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_TABLE)

    def __len__(self) -> int:
        return len(_TABLE)

    def __contains__(self, name: object) -> bool:
        return name in _TABLE or name in _ALIASES

    def __repr__(self) -> str:
        return f"METHODS({', '.join(_TABLE)})"


METHODS: Mapping[str, type[Method]] = _Methods()


def name_of(method: Method) -> str:
    """The name of a method in the table; of one that is not there, its class's."""
    path = f"{type(method).__module__.rsplit('.', 1)[-1]}.{type(method).__name__}"
    return next((name for name, where in _TABLE.items() if where == path), type(method).__name__)
