"""One file of settings: read, checked, overridden, and written back to the same again."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeward.config import Config, load, remark, threads
from homeward.core.errors import BadFile, BadSetting, HomewardError
from homeward.core.method import Standardised
from homeward.data.sources import Deal
from homeward.methods import METHODS

FULL = """
[data]
source = "digits"
standardise = false
[partition]
law = "dirichlet"
clients = 20
alpha = 0.3
test = 0.25
[method]
name = "apfl"
ridge = 0.01
maps = "none"
[run]
out = "runs/first"
threads = 1
[compare]
methods = ["apfl", "afl"]
settings.afl = { ridge = 1, "odd name" = [true, "a\\"b"] }
"""


def put(text: str, folder: Path, name: str = "experiment.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_becomes_settings(tmp_path: Path) -> None:
    config = load(put(FULL, tmp_path))
    assert config.data.source == "digits"
    assert config.partition == Deal.of({"law": "dirichlet", "clients": 20, "alpha": 0.3, "test": 0.25})
    assert config.method == METHODS["apfl"](ridge=0.01, maps=None)
    assert (config.run.threads, config.run.seed, config.run.engine) == (1, 0, "inprocess")
    assert config.compare["methods"] == ["apfl", "afl"]


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    config = load(put("", tmp_path))
    assert (config.data, config.partition, config.method) == (None, None, None)
    assert config.run.out == "runs/first"


def test_settings_do_not_change(tmp_path: Path) -> None:
    config = load(put(FULL, tmp_path))
    for section, key in ((config.data, "source"), (config.run, "seed"), (config.method, "ridge")):
        with pytest.raises((AttributeError, ValueError), match=r"frozen|cannot assign"):
            setattr(section, key, 3)


def test_what_is_written_back_resolves_to_the_same(tmp_path: Path) -> None:
    first = load(put(FULL, tmp_path))
    again = load(put(first.to_toml(), tmp_path, "again.toml"))
    assert again.to_toml() == first.to_toml()
    for name in type(first).model_fields:
        assert getattr(again, name) == getattr(first, name)
    assert "tries = 10000" in first.to_toml()  # every setting has its value
    assert 'maps = "none"' in first.to_toml()


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_written_back(name: str, tmp_path: Path) -> None:
    first = load(put(f'[method]\nname = "{name}"', tmp_path))
    assert load(put(first.to_toml(), tmp_path)).method == first.method == METHODS[name]()


@given(
    st.text(min_size=1), st.dictionaries(st.text(), st.recursive(st.text() | st.booleans() | st.integers(), st.lists))
)
def test_any_text_is_written_back(tmp_path_factory: pytest.TempPathFactory, text: str, table: dict[str, Any]) -> None:
    first = Config.model_validate({"run": {"out": text}, "compare": table})
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(first.to_toml(), encoding="utf-8", newline="")
    again = load(path)
    assert (again.run.out, again.compare) == (text, table)


def test_the_path_of_a_file_holds_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load(put('[data]\nsource = "rows.npz"', tmp_path))
    assert f'source = "{tmp_path / "rows.npz"}"' in config.to_toml()


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("method.ridge=0.5", "method", "ridge", 0.5),
        ("method.ridge=1e-3", "method", "ridge", 1e-3),
        ("method.ridge=pinv", "method", "ridge", "pinv"),
        ('method.ridge="pinv"', "method", "ridge", "pinv"),
        ("method.maps=none", "method", "maps", None),
        ("method.joint = true", "method", "joint", True),
        ("run.out=runs/a=b", "run", "out", "runs/a=b"),
        ("run.seed=7", "run", "seed", 7),
        ("data.source=iris", "data", "source", "iris"),
    ],
)
def test_a_dotted_path_overrides(override: str, section: str, key: str, value: object, tmp_path: Path) -> None:
    assert getattr(getattr(load(put(FULL, tmp_path), [override]), section), key) == value


def test_overrides_make_sections_that_are_not_there(tmp_path: Path) -> None:
    config = load(put("", tmp_path), ["method.name=afl", "partition.law=iid", "partition.clients=3"])
    assert config.method == METHODS["afl"]()
    assert config.partition.settings["clients"] == 3


def test_another_method_leaves_aside_what_it_lacks_and_keeps_the_rest(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="afl has no 'gamma', which apfl has. Left aside"):
        config = load(put(FULL.replace("ridge = 0.01", "ridge = 0.01\ngamma = 1.0"), tmp_path), ["method.name=afl"])
    assert config.method == METHODS["afl"](ridge=0.01, maps=None)


@pytest.mark.parametrize("override", ["method.gamma=1.0", "method.rigde=1.0"])
def test_what_is_set_beside_the_new_method_must_be_its_own(override: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="AFL has no setting"):
        load(put(FULL, tmp_path), ["method.name=afl", override])


def test_a_misspelt_setting_is_not_left_aside_with_the_others(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="AFL has no setting 'rigde'"):
        load(put(FULL.replace("ridge", "rigde"), tmp_path), ["method.name=afl"])


def test_some_sections_alone_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    text = load(put(FULL, tmp_path)).to_toml("data", "partition")
    assert [line for line in text.splitlines() if line.startswith("[")] == ["[data]", "[partition]"]


@given(st.text())
def test_a_remark_changes_nothing(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "remark.toml"
    path.write_text(remark(text) + FULL, encoding="utf-8", newline="")
    assert load(path).to_toml() == load(put(FULL, path.parent)).to_toml()


def test_columns_are_standardised_unless_told_otherwise(tmp_path: Path) -> None:
    assert load(put(FULL, tmp_path)).learner() == METHODS["apfl"](ridge=0.01, maps=None)
    assert isinstance(load(put(FULL, tmp_path), ["data.standardise=true"]).learner(), Standardised)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run]\nseed = ", "experiment.toml is no valid TOML: Invalid value .*Mend that line"),
        ("[dta]", r"experiment.toml: there is no section \[dta\]. Did you mean 'data'"),
        ("seed = 1", "experiment.toml: 'seed' stands outside of all sections"),
        ("data = 1", r"\[data\]: this is a section, but it holds 1"),
        ("method = 1", r"\[method\]: this is a section, but it holds 1"),
        ("compare = 1", r"\[compare\]: this is a section, but it holds 1"),
        ("[data]", r"\[data\]: 'source' is missing. Add source = "),
        ("[data]\nsource = 1", r"\[data\]: source = 1, but it should be text in quotes"),
        ('[data]\nsource = ""', r"source = '', but it should be not empty"),
        ('[data]\nsource = "a"\ntask = "clases"', "task = 'clases', but it should be 'classes', 'multilabel' or 'real'"),
        ('[data]\nsource = "a"\nstandardise = 1', "standardise = 1, but it should be true or false"),
        ('[data]\nsource = "a"\nstandardize = true', "no key 'standardize'. Did you mean 'standardise'"),
        ("[run]\nseed = 1.5", "seed = 1.5, but it should be a whole number"),
        ("[run]\nthreads = 0", "threads = 0, but it should be greater than or equal to 1"),
        ('[run]\nengine = "pol"', "engine = 'pol', but this version has"),
        ("[run]\nsed = 1", r"experiment.toml, \[run\]: there is no key 'sed'. Did you mean 'seed'"),
        ("[method]", r"\[method\]: 'name' is missing. Add a method's name, such as name = \"apfl\". Known: afl"),
        ('[method]\nnmae = "apfl"', r"\[method\]: there is no key 'nmae'. Did you mean 'name'"),
        ("[method]\nridge = 1", r"\[method\]: 'name' is missing"),
        ("[method]\nname = 1", r"\[method\]: name = 1, but a method is named by a word"),
        ('[data]\nsorce = "iris"', r"\[data\]: there is no key 'sorce'. Did you mean 'source'"),
        ('[partition]\nlwa = "iid"\nclients = 2', r"\[partition\]: there is no key 'lwa'. Did you mean 'law'"),
        ('[partition]\nlaw = "iid"\ncleints = 2', r"has no setting 'cleints'. Did you mean 'clients'"),
        ('[method]\nname = "apl"', "There is no method 'apl'. Did you mean 'apfl'"),
        ('[method]\nname = "apfl"\nrigde = 1', r"experiment.toml, \[method\]: APFL has no setting 'rigde'. Did you mean 'ridge'"),
        ('[method]\nname = "apfl"\nridge = -1', r"experiment.toml, \[method\]: ridge = -1, but APFL needs"),
        ('[method]\nname = "apfl"\nridge = nan', "ridge = nan, but APFL needs"),
        ('[method]\nname = "afl"\nridge = "none"', "ridge = 'none', but AFL needs"),
        ('[partition]\nlaw = "iidd"', r"experiment.toml, \[partition\]: There is no partition law 'iidd'. Did you mean 'iid'"),
        ('[partition]\nlaw = "iid"', "needs a value for clients"),
        ('[partition]\nlaw = "iid"\nclients = 2\ntets = 0.2', "has no setting 'tets'. Did you mean 'test'|has no setting 'tets'"),
        ("[partition]\nclients = 2", "'clients' is set, but no law"),
        ("[partition]\ntest = 0", "test = 0, but it is 'match' or a fraction"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place_and_what_would_do(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises((BadSetting, BadFile), match=said) as caught:
        load(put(text, tmp_path))
    assert "pydantic" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("override", ["seed", "seed=1", ".seed=1", "run.=1", "=1", "run.seed"])
def test_an_override_that_names_no_setting_is_refused(override: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"sets nothing. Write section.key=value"):
        load(put(FULL, tmp_path), [override])


def test_a_mistake_on_the_command_line_is_said_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"experiment.toml and the command line, \[method\]: ridge = -1"):
        load(put(FULL, tmp_path), ["method.ridge=-1"])
    with pytest.raises(BadSetting, match="'seed' is a value, not a section"):
        load(put("[run]\nseed = 1", tmp_path), ["run.seed.x=1"])


def test_sections_of_later_versions_are_read_and_refused_where_they_would_matter(tmp_path: Path) -> None:
    config = load(put('[data]\nsource = "iris"\n[features]\nbackbone = "x"\n[compare]\n[tune]\n', tmp_path))
    config.refuse_later("run", "method")
    with pytest.raises(
        BadSetting, match=r"experiment.toml, \[features\]: this section comes in a later version, and `run`"
    ):
        config.refuse_later("run", "features")
    with pytest.raises(BadSetting, match=r"\[features\]"):
        config.federation()


@pytest.mark.parametrize(("verb", "section"), [("learner", "method"), ("federation", "data")])
def test_a_section_that_is_needed_and_missing_is_named(verb: str, section: str, tmp_path: Path) -> None:
    with pytest.raises(
        HomewardError, match=rf"experiment.toml has no section \[{section}\], which is needed here. Add"
    ):
        getattr(load(put("", tmp_path)), verb)()


def test_threads_are_as_many_as_said() -> None:
    from homeward.engine.store import blas_threads

    before = blas_threads()
    with threads(1):
        assert blas_threads() == 1
    with threads(None):
        assert blas_threads() == before
