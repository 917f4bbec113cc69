"""200 random compositions of serving policies keep their laws; the same seed gives the same bytes."""

import pytest

from tests.simulator.serving.compositions import check, composition, run, same_bytes

BATCHES, EACH = 10, 20


@pytest.mark.parametrize("batch", range(BATCHES))
def test_compositions_keep_their_laws(batch):
    ran = 0
    for seed in range(batch * EACH, (batch + 1) * EACH):
        result = run(composition(seed))
        if result is not None:
            check(result)
            ran += 1
    assert ran > EACH // 2


@pytest.mark.parametrize("seed", range(0, 60, 6))
def test_the_same_seed_gives_the_same_bytes(seed):
    first, second = (run(composition(seed)) for _ in range(2))
    assert first is None or same_bytes(first, second)


@pytest.mark.parametrize("seed", [5111, 5403])
def test_a_pipeline_steps_forward_where_a_copy_ends_before_a_request_is_ingested(seed):
    result = run(composition(seed))
    assert result is not None
    check(result)
