"""`run`, `predict`, `join` and `forget` on folders, as a user strings them together."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import homeward as hw
from homeward.cli._told import Told
from homeward.data.partition import Partition

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_run_says_where_the_models_are_how_good_they_are_and_what_is_next(place: Path, call) -> None:
    code, out, _ = call("run", "quick.toml")
    assert code == 0
    for said in (
        "fedhip on iris, 3 clients, 2 rounds",
        "personal",
        "global",
        "worst client",
        "kB",
        "runs/first/models",
    ):
        assert said in out
    assert "homeward predict runs/first --client c000" in out
    assert sorted(path.name for path in Path("runs/first/models").iterdir()) == [
        f"c00{k}.safetensors" for k in range(3)
    ]


def test_a_run_is_what_python_gives(place: Path, call) -> None:
    told = json.loads(call("run", "quick.toml", "--json").out)
    X, y = load_iris(return_X_y=True)
    part = hw.dirichlet(y, clients=3, alpha=1.0)
    fed = hw.Federation.from_arrays(X, y, part).holdout(test=0.25)
    run = hw.fit(hw.standardised(hw.FedHiP()), fed)
    values = [row["value"] for row in run.scores() if row["model"] == "personal"]
    assert told["models"][0] == {
        "model": "personal",
        "mean": pytest.approx(np.mean(values)),
        "tenth": pytest.approx(np.quantile(values, 0.1)),
        "worst": min(values),
        "worst_client": told["models"][0]["worst_client"],
    }
    assert told["partition"].split()[0] == part.hash
    assert told["traffic"] == run.traffic


def test_the_folder_holds_what_made_it(place: Path, call) -> None:
    call("run", "quick.toml", "method.ridge=0.5", "run.threads=1")
    part = Partition.load("runs/first/partition.npz")
    manifest = json.loads(Path("runs/first/manifest.json").read_text())
    assert manifest["origin"]["partition"] == part.hash
    assert manifest["origin"]["data"] == "iris"
    assert manifest["method"]["settings"]["ridge"] == 0.5
    assert manifest["machine"]["threads"] == 1
    first = Path("runs/first/results.jsonl").read_bytes()
    assert call("run", "runs/first/config.toml").code == 0  # the settings in full make the same run again
    assert Path("runs/first/results.jsonl").read_bytes() == first


def test_without_test_rows_scores_are_of_rows_left_out(place: Path, call) -> None:
    Path("named.toml").write_text(Path("named.toml").read_text().replace("test = 0.2", ""))
    assert json.loads(call("run", "named.toml", "--json").out)["split"] == "loo"
    assert "each left out in turn" in call("run", "named.toml").out


def test_scores_on_training_rows_come_with_a_warning(place: Path, call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hw.FedHiP, "estimate", lambda *_: {})
    Path("named.toml").write_text(Path("named.toml").read_text().replace("test = 0.2", ""))
    assert "Hold some out: partition.test=0.25" in call("run", "named.toml").err


def test_a_killed_run_goes_on_where_it_was(place: Path, call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("run", "quick.toml", "run.out=whole").code == 0

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(hw.FedHiP, "solve", killed)
        assert call("run", "quick.toml").code == 1
    assert not list(Path("runs/first/models").iterdir())
    assert Path("runs/first/config.toml").exists()
    assert call("run", "quick.toml", "--resume").code == 0
    for name in ("global.safetensors", "server.safetensors", "models/c001.safetensors"):
        assert Path("runs/first", name).read_bytes() == Path("whole", name).read_bytes()


def test_real_targets_are_scored_and_predicted_as_numbers(place: Path, call) -> None:
    changes = ("data.source=diabetes", "partition.law=iid", "method.name=afl", "run.out=real")
    Path("real.toml").write_text(Path("quick.toml").read_text().replace("alpha = 1.0", ""))
    assert json.loads(call("run", "real.toml", *changes, "--json").out)["metric"] == "r2"
    np.save("rows.npy", np.zeros((2, 10)))
    lines = call("predict", "real", "--client", "c000", "rows.npy").out.splitlines()
    assert lines[0] == "file,row,value"
    assert len(lines) == 3


# ---- predict


def test_predict_reads_arrays_and_tables_alike(place: Path, call) -> None:
    call("run", "named.toml")
    rows = np.load("rows.npy")
    np.savez("rows.npz", X=rows)
    np.savetxt("rows.csv", rows, delimiter=",", header="a,b,c,d", comments="")
    np.savetxt("plain.csv", rows, delimiter=",")
    names = ("rows.npy", "rows.npz", "rows.csv", "plain.csv")
    told = json.loads(call("predict", "runs/named", "--client", "north", *names, "--json").out)
    assert [answer["file"] for answer in told["files"]] == list(names)
    model = hw.load_run("runs/named").model("north")
    for answer in told["files"]:
        assert answer["labels"] == model.predict(rows).tolist()
        assert np.allclose(answer["scores"], model.decision_function(rows))


def test_predictions_are_a_table_for_other_programs(place: Path, call) -> None:
    call("run", "named.toml")
    lines = list(csv.DictReader(io.StringIO(call("predict", "runs/named", "--client", "west", "rows.npy").out)))
    assert list(lines[0]) == ["file", "row", "label", "0", "1", "2"]
    for line in lines:
        assert max("012", key=lambda c: float(line[c])) == line["label"]


def test_scores_that_are_no_numbers_of_json_are_null(place: Path, call) -> None:
    deal = '[partition]\nlaw = "classes"\nclients = 3\nper_client = 1\n'
    method = '[method]\nname = "masked"\nmaps = "none"\n[run]\nout = "one"\n'
    Path("one.toml").write_text('[data]\nsource = "iris"\n' + deal + method)
    assert call("run", "one.toml").code == 0
    told = json.loads(call("predict", "one", "--client", "c000", "rows.npy", "--json").out)
    assert told["files"][0]["scores"][0].count(None) == 2


# ---- join and forget


def test_who_joins_and_leaves_again_was_never_there(place: Path, call) -> None:
    call("run", "named.toml")
    before = hw.load_run("runs/named").stranger.decision_function(np.load("rows.npy"))
    assert call("join", "runs/named", "newcomer.toml").code == 0
    assert json.loads(Path("runs/named/manifest.json").read_text())["clients"].keys() == {
        "east", "north", "south", "west",
    }  # fmt: skip
    answer = call("forget", "runs/named", "--client", "east")
    assert answer.code == 0
    assert "sums_before" in answer.out
    run = hw.load_run("runs/named")
    assert np.allclose(run.stranger.decision_function(np.load("rows.npy")), before)
    assert [receipt["action"] for receipt in run.receipts] == ["join", "forget"]
    assert not Path("runs/named/models/east.safetensors").exists()


def test_who_joined_can_be_found_again_for_the_next_change(place: Path, call) -> None:
    call("run", "named.toml")
    call("join", "runs/named", "newcomer.toml")
    assert Path("runs/named/joined-1.toml").exists()
    told = json.loads(call("forget", "runs/named", "--client", "north", "--json").out)
    assert told["pending"] == []
    assert told["clients"] == 3


def test_receipts_are_not_lost_by_the_next_run(place: Path, call) -> None:
    call("run", "named.toml")
    call("forget", "runs/named", "--client", "north")
    code, _, err = call("run", "named.toml")
    assert code == 1
    assert "receipts" in err


def test_rows_that_are_gone_are_replaced_by_the_message(place: Path, call) -> None:
    call("run", "named.toml", "run.keep_messages=true", "data.standardise=false")
    call("run", "named.toml", "run.out=plain", "data.standardise=false")
    message = "runs/named/messages/north.safetensors"
    Path("named.npz").rename("elsewhere.npz")
    answer = call("forget", "runs/named", "--client", "north")
    assert answer.code == 0
    assert "were not found again" in answer.err
    call(
        "run",
        "named.toml",
        "data.source=elsewhere.npz",
        "data.standardise=false",
        "run.keep_messages=true",
        "run.out=b",
    )
    told = call(
        "forget", "plain", "--client", "north", "--message", str(Path("b") / Path(message).relative_to("runs/named"))
    )
    assert told.code == 0
    a, b = (hw.load_run(p).stranger.decision_function(np.load("rows.npy")) for p in ("runs/named", "plain"))
    assert np.allclose(a, b)


def test_models_that_wait_for_rows_come_when_these_are_back(place: Path, call) -> None:
    call("run", "named.toml", "run.keep_messages=true")
    Path("named.npz").rename("elsewhere.npz")
    answer = call("forget", "runs/named", "--client", "north")
    assert "2 of 2 clients wait for their rows: south, west." in answer.err
    assert "federation=" not in answer.err
    assert call("predict", "runs/named", "--client", "west", "rows.npy").code == 1
    Path("elsewhere.npz").rename("named.npz")
    first = call("predict", "runs/named", "--client", "west", "rows.npy")
    assert first.code == 0
    assert "runs/named/models were computed anew and kept" in first.err
    Path("named.npz").unlink()
    again = call("predict", "runs/named", "--client", "west", "rows.npy")
    assert (again.out, again.err) == (first.out, "")


def test_rows_that_changed_are_refused(place: Path, call) -> None:
    call("run", "named.toml")
    held = dict(np.load("named.npz"))
    np.savez("named.npz", **{**held, "X": held["X"] + 1})
    code, _, err = call("forget", "runs/named", "--client", "north")
    assert code == 1
    assert "are not those that it joined with" in err


def kept(place: str = "runs/named") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(place, "results.jsonl").read_text().splitlines()]


def test_who_joined_can_leave_though_the_others_rows_are_gone(place: Path, call) -> None:
    call("run", "named.toml", "data.standardise=false")
    call("join", "runs/named", "newcomer.toml")
    Path("named.npz").unlink()
    answer = call("forget", "runs/named", "--client", "east")
    assert answer.code == 0
    assert "3 of 3 clients wait for their rows: north, south, west." in answer.err
    assert {path.stem for path in Path("runs/named/models").iterdir()} == {"north", "south", "west"}


def test_without_rows_and_message_a_change_is_refused_in_shell_words(place: Path, call) -> None:
    call("run", "named.toml")
    Path("named.npz").unlink()
    before = {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()}
    for line in ("forget runs/named --client north", "join runs/named newcomer.toml --scale kep"):
        answer = call(*line.split())
        assert answer.code == 1
        assert "federation=" not in answer.err
    assert "give its message with --message" in call("forget", "runs/named", "--client", "north").err
    assert {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()} == before


def test_what_cannot_be_told_is_found_out_before_the_folder_changes(
    place: Path, call, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("run", "named.toml")
    before = {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()}
    monkeypatch.setattr("homeward.study.alone.beside", lambda *_: 1 / 0)
    for line in ("forget runs/named --client north", "join runs/named newcomer.toml"):
        assert call(*line.split()).code == 2
    assert {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()} == before


def test_the_folder_says_who_left_and_lists_nobodys_rows(place: Path, call) -> None:
    call("run", "named.toml")
    assert Path("runs/named/partition.npz").exists()
    call("forget", "runs/named", "--client", "north")
    call("forget", "runs/named", "--client", "west")
    assert not Path("runs/named/partition.npz").exists()
    first, second, third = Path("runs/named/config.toml").read_text().splitlines()[:3]
    assert first.startswith("# west left this run on 20")
    assert second.startswith("# north left this run on 20")
    assert third == "[data]"
    code, out, err = call("predict", "runs/named", "--client", "north", "rows.npy")
    assert (code, out) == (1, "")
    assert "'north' is not in this run: it was taken out on 20" in err
    assert "taken out on 20" in call("forget", "runs/named", "--client", "north").err


def test_what_joined_is_kept_as_data_and_partition_alone(place: Path, call) -> None:
    call("run", "named.toml")
    answer = call("join", "runs/named", "newcomer.toml")
    text = Path("runs/named/joined-1.toml").read_text()
    assert [line for line in text.splitlines() if line.startswith("[")] == ["[data]", "[partition]"]
    assert "holds nothing out" not in answer.err


def test_newcomers_that_hold_nothing_out_are_said_to_go_without_a_score(place: Path, call) -> None:
    call("run", "named.toml")
    Path("newcomer.toml").write_text('[data]\nsource = "newcomer.npz"\n')
    answer = call("join", "runs/named", "newcomer.toml")
    assert "Not scored, for want of test rows: east (30 training rows)." in answer.out
    assert "newcomer.toml holds nothing out of these newcomers' rows" in answer.err


# ---- does joining help


def test_a_run_says_of_each_client_whether_joining_helps(place: Path, call) -> None:
    out = call("run", "named.toml").out
    for name in ("north", "south", "west"):
        (line,) = [line for line in out.splitlines() if line.startswith(f" {name} ") and " to " in line]
        assert line.rstrip().endswith(("helped", "hurt", "cannot tell"))
    assert "Joining helped" in out
    assert "not corrected for many clients" in out
    alone = {row["client"]: row["value"] for row in kept() if row["model"] == "local"}
    assert call("run", "named.toml", "method.name=local-ridge", "method.maps=none", "run.out=alone").code == 0
    assert alone == {row["client"]: row["value"] for row in kept("alone")}
    assert {row["method"] for row in kept() if row["model"] == "local"} == {"local-ridge"}


def test_the_same_facts_are_in_json(place: Path, call) -> None:
    told = json.loads(call("run", "named.toml", "--json").out)
    clients = told["joining"]["clients"]
    assert {one["client"] for one in clients} == {"north", "south", "west"}
    for one in clients:
        assert one["low"] <= one["difference"] == pytest.approx(one["together"] - one["alone"])
        assert one["verdict"] in ("helped", "hurt", "cannot tell")
    assert sum(told["joining"]["counts"].values()) == 3
    assert told["joining"]["control"]["method"] == "local-ridge"
    assert told["models"][-1]["model"] == "local"
    assert told["leaves"].startswith(
        "the sums and the squares of each column, then sums over its rows: of its 4 columns"
    )


@pytest.mark.parametrize("how", ["--no-control", "method.name=local-ridge"])
def test_the_control_can_be_left_out(how: str, place: Path, call) -> None:
    assert json.loads(call("run", "named.toml", "--json", how).out)["joining"] is None
    assert "Joining helped" not in call("run", "named.toml", how).out
    assert {row["model"] for row in kept()} <= {"personal", "global"}


def test_many_clients_are_not_all_trained_alone(place: Path, call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homeward.cli._told.MOST_CONTROLLED", 2)
    out = call("run", "named.toml").out
    assert "With more than 2 clients they are not also trained alone." in out
    monkeypatch.setattr("homeward.cli._told.MOST_CONTROLLED", 3)
    monkeypatch.setattr("homeward.cli._told.MOST_LINES", 1)
    assert "... and 2 more clients, whom joining helps more: results.jsonl" in call("run", "named.toml").out


def test_clients_without_test_rows_and_rows_given_away_are_named(place: Path, call) -> None:
    held = dict(np.load("named.npz"))
    group = held["group"].astype("U9")
    group[0], held["y"][1] = "tiny", 7
    np.savez("named.npz", **{**held, "group": group})
    answer = call("run", "named.toml")
    assert "Not scored, for want of test rows: tiny (1 training row)." in answer.out
    assert f"tiny has 1 row of '{held['y'][0]}': its message contains that row." in answer.err
    assert "north has 1 row of '7': its message contains that row." in answer.err
    assert "What left each client: the sums and the squares of each column, then sums" in answer.out
    assert "its message contains" not in call("run", "named.toml", "method.name=local-ridge").err


def test_a_message_larger_than_the_rows_is_said(place: Path, call) -> None:
    out = call("run", "named.toml", "method.name=apfl").out
    assert "For 3 of 3 clients that is more than the rows themselves as numbers" in out
    assert "fedhip and afl, which read the columns as they are, send less" in out


def test_settings_that_another_method_lacks_are_left_aside(place: Path, call) -> None:
    Path("named.toml").write_text(Path("named.toml").read_text().replace("[run]", "gamma = 1.0\nridge = 0.5\n[run]"))
    answer = call("run", "named.toml", "method.name=afl")
    assert answer.code == 0
    assert "afl has no 'gamma', which fedhip has. Left aside." in answer.err
    assert json.loads(Path("runs/named/manifest.json").read_text())["method"]["settings"]["ridge"] == 0.5
    assert "AFL has no setting 'gamma'" in call("run", "named.toml", "method.name=afl", "method.gamma=1").err


# ---- the example, and what is shown


@pytest.mark.slow
@pytest.mark.parametrize("config", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_the_examples_run(config: Path, place: Path, call) -> None:
    code, out, _ = call("run", str(config), "run.out=example")
    assert code == 0
    assert "personal" in out
    assert call("data", "inspect", str(config)).code == 0


def test_the_summary_is_the_mean_over_clients_and_the_worst_of_them(toy: hw.Federation) -> None:
    told = Told.of(hw.fit(hw.FedHiP(), toy.holdout(0.3)))
    for row in told.summary:
        values = [r["value"] for r in told.rows if r["model"] == row["model"]]
        assert row["mean"] == pytest.approx(np.mean(values))
        assert row["worst"] == min(values)


def test_another_client_s_message_is_refused_and_changes_nothing(place: Path, call) -> None:
    call("run", "named.toml", "run.keep_messages=true", "data.standardise=false")
    before = sorted(p.read_bytes() for p in Path("runs/named").rglob("*") if p.is_file())
    answer = call("forget", "runs/named", "--client", "north", "--message", "runs/named/messages/south.safetensors")
    assert answer.code == 1 and "is what 'south' sent, not 'north'" in answer.err
    assert sorted(p.read_bytes() for p in Path("runs/named").rglob("*") if p.is_file()) == before


def test_a_column_in_other_units_is_named_by_run_too(place: Path, call) -> None:
    draw = np.random.default_rng(0)
    y = np.arange(120) % 2
    group = np.repeat(["north", "south", "east"], 40)
    x = draw.normal(size=(120, 3)) + y[:, None]
    x[group == "east", 1] = 100 * x[group == "east", 1] + 5000
    np.savez("odd.npz", X=x, y=y, group=group)
    Path("odd.toml").write_text('[data]\nsource = "odd.npz"\n[method]\nname = "fedhip"\n[run]\nout = "odd"\n')
    assert "column 1 at east" in call("run", "odd.toml").err
