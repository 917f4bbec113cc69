"""Results of the API as pages, files and columns; arguments as the command line reads them."""

from __future__ import annotations

import json
import sys

import pytest
import yaml

import meshwright as mw
from core.errors import InputError

SERVE = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 2, "isl": 500, "osl": 50, "rate": 2}
SIZE = {"model": "llama3.1-8b", "gpus": "8..8", "seq_len": "4k", "global_batch": 64, "tokens": "1T"}


@pytest.fixture(scope="module")
def deployed():
    return mw.deploy(**SERVE, ttft="500ms", tpot="30ms")


def test_a_deployment_is_a_page_a_file_and_columns(deployed, tmp_path):
    assert "output tokens/s of a user" in deployed.html()
    deployed.save(tmp_path / "d.json")
    assert json.loads((tmp_path / "d.json").read_text()) == json.loads(json.dumps(deployed.to_dict()))
    deployed.save(tmp_path / "d.yaml")
    assert mw.simulate(yaml.safe_load((tmp_path / "d.yaml").read_text())).to_dict()["model"] == "llama3.1-8b"
    columns = deployed.columns()
    assert {len(values) for values in columns.values()} == {len(deployed.search.plans)}
    assert columns["tpot_s"][0] <= 0.03


def kinds():
    """One cheap result of every kind."""
    planned = mw.plan(model="llama3.1-8b", cluster="dgx-h100", gpus=8, seq_len="4k", global_batch=64)
    scenario, load = planned.scenario(), {**SERVE, "ttft": 0.5, "tpot": 0.03}
    served = mw.deploy(**load).scenario()
    served["workload"]["requests"] = 50
    here = mw.Execution(workers=1)
    yield planned
    yield planned.best
    yield mw.simulate(scenario)
    yield mw.whatif(scenario, variations={"fp8": {"set": [{"workload.precision": "fp8"}]}}, execution=here)
    yield mw.size(**SIZE, cluster="dgx-h100")
    yield mw.sweep(scenario=scenario, grid={"plan.micro_batch": [1, 2]}, ask="simulate", execution=here)
    yield mw.simulate(served)
    faster = {"faster": {"set": [{"workload.arrivals.rate": 3.0}]}}
    yield mw.whatif(served, variations=faster, replications=1, execution=here)
    front = {name: value for name, value in load.items() if name != "rate"}
    yield mw.serving_front(**{**front, "gpus": 1})
    yield mw.day(rates=[1, 2], **{name: value for name, value in load.items() if name != "rate"})[0]
    for name in (
        "diffusion-sd3.5-large",
        "tables-dlrm-dcnv2",
        "graph-gcn-products",
        "groups-gpt-7.5b",
        "rl-qwen3-30b",
    ):
        yield mw.simulate(name)


@pytest.mark.slow
def test_every_result_is_a_page_a_picture_columns_and_a_table(tmp_path):
    for result in kinds():
        name = type(result).__name__
        assert result.html().startswith("<!DOCTYPE html>"), name
        assert result.plot()._repr_png_().startswith(b"\x89PNG"), name
        columns = result.columns()
        assert len({len(values) for values in columns.values()}) == 1, name
        table = result.save(tmp_path / f"{name}.csv").read_text().splitlines()
        assert len(table) == 1 + len(next(iter(columns.values()))), name
        assert json.loads(result.save(tmp_path / f"{name}.json").read_text()), name


def test_a_picture_shows_what_the_page_shows(deployed):
    import re

    drawn = deployed.plot()
    (panel,) = drawn.axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == (
        "output tokens/s of a user",
        "output tokens/s of a GPU",
    )
    points = panel.collections[-1].get_offsets()
    assert len(points) == len(deployed.search.plans)
    assert points[0][0] == pytest.approx(1 / deployed.best.tpot_s)
    assert len(drawn.legends[0].texts) == len(re.findall('"mode":"lines"', deployed.html()))


def test_pictures_need_an_extra(deployed, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    monkeypatch.delitem(sys.modules, "meshwright.pages.picture", raising=False)
    with pytest.raises(InputError, match=r"pip install '.\[plot\]'"):
        deployed.plot()


def test_other_files_are_refused(deployed, tmp_path):
    with pytest.raises(InputError, match=r"is written as .html, .png, .svg, .pdf, .json, .csv, .yaml, found"):
        deployed.save(tmp_path / "d.xlsx")
    with pytest.raises(InputError, match=r"found 'day\.yaml'"):
        mw.day(rates=[1, 2], **{name: SERVE[name] for name in SERVE if name != "rate"}, ttft=1.0)[0].save(
            tmp_path / "day.yaml"
        )


def test_a_search_without_an_answer_has_no_page():
    nothing = mw.plan(model="llama3.1-405b", cluster="dgx-h100", gpus=8, seq_len="8k", global_batch=8)
    with pytest.raises(mw.InfeasibleError, match="GiB"):
        nothing.html()
    assert nothing.columns() == {}


def test_targets_are_read_as_text(deployed):
    same = mw.deploy(**SERVE, ttft=0.5, tpot=0.03)
    assert same.to_dict() == deployed.to_dict()
    with pytest.raises(InputError, match="ttft: must be seconds"):
        mw.deploy(**SERVE, ttft="soon")
    with pytest.raises(InputError, match="one share"):
        mw.deploy(**SERVE, ttft="p99=1s", tpot="p50=30ms")


def test_sizes_take_a_cluster_or_several_as_text():
    one = mw.size(**SIZE, cluster="dgx-h100")
    assert [size.cluster for size in mw.size(**SIZE, clusters="dgx-h100").sizes] == [
        s.cluster for s in one.sizes
    ]
    with pytest.raises(InputError, match="beside clusters"):
        mw.size(**SIZE, cluster="dgx-h100", clusters=["dgx-b200"])
