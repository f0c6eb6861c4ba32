"""homeward: personalised federated learning. Learn together, and each goes home with a model of its own.

Names are loaded when they are asked for: `import homeward` itself loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "METHODS": "methods",
    "AFL": "methods.afl",
    "APFL": "methods.apfl",
    "FedHiP": "methods.fedhip",
    "LocalRidge": "methods.local_ridge",
    "Masked": "methods.label_prior",
    "LogPrior": "methods.label_prior",
    "standardised": "core.method",
    "Bounds": "core.task",
    "Federation": "core.task",
    "load_model": "core.model",
    "fit": "engine.run",
    "Run": "engine.run",
    "load_run": "engine.store",
    "Partition": "data.partition",
    "dirichlet": "data.laws",
    "grouped": "data.laws",
    "shards": "data.laws",
    "iid": "data.laws",
    "classes": "data.laws",
    "shifted": "data.shift",
    "quantity": "data.laws",
    "FederatedClassifier": "estimator",
    "FederatedRegressor": "estimator",
}
_MODULES = {"errors": "core.errors", "testing": "testing"}

if TYPE_CHECKING:
    from .core import errors as errors
    from .core.method import standardised as standardised
    from .core.model import load_model as load_model
    from .core.task import Bounds as Bounds
    from .core.task import Federation as Federation
    from .data.laws import classes as classes
    from .data.laws import dirichlet as dirichlet
    from .data.laws import grouped as grouped
    from .data.laws import iid as iid
    from .data.laws import quantity as quantity
    from .data.laws import shards as shards
    from .data.partition import Partition as Partition
    from .data.shift import shifted as shifted
    from .engine.run import Run as Run
    from .engine.run import fit as fit
    from .engine.store import load_run as load_run
    from .estimator import FederatedClassifier as FederatedClassifier
    from .estimator import FederatedRegressor as FederatedRegressor
    from .methods import METHODS as METHODS
    from .methods.afl import AFL as AFL
    from .methods.apfl import APFL as APFL
    from .methods.fedhip import FedHiP as FedHiP
    from .methods.label_prior import LogPrior as LogPrior
    from .methods.label_prior import Masked as Masked
    from .methods.local_ridge import LocalRidge as LocalRidge


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if name in _MODULES:
        return import_module(f".{_MODULES[name]}", __name__)
    raise AttributeError(f"module 'homeward' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(["__version__", *_HOME, *_MODULES])
