"""CO2 of a run's energy by region."""

from pathlib import Path

import pytest

from core.errors import InputError
from hwmodels.grids import PowerGrid, grids
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving


def run(**deployment):
    data = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 10,
            "arrivals": {"kind": "uniform", "rate": 5},
            "input": 200,
            "output": 20,
        },
        "deployment": {"engine": "vllm-0.19", "options": {"max_context": 4096}, **deployment},
    }
    return serve(make_serving(data, "test", Path()))


def test_a_kilowatt_hour_weighs_what_the_table_says():
    grid = PowerGrid(location="somewhere", grams_per_kwh=400.0)
    assert grid.grams(3.6e6) == 400.0
    assert all(0.0 < grid.grams_per_kwh < 1000.0 for grid in grids().regions.values())


def test_a_region_adds_carbon_in_proportion_to_the_energy():
    plain, told = run().to_dict(), run(region="us-central1").to_dict()
    assert "co2_grams_per_million" not in plain
    grams = told["joules_per_million"] / 3.6e6 * 431.95
    assert told["co2_grams_per_million"] == pytest.approx(grams)
    assert told["region"] == "us-central1"


def test_an_unknown_region_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="us-central1"):
        run(region="us-central")
