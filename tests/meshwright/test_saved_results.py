"""Results of the API as pages, files and columns; arguments as the command line reads them."""

from __future__ import annotations

import json

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


def test_a_result_without_a_page_says_so():
    with pytest.raises(InputError, match="StepSimulation has no page"):
        mw.simulate("llama3-8b-64-h100").html()


def test_other_files_are_refused(deployed, tmp_path):
    with pytest.raises(InputError, match=r"written as .html or .json or .yaml, found 'd.png'"):
        deployed.save(tmp_path / "d.png")


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
