"""A batch of a recommendation model: identities of shards and parts, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import InfeasibleError, InputError
from simulator.ops.gather import distinct_rows, gathered_bytes
from simulator.tables.ops import dense_parameters
from simulator.tables.scenario import make_tables
from simulator.tables.shards import cut_pieces, place
from simulator.tables.step import predict_step, shardings, timeline

SMALL = {
    "name": "small",
    "dense": 4,
    "width": 32,
    "bottom": [64, 32],
    "top": [64, 1],
    "rows": [1_000_000, 500_000, 2_000, 30],
    "lookups": [20, 3, 1, 1],
}


def setting(gpus=8, shards=None, model=SMALL, library="hugectr", cluster="dgx-h100", **work):
    workload = {"kind": "tables", "batch": 65536, **work}
    data = {
        "model": model,
        "cluster": cluster,
        "gpus": gpus,
        "workload": workload,
        "shards": shards or {},
        "library": library,
    }
    return make_tables(data, "test", Path())


def test_a_table_on_one_device_has_no_exchange():
    step = predict_step(setting(gpus=1))
    assert step.sent_bytes == 0
    assert all(part.wire_s == 0 for part in step.parts.values())


@pytest.mark.parametrize("kind", ["auto", "table", "row", "column"])
@pytest.mark.parametrize("library", ["hugectr", "torchrec"])
def test_pieces_hold_every_row_and_every_read_once(kind, library):
    asked = setting(shards={"kind": kind}, library=library)
    for sharding in shardings(asked):
        pieces = sharding.pieces
        held = np.bincount(pieces.table, pieces.rows * pieces.width)
        read = np.bincount(pieces.table, pieces.lookups * pieces.width)
        assert held == pytest.approx(asked.model.table_rows)
        assert read == pytest.approx(asked.model.table_lookups)
        assert sharding.most_s >= sharding.bound_s * (1 - 1e-12)


def test_copied_tables_are_exchanged_as_gradients_only():
    copied = predict_step(setting(shards={"replicated": 1e12}))
    assert len(copied.sharding.copied) == 4
    assert copied.parts["vectors"].sent == 0
    assert copied.parts["reduce"].sent > predict_step(setting()).parts["reduce"].sent


def test_vectors_by_hand():
    asked = setting(gpus=8, shards={"kind": "table"})
    step = predict_step(asked)
    # Every table lies on a device of its own: 65,536 vectors of 32 numbers of 2 bytes, of which 7 of 8 leave.
    assert step.parts["vectors"].sent == pytest.approx(65536 * 32 * 2 * 7 / 8)


def test_parameters_by_hand():
    top = 4 * 64 + 64 * 32 + (32 + 5 * 4 // 2) * 64 + 64
    assert dense_parameters(setting()) == top


def test_keys_by_hand():
    """Every key finds its device, and is sorted before the update; 25 look-ups a sample, even pieces."""
    asked = setting(shards={"kind": "row"})
    keys = 25 * 65536 / 8
    each_s = asked.library.dealt_key_s + asked.library.sorted_key_s
    assert predict_step(asked).parts["keys"].device_s == pytest.approx(keys * each_s)
    scores = setting(shards={"kind": "row"}, passes="scoring")
    assert predict_step(scores).parts["keys"].device_s == pytest.approx(keys * asked.library.dealt_key_s)


def test_weights_gradients_run_beside_the_exchange_of_vectors():
    step = predict_step(setting())
    one_stream = step.setting.library.model_copy(update={"async_wgrad": False})
    later = timeline(replace(step.setting, library=one_stream), step.parts)
    wgrad, wire = step.parts["top_wgrad"].device_s, step.parts["gradients"].wire_s
    assert later - step.device_s == pytest.approx(min(wgrad, wire)) and min(wgrad, wire) > 0


def test_scores_read_and_do_not_write():
    training, scores = predict_step(setting()), predict_step(setting(passes="scoring"))
    assert scores.step_s < training.step_s / 2
    assert not {"update", "gradients", "reduce", "dense"} & set(scores.parts)


def test_nothing_that_overlaps_saves_more_than_it_takes():
    step = predict_step(setting(gpus=16))
    every = sum(part.device_s + part.wire_s for part in step.parts.values())
    kernels = sum(step.parts[name].device_s for name in ("lookup", "top", "update", "dense"))
    assert kernels <= step.device_s <= every


@settings(max_examples=25, deadline=None)
@given(scale=st.floats(1.1, 8), kind=st.sampled_from(["auto", "table", "row"]))
def test_more_look_ups_never_take_less_time(scale, kind):
    more = {**SMALL, "lookups": [each * scale for each in SMALL["lookups"]]}
    asked = {"kind": kind}
    assert (
        predict_step(setting(model=more, shards=asked)).step_s
        >= 0.999 * predict_step(setting(shards=asked)).step_s
    )


@given(st.floats(1, 1e9), st.floats(1, 1e9), st.floats(0, 1e9))
def test_scattered_reads_lie_between_distinct_and_all(reads, rows, cache):
    distinct = distinct_rows(reads, rows)
    assert 0 <= distinct <= min(reads, rows) * (1 + 1e-9)
    moved = gathered_bytes(reads, distinct, 128.0, cache)
    assert 128 * distinct * (1 - 1e-9) <= moved <= 128 * reads * (1 + 1e-9)


def test_the_largest_piece_goes_first_and_a_full_place_takes_none():
    where = place(np.array([1.0, 5.0, 4.0]), np.array([1.0, 1.0, 1.0]), 2, 2.0)
    assert where.tolist() == [1, 0, 1]
    with pytest.raises(InfeasibleError, match=r"shards\.kind"):
        place(np.ones(3), np.full(3, 2.0), 2, 3.0)


def test_a_piece_by_rows_has_fewer_vectors_than_samples():
    pieces = cut_pieces(np.array([100.0]), np.array([1.0]), 4.0, np.array([4]), "rows", np.array([0]))
    assert pieces.vectors == pytest.approx(np.full(4, 0.25))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"batch": 4}, "workload.batch"),
        ({"batch": 0}, "workload.batch"),
        ({"repeats": 1.0}, "workload.repeats"),
        ({"passes": "scoring", "optimizer": "adagrad"}, "workload.optimizer"),
        ({"shards": {"pieces": 4}}, "shards.pieces"),
        ({"shards": {"kind": "row", "pieces": 9}}, "at most the 8 devices"),
        ({"library": "hugectl"}, "hugectr"),
        ({"model": "dlrm-dcnv3"}, "dlrm-dcnv2"),
        ({"model": {**SMALL, "bottom": [64, 16]}}, "width 32"),
        ({"model": {**SMALL, "lookups": [1]}}, "1 for 4 tables"),
    ],
)
def test_what_cannot_be_is_refused(changes, told):
    with pytest.raises(InputError, match=told):
        setting(**changes)


def test_tables_larger_than_all_devices_are_an_answer():
    huge = {**SMALL, "rows": [10**11, 10**11, 10**11, 10**11]}
    with pytest.raises(InfeasibleError, match="GB"):
        predict_step(setting(model=huge))
