"""The table of methods."""

import subprocess
import sys

import pytest

import homeward as hw
from homeward.core.errors import UnknownName
from homeward.core.method import Method
from homeward.methods import name_of


@pytest.mark.parametrize("name", hw.METHODS)
def test_every_method_works_without_arguments(name: str) -> None:
    method = hw.METHODS[name]()
    assert isinstance(method, Method)
    assert name_of(method) == name
    assert method == hw.METHODS[name]() and hash(method) == hash(hw.METHODS[name]())
    assert method.settings and all(not key.startswith("_") for key in method.settings)


def test_the_names_of_the_closed_forms() -> None:
    assert {"afl", "apfl", "fedhip", "local-ridge", "masked", "log-prior"} <= set(hw.METHODS)
    assert len(hw.METHODS) == len(list(hw.METHODS)) == len(set(hw.METHODS))
    assert hw.METHODS["apfl"] is hw.APFL and hw.METHODS["fedhip"] is hw.FedHiP


def test_an_alias_is_known_and_not_listed() -> None:
    assert hw.METHODS["analytic-apfl"] is hw.APFL
    assert "analytic-apfl" in hw.METHODS and "analytic-apfl" not in list(hw.METHODS)


@pytest.mark.parametrize(("wrong", "meant"), [("apfll", "apfl"), ("FedHip", "fedhip"), ("local_ridge", "local-ridge")])
def test_an_unknown_name_is_told_the_nearest(wrong: str, meant: str) -> None:
    assert wrong not in hw.METHODS
    with pytest.raises(UnknownName, match=f"Did you mean '{meant}'"):
        hw.METHODS[wrong]
    with pytest.raises(KeyError):
        hw.METHODS[wrong]
    assert hw.METHODS.get(wrong) is None


def test_names_load_no_method() -> None:
    script = (
        "import homeward as hw, sys; names = list(hw.METHODS), len(hw.METHODS), 'apfl' in hw.METHODS, repr(hw.METHODS);"
        "before = 'homeward.methods.apfl' in sys.modules; hw.METHODS['apfl']; print(before, 'homeward.methods.apfl' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "True"]
