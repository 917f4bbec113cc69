"""Lines of decode steps by batch, which cases of one replica and mean KV share."""

import numpy as np
import pytest

from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.step_arrays import StepArrays
from simulator.serving.steps.table import IterationTable

MOST = 128


def made(stages: int) -> IterationTable:
    pool = Pool.model_validate({"tensor": 1, "pipeline": stages})
    price = StepPrice(models.get("llama3.1-8b"), usual_cluster("h100-sxm"), pool, engines.get("vllm-0.15"))
    return IterationTable(price, 4096, MOST, 16384)


def test_lines_are_the_steps_of_each_case():
    """Without sequences, between whole numbers of them, and at the most; many cases share few lines."""
    random = np.random.default_rng(0)
    which = random.integers(0, 2, 400)
    keys = np.where(random.random(400) < 0.5, 700.5, 3000.0)
    steady = StepArrays([made(1), made(2)]).cases(which)
    for cases in (steady, steady.varying(random.choice([1.0, 3.0, 16.0], 400))):
        line = cases.decodes_at(keys, MOST)
        for batch in (np.zeros(400), random.uniform(1.0, MOST, 400), np.full(400, float(MOST))):
            assert line(batch) == pytest.approx(cases.decode_seconds(batch, keys), rel=1e-12)


def test_cases_that_share_no_lines_make_none():
    """A line costs more than the steps of one case."""
    arrays = StepArrays([made(1)])
    alike = np.zeros(50, np.int64)
    assert arrays.decode_lines(alike, np.arange(50.0) + 100.0, MOST, alike) is None
    assert arrays.decode_lines(alike, np.full(50, 100.0), MOST, alike) is not None


def test_no_cases_have_no_lines():
    """A search may find that no candidate meets its targets."""
    cases = StepArrays([made(1)]).cases(np.zeros(0, np.int64))
    assert len(cases.decodes_at(np.zeros(0), MOST)(np.zeros(0))) == 0
