"""`meshwright show`: everything in the catalogues can be shown, with sources and calibration."""

import json

import pytest

from hwmodels.cluster import clusters
from hwmodels.device import devices
from meshwright.reports.catalogues import KINDS


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
def test_lists_hold_every_name(run, kind):
    listed = json.loads(run("show", kind, "--json").out)[kind]
    assert sorted(entry["name"] for entry in listed) == sorted(KINDS[kind].names())
    table = run("show", kind).out
    folder = KINDS[kind].folder
    table += run("show", kind, folder).out if folder else ""
    assert all(name in table for name in KINDS[kind].names())


@pytest.mark.parametrize("kind", list(KINDS))
def test_one_entry_is_shown_for_people_and_as_json(run, kind):
    name = KINDS[kind].names()[0]
    entry = json.loads(run("show", kind, name, "--json").out)[kind.removesuffix("s")]
    assert entry["name"] == name
    assert name in run("show", kind, name).out


@pytest.mark.parametrize("name", devices.names())
def test_each_device_says_how_each_kernel_is_calibrated_and_names_sources(run, name):
    entry = json.loads(run("show", "devices", name, "--json").out)["device"]
    assert entry["sources"]
    assert entry["calibration"]["status"] in ("measured", "fitted-elsewhere", "estimated")
    operations = {kernel["operation"] for kernel in entry["kernels"]}
    assert {"gemm", "attention", "memory_bound"} <= operations
    assert all(kernel["source"] for kernel in entry["kernels"])


@pytest.mark.parametrize("name", clusters.names())
def test_each_cluster_names_sources_and_stays_below_its_links(run, name):
    entry = json.loads(run("show", "clusters", name, "--json").out)["cluster"]
    assert entry["sources"]
    fastest = max(level["bandwidth_bytes_per_s"] for level in entry["levels"])
    for row in entry["collectives"]:
        in_switch = 2 if row["operation"] == "all_reduce" else 1
        assert 0 < row["bus_bandwidth_bytes_per_s"] <= in_switch * fastest


def test_links_and_fabrics_are_listed_with_what_was_measured(run, refused):
    listed = json.loads(run("show", "links", "--json").out)["links"]
    kinds = {entry["name"]: entry["kind"] for entry in listed}
    assert (kinds["pcie4"], kinds["roce"]) == ("link", "fabric")
    assert all(entry["source"] and entry["latency_s"] > 0 for entry in listed)
    one = json.loads(run("show", "links", "nvlink4", "--json").out)["link"]
    assert one["protocols"]["all_reduce"]["simple"]["efficiency"] > 0.5
    assert "levels.calibration" in run("show", "links").out
    assert "nvlink5" in refused("show", "links", "nvlnk")
