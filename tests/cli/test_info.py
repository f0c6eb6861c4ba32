"""`list` and `doctor`: tables that say what the code is."""

import json
from importlib import metadata

import pytest

import homeward as hw
from homeward.data.sources import BUILTIN


def test_every_method_is_listed_with_source_and_tags(call) -> None:
    listed = {row["name"]: row for row in json.loads(call("list", "methods", "--json").out)}
    assert listed.keys() == set(hw.METHODS)
    assert all(row["source"] and row["does"] for row in listed.values())
    tags = {name: set(row["tags"]) for name, row in listed.items()}
    assert tags["afl"] == {"one-round", "closed-form", "sums"}
    assert tags["apfl"] == tags["fedhip"] == {"one-round", "closed-form", "sums", "personal"}
    assert tags["log-prior"] == {"closed-form", "sums", "personal"}
    assert tags["local-ridge"] == {"nothing-sent", "closed-form", "personal"}


def test_data_and_laws_are_listed_as_their_tables_are(call) -> None:
    assert [row["name"] for row in json.loads(call("list", "data", "--json").out)] == list(BUILTIN)
    laws = json.loads(call("list", "partitions", "--json").out)
    assert laws[0]["settings"]["clients"] is None
    assert "alpha=..., seed=0" in call("list", "partitions").out


def test_backbones_come_later(call) -> None:
    code, _, err = call("list", "backbones")
    assert code == 0
    assert "later version" in err


@pytest.mark.parametrize("title", ["methods", "data", "partitions"])
def test_everything_is_listed_where_nothing_is_named(call, title: str) -> None:
    assert title in call("list").out.splitlines()[0] + call("list").out


def test_the_doctor_knows_versions_and_extras(call) -> None:
    told = json.loads(call("doctor", "--json").out)
    assert told["versions"]["numpy"] == metadata.version("numpy")
    assert told["machine"]["BLAS threads"] >= 1
    assert told["extras"]["torch"]["install"] == "pip install 'homeward[torch]'"
    assert "dev" not in told["extras"]


def test_a_missing_extra_comes_with_its_pip_line(call, monkeypatch: pytest.MonkeyPatch) -> None:
    there = metadata.version

    def version(package: str) -> str:
        if package == "torch":
            raise metadata.PackageNotFoundError(package)
        return there(package)

    monkeypatch.setattr(metadata, "version", version)
    assert "missing: pip install 'homeward[torch]'" in call("doctor").out
