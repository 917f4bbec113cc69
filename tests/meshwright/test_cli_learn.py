"""``meshwright learn``: rows in, site out, answers that name it; bad input."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace

import pytest

import meshwright as mw
from meshwright.validation.cases import read_cases
from meshwright.validation.rows import PUBLISHED, published_files, read_rows
from simulator.plan import Plans
from simulator.training import step_time
from simulator.uncertainty.learning import MeasuredStep, learn_site


@pytest.fixture
def rows(tmp_path):
    """A function that writes some shipped rows, changed, as a CSV."""

    def write(pattern, many=3, **changes):
        with (PUBLISHED / "megatron_bridge.csv").open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            chosen = [row for row in reader if pattern in row["case_id"]][:many]
            names = reader.fieldnames
        path = tmp_path / "runs.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            for number, row in enumerate(chosen):
                writer.writerow(row | changes.get(f"row{number}", {}))
        return path

    return write


def test_a_site_changes_answers_that_name_it(run, rows, tmp_path):
    site = tmp_path / "site.yaml"
    path = rows("llama3-8b-gb200", 2)
    table = run("learn", str(path), "-o", str(site)).out
    assert "Learned from" in table
    assert "run left out" in table
    question = ["--model", "llama3-8b", "--cluster", "gb200-nvl72", "--gpus", "8", "--global-batch", "128"]
    question += ["--precision", "fp8", "--framework", "megatron-bridge"]
    plain, learned = (
        json.loads(run("simulate", *question, "--fix", "data=8", *more, "--json").out)
        for more in ((), ("--site", str(site)))
    )
    assert learned["site"] == str(path)
    assert learned["step_time_s"] != plain["step_time_s"]
    assert "site" not in plain
    assert "learned from" in run("plan", *question, "--site", str(site)).out


def test_json_names_factors_and_runs(run, rows):
    found = json.loads(run("learn", str(rows("llama3-8b-gb200", 2)), "--json").out)
    assert {entry["part"] for entry in found["learned_factors"]} >= {"products", "host", "network"}
    assert len(found["learned_runs"]) == 2
    assert not all(entry["identified"] for entry in found["learned_factors"])


def test_rows_of_several_devices_are_refused(rows):
    with pytest.raises(mw.InputError, match="several devices"):
        mw.learn(rows("llama3-8b", 60))


def test_times_of_one_plan_that_cannot_both_be_right_are_refused(rows):
    path = rows("llama3-8b-gb200", 1)
    lines = path.read_text().splitlines()
    cells = next(csv.reader([lines[1]]))
    place = lines[0].split(",").index("derived_step_time_s")
    text = path.read_text().rstrip("\n")
    cells[0], cells[place] = "again", str(3 * float(cells[place]))
    again = ",".join(f'"{cell}"' for cell in cells)
    path.write_text(f"{text}\n{again}\n")
    with pytest.raises(mw.InputError, match="cannot both be right"):
        mw.learn(path)


def test_a_file_without_times_is_refused(rows):
    with pytest.raises(mw.InputError, match="no row to learn from"):
        mw.learn(rows("llama3-8b-gb200", 1, row0={"derived_step_time_s": ""}))


def test_a_site_of_another_device_is_refused(refused, rows, tmp_path):
    site = tmp_path / "site.yaml"
    mw.learn(rows("llama3-8b-gb200", 2)).save(site)
    message = refused("simulate", "gpt3-175b-1024-a100", "--site", str(site))
    assert "was learned on the device gb200" in message


def test_trials_are_launch_files_of_the_plans_worth_measuring(run, refused, tmp_path):
    question = ["--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "64"]
    folder = tmp_path / "trials"
    ran = run("plan", *question, "--trials", "2", "--folder", str(folder))
    assert ran.code == 0
    for number in (1, 2):
        place = folder / f"trial-{number}"
        assert len(list(place.iterdir())) > 1
        assert json.loads(run("simulate", str(place / "plan.yaml"), "--json").out)["step_time_s"] > 0
    assert "expected to save" in ran.err
    assert "99" in run("plan", *question, "--trials", "99", "--folder", str(folder)).err


@pytest.mark.slow
def test_three_runs_of_a_published_family_correct_the_next_plans(tmp_path):
    """The loop plan, learn, plan: the runs of DGX Cloud on GB200 share an error."""
    cases = [case for path in published_files() for case in read_cases(path)[0] if is_of_dgx_cloud(case)]
    assert len(cases) == 6
    shown, rest = cases[::2], cases[1::2]
    with_time = [row for path in published_files() for row in read_rows(path)]
    chosen = [row for row in with_time if row["case_id"] in {case.case_id for case in shown}]
    path, site = tmp_path / "runs.csv", tmp_path / "site.yaml"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in chosen for name in row)))
        writer.writeheader()
        writer.writerows(chosen)
    found = mw.learn(path)
    found.save(site)
    before, after = (
        [abs(predicted_s(case, used) / case.measured_step_s - 1) for case in rest]
        for used in (None, found.site)
    )
    assert sum(before) / len(before) > 0.03
    assert sum(after) < 0.6 * sum(before)

    asked = rest[0].setting
    question = {
        "model": asked.model,
        "cluster": asked.cluster,
        "gpus": asked.cluster.devices,
        "framework": asked.framework.name,
        "seq_len": asked.training.seq_len,
        "global_batch": asked.training.global_batch,
        "precision": asked.training.precision,
    }
    first, again = mw.plan(**question), mw.plan(**question, site=site)
    assert again.best.step_time_s < 0.98 * first.best.step_time_s
    assert again.to_dict()["question"]["site"] == str(path)


@pytest.mark.slow
def test_rows_that_differ_in_what_bounds_them_are_learned_together():
    """Some of these wait for the host; a full step of the fit passes the point where they no longer do."""
    cases = [
        case for case in read_cases(PUBLISHED / "megatron_bridge.csv")[0] if "qwen" in case.case_id.lower()
    ]
    rows = [
        case for case in cases if case.setting.cluster.device.name == "gb200" and case.precision != "bf16"
    ]
    steps = [MeasuredStep(row.case_id, row.setting, row.plan, row.measured_step_s) for row in rows]
    found = learn_site(steps)
    assert len(steps) >= 6
    assert abs(found.after).mean() < abs(found.before).mean()


def is_of_dgx_cloud(case):
    place = case.setting.framework.name, case.setting.cluster.device.name
    return case.case_id.lower().startswith("dgxc") and place == ("nemo", "gb200") and case.precision != "bf16"


def predicted_s(case, site):
    return float(step_time(replace(case.setting, site=site), Plans.of(case.plan))[0])


def test_the_page_shows_each_run_and_each_factor(run, rows, tmp_path):
    page = tmp_path / "learn.html"
    learned = json.loads(run("learn", str(rows("llama3-8b-gb200", 2)), "--html", str(page), "--json").out)
    figures = re.findall(r'id="figure-\d">(.*?)</script>', page.read_text(encoding="utf-8"))
    errors, factors = (json.loads(figure)["data"] for figure in figures[:2])
    assert errors[1]["x"] == [row["error_after"] for row in learned["learned_runs"]]
    assert factors[1]["x"] == [row["factor"] for row in learned["learned_factors"]]
