"""An epoch over a graph: bytes by hand, identities of layouts, and what is refused."""

from pathlib import Path

import pytest

from core.errors import InfeasibleError, InputError
from simulator.graphs.epoch import predict_epoch
from simulator.graphs.question import make_graph

BASE = {
    "model": {"layers": 16, "hidden": 64},
    "cluster": "dgx-a100-80gb",
    "workload": {
        "kind": "graph",
        "vertices": 1_000_000,
        "edges": 30_000_000,
        "features": 100,
        "classes": 10,
        "replicas": 2.5,
    },
}
ROW = 4 * 64 * 1_000_000


def setting(layout=None, **changes):
    data = {**BASE, "layout": layout or {}}
    for key, value in changes.items():
        data[key] = {**data[key], **value}
    return make_graph(data, "test", Path())


def predicted(layout=None, **changes):
    return predict_epoch(setting(layout, **changes))


def test_one_device_exchanges_nothing():
    epoch = predicted()
    assert epoch.boundary_bytes == epoch.replica_bytes == epoch.exchange_s == epoch.bubble_s == 0
    assert epoch.epoch_s == epoch.kernels_s


def test_stages_pass_every_vertex_once_each_way():
    assert predicted({"stages": 8, "chunks": 16}).boundary_bytes == 2 * 7 * ROW
    assert predicted({"stages": 8, "chunks": 64}).boundary_bytes == 2 * 7 * ROW


def test_partitions_exchange_copies_at_every_layer():
    assert predicted({"partitions": 8}).replica_bytes == 2 * 16 * 2.5 * ROW
    assert predicted({"partitions": 8}, workload={"replicas": 0.0}).exchange_s < 1e-3


def test_more_chunks_shorten_the_bubble():
    few, many = predicted({"stages": 8, "chunks": 4}), predicted({"stages": 8, "chunks": 32})
    assert many.bubble_s < few.bubble_s
    assert many.epoch_s < few.epoch_s


def test_an_epoch_is_at_least_its_kernels():
    for layout in ({"stages": 4, "chunks": 8}, {"partitions": 4}, {"stages": 2, "partitions": 4}):
        epoch = predicted(layout)
        assert epoch.epoch_s >= epoch.kernels_s


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ({"stages": 17}, "layout.stages"),
        ({"chunks": 4}, "layout.chunks"),
        ({"stages": 0}, "layout.stages"),
        ({"partitions": 4096, "stages": 16}, "layout"),
    ],
)
def test_what_cannot_be_is_refused(layout, told):
    with pytest.raises(InputError, match=told):
        setting(layout)


def test_a_graph_without_edges_or_devices_that_are_too_small():
    with pytest.raises(InputError, match=r"workload\.edges"):
        setting(workload={"edges": 0})
    with pytest.raises(InfeasibleError, match="more stages or partitions"):
        predicted(workload={"vertices": 10**9})
