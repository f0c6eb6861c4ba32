"""Runs on disk."""

import json

import numpy as np
import pytest

import homeward as hw
from homeward.core.errors import BadFile
from homeward.engine.store import file_names
from homeward.testing import toy


def test_a_run_folder_holds_what_the_contract_names(tmp_path):
    run = hw.fit(hw.APFL(maps=8), toy().holdout(0.3))
    folder = run.save(tmp_path / "run", {"partition.npz": b"bytes"})
    names = {p.name for p in folder.iterdir()}
    assert {
        "manifest.json",
        "results.jsonl",
        "models",
        "global.safetensors",
        "server.safetensors",
        "states",
        "log.jsonl",
        "partition.npz",
    } <= names
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (
        manifest["schema"] == 1 and manifest["method"]["name"] == "apfl" and manifest["rounds"] == {"done": 1, "of": 1}
    )
    assert set(manifest["clients"]) == set(run.ids) and manifest["versions"]["homeward"] == hw.__version__
    assert len((folder / "results.jsonl").read_text().splitlines()) == len(run.scores())
    assert not list(folder.rglob("*.pkl"))


@pytest.mark.parametrize(
    "method",
    [hw.APFL(maps=8), hw.LocalRidge(maps=8), hw.standardised(hw.LogPrior(maps=8)), hw.FedHiP(form="weighted")],
    ids=str,
)
def test_a_run_comes_back_as_it_was(tmp_path, method):
    run = hw.fit(method, toy())
    run.save(tmp_path / "run")
    back = hw.load_run(tmp_path / "run")
    assert back.method == method and back.ids == run.ids and back.traffic == run.traffic and back.pending == ()
    x = toy().pooled.x
    for client in run.ids:
        assert np.array_equal(back.model(client).decision_function(x), run.model(client).decision_function(x))
        alone = hw.load_model(tmp_path / "run" / "models" / f"{client.replace(' ', '%20')}.safetensors")
        assert np.array_equal(alone.decision_function(x), run.model(client).decision_function(x))
    assert back.save(tmp_path / "again").is_dir()


def test_ids_of_any_kind_become_files_of_their_own(tmp_path):
    ids = ["../up", "Ward A", "ward a", "Ü/ß", ".", "..", "x" * 300, "x" * 299 + "y", "con\n", "%2E"]
    names = file_names(ids)
    assert len({n.casefold() for n in names.values()}) == len(ids)
    assert all("/" not in n and not n.startswith(".") and len(n) < 220 for n in names.values())
    federation = hw.Federation.from_arrays(np.arange(20.0).reshape(-1, 1), np.arange(20) % 2, np.repeat(ids, 2))
    hw.fit(hw.AFL(), federation).save(tmp_path / "run")
    back = hw.load_run(tmp_path / "run")
    assert set(back.ids) == set(ids) and back.model("../up").client == "../up"
    assert len(list((tmp_path / "run" / "models").iterdir())) == len(ids)


def test_a_method_of_one_s_own_is_given_when_a_run_is_loaded(tmp_path):
    from homeward.core.method import Method

    class Mine(hw.AFL):
        pass

    assert issubclass(Mine, Method)
    hw.fit(Mine(), toy()).save(tmp_path / "run")
    with pytest.raises(BadFile, match=r"load_run\(path, method=...\)"):
        hw.load_run(tmp_path / "run")
    assert hw.load_run(tmp_path / "run", method=Mine()).model("a").slot == "global"


def test_declared_bounds_survive(tmp_path):
    data = toy().clients["a"]
    declared = hw.Bounds(clients=5, rows=100, low=np.full(6, -1.0), high=3.0, weight=1.0)
    federation = hw.Federation.from_arrays(data.x, data.y, ["a"] * data.n, declare=declared)
    hw.fit(hw.AFL(), federation).save(tmp_path / "run")
    back = hw.load_run(tmp_path / "run").task.declared
    assert back.clients == 5 and back.high == 3.0 and np.array_equal(back.low, np.full(6, -1.0))


def test_saving_a_loaded_run_keeps_its_rows_and_models(tmp_path):
    run = hw.fit(hw.APFL(maps=8), toy().holdout(0.3))
    run.save(tmp_path / "a")
    loaded = hw.load_run(tmp_path / "a")
    assert loaded.scores("test") == json.loads(json.dumps(run.scores("test")))
    loaded.save(tmp_path / "b")
    for name in ("results.jsonl", "global.safetensors", "models/a.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("method", [hw.APFL(maps=8), hw.LogPrior(maps=8)], ids=["one round", "two rounds"])
def test_models_of_clients_that_wait_stay_in_the_folder_and_are_named(tmp_path, method):
    federation = toy()
    hw.fit(method, federation, keep_messages=True).save(tmp_path / "run")
    before = (tmp_path / "run" / "models" / "a.safetensors").read_bytes()
    left = hw.load_run(tmp_path / "run").forget("b")
    left.save(tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert "a" in manifest["stale"] and "a" in manifest["pending"]
    assert (tmp_path / "run" / "models" / "a.safetensors").read_bytes() == before
    assert not (tmp_path / "run" / "models" / "b.safetensors").exists()
    assert hw.load_run(tmp_path / "run").pending == left.ids and hw.load_run(tmp_path / "run").scores() == []
    fresh = hw.load_run(tmp_path / "run", federation=federation.without("b")).resume()
    fresh.save(tmp_path / "run")
    again = hw.load_run(tmp_path / "run")
    assert again.pending == () and again.stale == frozenset()
    assert (tmp_path / "run" / "models" / "a.safetensors").read_bytes() != before


def test_a_run_and_a_federation_are_shown_in_a_line():
    federation = toy().holdout(0.3)
    run = hw.fit(hw.APFL(maps=8), federation)
    for value in (run, federation, federation.clients["a"], run.model("a")):
        assert "\n" not in repr(value) and len(repr(value)) < 160, repr(value)


@pytest.mark.parametrize(
    "method",
    [hw.APFL(maps=8, joint=True), hw.FedHiP(form="weighted"), hw.LogPrior(maps=8), hw.standardised(hw.APFL(maps=8))],
    ids=str,
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_run_on_tensors_comes_back_on_tensors(tmp_path, method, device):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    plain = toy()
    rows = {
        n: type(d)(
            plain.task,
            torch.tensor(d.x, device=device),
            torch.tensor(d.y, device=device),
            torch.tensor(d.weight, device=device),
        )
        for n, d in plain.clients.items()
    }
    federation = hw.Federation(plain.task, rows)
    run = hw.fit(method, federation, checkpoint=tmp_path / "run")
    x = plain.pooled.x
    again = hw.load_run(tmp_path / "run", federation=federation)
    assert np.array_equal(again.model("a").decision_function(x), run.model("a").decision_function(x))
    never = hw.fit(method, plain.without("b"))
    left = again.forget("b")
    np.testing.assert_allclose(left.model("a").decision_function(x), never.model("a").decision_function(x), atol=1e-7)
    alone = hw.load_run(tmp_path / "run").forget("b", federation=federation)
    np.testing.assert_allclose(alone.model("a").decision_function(x), never.model("a").decision_function(x), atol=1e-7)
    assert hw.fit(method, federation, checkpoint=tmp_path / "run", resume=True).ids == run.ids
