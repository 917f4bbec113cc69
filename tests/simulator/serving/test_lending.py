"""KV blocks that replicas lend each other."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from core.errors import InputError
from simulator.serving.replica.guards import guarding
from simulator.serving.result import serve
from simulator.serving.routers.migration.lend import Lend
from simulator.serving.scenario import make_serving
from simulator.serving.steps.shared_tables import SharedTables

TABLES = SharedTables()


def setting(lends=True, workload=(), **deployment):
    migrate = {"migrate": {"kind": "lend", "interval": 0.05}} if lends else {}
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 60,
            "arrivals": {"kind": "poisson", "rate": 30},
            "input": {"kind": "lognormal", "median": 400, "sigma": 1.3, "most": 7000},
            "output": 60,
            **dict(workload),
        },
        "deployment": {
            "replicas": 4,
            "router": "freeness",
            "options": {"kv_blocks": 250, "max_context": 8192},
            **migrate,
            **deployment,
        },
    }
    return make_serving(data, "test", Path(), TABLES)


def test_requests_longer_than_a_replica_run_on_blocks_of_others():
    with guarding():
        lent = serve(setting())
    assert serve(setting(lends=False)).fleet.refused > 0
    assert lent.fleet.refused == 0
    assert len(lent.records) == 60
    columns = lent.records.columns()
    assert columns["prompt"].max() > 250 * 16
    assert lent.fleet.moves.counts.lent > 0
    # Blocks change hands; none is made.
    kvs = [member.replica.batchers[0].kv for member in lent.fleet.members]
    assert sum(kv.total for kv in kvs) == 4 * 250
    assert all(kv.free == kv.total for kv in kvs)


def test_a_loan_that_nobody_needs_changes_no_byte():
    short = {"input": 300}
    ours, theirs = (
        serve(setting(lends, short, options={"kv_blocks": 4000, "admits_whole": True}))
        for lends in (True, False)
    )
    assert ours.fleet.moves.counts.lent == 0
    for name, column in ours.records.columns().items():
        assert column == pytest.approx(theirs.records.columns()[name], rel=1e-12)


def test_borrowed_kv_costs_messages_in_every_layer():
    fleet = serve(setting()).fleet
    steps, kv = fleet.members[0].replica.steps, fleet.members[0].replica.batchers[0].kv
    plain = steps.target.step((), 8, 8000)
    kv.total, kv.free = 500, 400
    assert steps.step((), 8, 8000) == plain
    kv.free = 0
    assert steps.step((), 8, 8000) > plain


def host(index, unused, head=0, borrowed=0, load=0, queue=0):
    names = ("index", "unused", "head", "borrowed", "load", "queue")
    return SimpleNamespace(**dict(zip(names, (index, unused, head, borrowed, load, queue), strict=True)))


def test_all_that_is_lacking_or_nothing_is_lent():
    policy = Lend(reserve=0)
    enough = policy.loans([host(0, 10, head=100, load=1, queue=1), host(1, 60), host(2, 50)])
    assert sum(loan.blocks for loan in enough) == 90
    assert {loan.target for loan in enough} == {0}
    assert policy.loans([host(0, 10, head=100, load=1, queue=1), host(1, 60)]) == []


def test_two_heads_that_do_not_fit_are_served_one_after_the_other():
    loans = Lend(reserve=0).loans(
        [host(0, 50, head=90, load=1, queue=1), host(1, 50, head=80, load=1, queue=1)]
    )
    assert [(loan.source, loan.target, loan.blocks) for loan in loans] == [(0, 1, 30)]


def test_unused_blocks_go_back():
    loans = Lend(reserve=0).loans([host(0, 40, borrowed=30), host(1, 5, borrowed=-30)])
    assert [(loan.source, loan.target, loan.blocks) for loan in loans] == [(0, 1, 30)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pools": [{"role": "prefill"}, {"role": "decode"}]}, "pools"),
        ({"pipeline": 2}, "pipeline"),
        ({"failures": {"mtbf": 1000}}, "failures"),
        ({"workload": {"prefix": {"tokens": 100}}}, "prefixes"),
    ],
)
def test_what_loans_do_not_go_with_is_refused(change, says):
    workload = change.pop("workload", ())
    with pytest.raises(InputError, match=says):
        setting(True, workload, **change)
