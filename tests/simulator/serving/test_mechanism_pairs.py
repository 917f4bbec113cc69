"""Every pair of mechanisms of a step composes, or a rule refuses it with its reason."""

from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from core.errors import InputError
from simulator.serving.pool_costs import MECHANISMS
from simulator.serving.scenario import make_serving
from simulator.serving.steps.shared_tables import SharedTables
from tests.simulator.serving.mechanisms import ASKED, EXCLUDED, SHORTER

BATCHES = (([], 32, 32_000), ([(900, 0)], 0, 0), ([(700, 100)], 40, 50_000))
PAIRS = list(combinations(ASKED, 2))
TABLES = SharedTables()


def steps(*mechanisms, model="llama3.1-8b", **pool):
    """Step times of a replica with some of the mechanisms."""
    data = {
        "model": model,
        "cluster": "dgx-a100-80gb",
        "workload": {
            "kind": "serving",
            "requests": 10,
            "arrivals": {"kind": "burst"},
            "input": 900,
            "output": 50,
        },
        "deployment": {"tensor": 4, **pool, **{k: v for name in mechanisms for k, v in ASKED[name].items()}},
    }
    return make_serving(data, "pair", Path(), TABLES).pools[0].costs.steps


@cache
def seconds(*mechanisms):
    found = steps(*mechanisms)
    return [found.step(*batch) for batch in BATCHES]


def test_every_mechanism_is_asked():
    assert ASKED.keys() | {"encoder"} == {mechanism.key for mechanism in MECHANISMS} | {"power_cap_w"}


@pytest.mark.parametrize("name", sorted(ASKED.keys() - {"power_cap_w"}))
def test_a_decoder_with_an_encoder_refuses_the_others(name):
    with pytest.raises(InputError, match=f"deployment.{name}: .*(without {name}|beside encoder)"):
        steps(name, model="bart-large", engine="transformers")


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_pair_composes_or_is_refused(first, second):
    why = EXCLUDED.get(frozenset((first, second)))
    if why is not None:
        with pytest.raises(InputError, match=why):
            steps(first, second)
        return
    both = seconds(first, second)
    for mechanism, other in ((first, second), (second, first)):
        changes = [with_both - alone for with_both, alone in zip(both, seconds(other), strict=True)]
        if mechanism in SHORTER:
            changes = [-change for change in changes]
        assert min(changes) >= -1e-12, f"{mechanism} has the wrong sign beside {other}"
        assert max(changes) > 1e-6, f"{mechanism} does nothing beside {other}"


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_parts_and_stretches_of_a_pair_are_its_steps(first, second):
    if frozenset((first, second)) in EXCLUDED:
        return
    pair = steps(first, second)
    for batch in BATCHES:
        if "speculation" not in (first, second):
            assert sum(pair.parts(*batch).values()) == pytest.approx(pair.step(*batch), rel=1e-9)
        if not batch[0]:
            assert pair.stretch(*batch[1:])[0] == pytest.approx(pair.step(*batch), rel=1e-9)
