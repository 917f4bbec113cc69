"""The iteration table against the full price, and its plain-number functions against each other."""

import numpy as np
import pytest

from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.question.speculation import Speculation
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.step_arrays import StepArrays
from simulator.serving.steps.step_times import RankBatch
from simulator.serving.steps.table import IterationTable

REPLICAS = {
    "dense": ("llama3.1-8b", "h100-sxm", "vllm-0.15", {}),
    "tensor": ("llama3.1-70b", "h100-sxm", "vllm-0.12", {"tensor": 4}),
    "experts": ("qwen3-30b-a3b", "h100-sxm", "vllm-0.11", {"tensor": 2, "expert": 2}),
    "latent": ("deepseek-v3", "h200-sxm", "sglang-0.5.9", {"tensor": 8, "weights": "fp8"}),
    "sparse": ("deepseek-v3.2", "h200-sxm", "sglang-0.5.9", {"tensor": 8, "weights": "fp8"}),
    "launched": ("llama3.1-8b", "h100-sxm", "tensorrt-llm-1.0", {"tensor": 8}),
    "pipeline": ("llama2-70b", "a100-sxm-80gb", "vllm-0.15", {"tensor": 2, "pipeline": 2}),
}
MOST = 4096, 128, 16384


def made(name: str) -> IterationTable:
    model, device, engine, pool = REPLICAS[name]
    price = StepPrice(models.get(model), usual_cluster(device), Pool(**pool), engines.get(engine))
    return IterationTable(price, *MOST)


@pytest.fixture(scope="module", params=list(REPLICAS))
def table(request) -> IterationTable:
    return made(request.param)


def full(table: IterationTable, prefills, decodes: int, kv_tokens: int) -> float:
    """A step's seconds without interpolation."""
    price = table.price
    tokens = decodes + sum(new for new, _ in prefills)
    seconds = float(price.around(decodes + len(prefills)))

    def products(count: int, padded: bool) -> float:
        captured = count <= max(table.sizes, default=0) or not padded
        count = int(table.padded[count]) if padded else count
        least = 0.0 if captured else max(price.eager - price.gaps, 0.0)
        return max(float(price.linear(count) + price.experts(count)), least)

    attention = float(price.decode_attention(decodes, kv_tokens / decodes)) if decodes else 0.0
    alone = attention + products(decodes, True) + float(price.head(decodes)) if decodes else 0.0
    if not prefills:
        return seconds + alone
    mixed = products(tokens, table.graphs_mixed) + float(price.head(decodes + len(prefills)))
    chunks = sum(float(price.prefill_attention(new, new + before)) for new, before in prefills)
    beside = float(price.decodes_in_prefill(decodes, kv_tokens / decodes)) if decodes else 0.0
    power = price.overlap_exponent
    mixed += (chunks**power + beside**power) ** (1 / power)
    launches = 0.0 if table.graphs_mixed else price.eager
    if decodes > max(table.sizes, default=0) and not table.graphs_mixed:
        launches = max(launches, float(price.around(decodes)) + alone)
    return max(seconds + alone + table.prefill_factor * (mixed - alone), launches)


def test_the_table_agrees_with_the_full_price(table):
    random = np.random.default_rng(1)
    for _ in range(60):
        decodes = int(random.integers(0, MOST[1]))
        kv = int(decodes * random.uniform(20, MOST[2] - 1))
        prefills = []
        if not decodes or random.random() < 0.5:
            prefills = [(int(random.integers(1, 3500)), int(random.integers(0, 8000)))]
        assert table.step(prefills, decodes, kv) == pytest.approx(
            full(table, prefills, decodes, kv), rel=0.01
        )


def test_a_stretch_is_the_steps_that_it_stands_for(table):
    first, growth, steps = table.stretch(48, 48 * 1000)
    for index in range(min(steps, 40)):
        one = table.step((), 48, 48 * (1000 + index))
        assert first + index * growth == pytest.approx(one, rel=1e-9)


def test_arrays_agree_with_plain_numbers(table):
    arrays = table.cases.decode_seconds(np.array([1.0, 7.0, 64.0]), 1500.0)
    plain = [table.step((), count, 1500 * count) for count in (1, 7, 64)]
    assert arrays == pytest.approx(plain, rel=1e-9)
    mixed = table.cases.mixed_seconds(512.0, 100.0, np.array([1.0, 32.0]), 900.0)
    assert mixed == pytest.approx([table.step([(512, 100)], n, 900 * n) for n in (1, 32)], rel=1e-9)


def test_parts_add_up_to_the_step(table):
    parts = table.parts([(256, 0)], 16, 16 * 700)
    assert sum(parts.values()) == pytest.approx(table.step([(256, 0)], 16, 16 * 700))


def test_outside_its_range_the_table_prices_in_full():
    table = made("dense")
    most, price = table.max_tokens, table.price
    for tokens, before in ((most + 1000, 0), (most + 1000, 4000), (most + 3000, 0), (most + 1000, 0)):
        kernels = float(price.linear(tokens)) + float(price.head(1))
        kernels += float(price.prefill_attention(tokens, tokens + before))
        expected = float(price.around(1)) + table.prefill_factor * kernels
        assert table.step([(tokens, before)], 0, 0) == pytest.approx(expected, rel=0.02)


def test_ranks_in_lockstep_take_as_long_as_the_slowest():
    model, device, engine, pool = "deepseek-v3", "h200-sxm", "sglang-0.5.9", {"data": 8, "expert": 8}
    price = StepPrice(
        models.get(model), usual_cluster(device), Pool(weights="fp8", **pool), engines.get(engine)
    )
    table = IterationTable(price, *MOST)
    busy, idle = RankBatch((), 32, 32 * 2000), RankBatch((), 0, 0)
    even = table.lockstep([busy] * 8)
    assert even == pytest.approx(table.step((), 32, 32 * 2000), rel=1e-6)
    assert table.lockstep([busy] + [idle] * 7) == pytest.approx(even, rel=0.01)
    assert table.lockstep([idle] * 8) == 0.0
    prompt = RankBatch([(2048, 0)], 0, 0)
    alone, together = table.lockstep([prompt] + [idle] * 7), table.lockstep([prompt] * 8)
    assert alone < 0.9 * together, "steps outside of graphs are not padded"
    arrays = [float(table.cases.mixed_seconds(2048, 0.0, 0.0, 1.0, ranks=ranks)) for ranks in (1, 8)]
    assert arrays == pytest.approx([alone, together], rel=2e-3)


def test_more_work_takes_longer(table):
    assert table.step((), 64, 64 * 2000) > table.step((), 64, 64 * 1000) > table.step((), 32, 32 * 1000)
    for more, less in (((1024, 0), (512, 0)), ((512, 4096), (512, 0))):
        longer, shorter = table.step([more], 32, 32000), table.step([less], 32, 32000)
        assert longer > shorter or longer == shorter == table.least_mixed_s > 0.0
    idle = table.price.pool.devices * table.price.cluster.device.idle_watts
    sequences = np.array([64.0])
    seconds = np.array([table.step((), 64, 64 * 1000)])
    assert (
        idle
        < table.watts(sequences, sequences, 1000 * sequences, seconds)[0]
        < 2.5 * table.power.devices * table.power.limit_w
    )


def test_a_step_without_a_graph_takes_no_less_than_its_launches():
    price = made("latent").price
    launched = price.model.layers * 2e-3
    price.times = price.dense_times = price.times.model_copy(update={"eager_layer_s": 2e-3})
    table = IterationTable(price, *MOST)
    assert table.step([(64, 0)], 0, 0) == pytest.approx(launched), "kernels of few tokens take less"
    assert table.step([(4096, 0)] * 4, 0, 0) > 1.01 * launched, "those of many tokens hide their launches"
    assert float(table.cases.mixed_seconds(64, 0.0, 0.0, 1.0)) == pytest.approx(table.step([(64, 0)], 0, 0))
    assert table.step([], 8, 8 * 500) < 0.5 * launched, "decodes run in graphs"


@pytest.mark.parametrize("data", [1, 4])
def test_a_server_without_graphs_launches_every_step(data):
    """vLLM's --enforce-eager: steps of 922 tokens on four ranks were as short as their kernels."""
    pool = Pool(data=data, expert=data, largest_graph=1)
    captured, eager = (
        StepPrice(models.get("qwen3-30b-a3b"), usual_cluster("b200"), degrees, engines.get("vllm-0.15"))
        for degrees in (pool.model_copy(update={"largest_graph": None}), pool)
    )
    for price in (captured, eager):
        price.times = price.dense_times = price.times.model_copy(update={"eager_layer_s": 1e-3})
    launched = eager.model.layers * 1e-3
    table, plain = IterationTable(eager, *MOST), IterationTable(captured, *MOST)
    prompt, idle = RankBatch([(256, 0)], 0, 0), RankBatch([], 0, 0)
    step = table.lockstep([prompt] + [idle] * (data - 1)) if data > 1 else table.step([(256, 0)], 0, 0)
    ranks = np.array(1.0) if data > 1 else None
    assert step == pytest.approx(launched)
    assert float(table.cases.mixed_seconds(256, 0.0, 0.0, 1.0, ranks=ranks)) == pytest.approx(launched)
    assert table.step([], 8, 8 * 500) >= launched > 2.0 * plain.step([], 8, 8 * 500)


def test_hosts_that_launch_slowly_launch_a_servers_layers_slowly():
    """Kimi-K2.5's prefill without graphs on GB200 was 35 % too short in TTFT, as if a Xeon launched it."""
    engine, model = engines.get("sglang-0.5.9"), models.get("deepseek-v3")
    xeon, grace = (
        StepPrice(model, usual_cluster(device), Pool(tensor=4, weights="fp8"), engine)
        for device in ("b200", "gb200")
    )
    assert grace.eager == pytest.approx(grace.cluster.host_slowdown * xeon.eager) and xeon.eager > 0.0
    assert grace.gaps == pytest.approx(xeon.gaps), "graphs are launched once a step"
    assert usual_cluster("a100-sxm-80gb").launch_slowdown > usual_cluster("h100-sxm").launch_slowdown == 1.0


def test_decodes_beyond_the_largest_graph_are_launched_one_by_one():
    """SGLang and TensorRT-LLM capture numbers of sequences: verified drafts do not leave the graph."""
    price = made("launched").price
    launched = price.model.layers * 2e-3
    price.times = price.dense_times = price.times.model_copy(update={"eager_layer_s": 2e-3})
    least, engine = {}, price.engine
    for name, pool in (
        ("engine's", price.pool),
        ("stated", price.pool.model_copy(update={"largest_graph": 256})),
        ("drafts", price.pool.model_copy(update={"speculation": Speculation(kind="mtp", tokens=1)})),
    ):
        price.pool = pool
        table = IterationTable(price, 512, 256, 16384)
        least[name] = [table.padded_s[tokens] + price.gaps >= launched for tokens in (128, 200, 300)]
    assert engine.graphs()[-1] == 128
    assert least == {
        "engine's": [False, True, True],
        "stated": [False, False, True],
        "drafts": [False, False, True],
    }


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_prompt_makes_no_step_without_a_graph_shorter(ranks):
    """Decodes beyond the largest graph took the launches of their layers beside attention and sampling; those
    with a prompt took either: 9.9 ms for 129 decodes of gpt-oss on a B200, and 8.4 with a prompt."""
    price = StepPrice(
        models.get("gpt-oss-20b"), usual_cluster("b200"), Pool(data=ranks), engines.get("tensorrt-llm-1.2")
    )
    table = IterationTable(price, 8192, 1024, 4096)
    for decodes in (129, 300, 1000):
        kv = 150 * decodes
        batch = RankBatch([], decodes, kv)
        alone = table.lockstep([batch] * ranks) if ranks > 1 else table.step([], decodes, kv)
        beside = batch._replace(prefills=[(64, 0)])
        mixed = (
            table.lockstep([beside, *[batch] * (ranks - 1)])
            if ranks > 1
            else table.step([(64, 0)], decodes, kv)
        )
        arrays = table.cases.mixed_seconds(64.0, 0.0, float(decodes), 150.0, 1.0, 1.0)
        assert mixed >= alone > price.eager
        least = float(table.cases.decode_seconds(float(decodes), 150.0))
        assert float(arrays) >= least * (1.0 - 1e-12) and least > price.eager
        if ranks == 1:
            assert float(arrays) == pytest.approx(mixed, rel=1e-6)


def test_one_rank_in_lockstep_is_a_step(table):
    """The prefill factor counts for what prompts add, as it does in a step of one rank."""
    for chunks in ((), ((700, 0),), ((300, 1000), (900, 0))):
        one = table.lockstep([RankBatch(chunks, 24, 24 * 900)])
        assert one == pytest.approx(table.step(chunks, 24, 24 * 900), rel=1e-6)


def test_joined_tables_give_each_case_its_own_table():
    tables = [made(name) for name in ("dense", "tensor")]
    tables[1].price.engine = tables[0].price.engine
    joined = StepArrays(tables).cases(np.array([0, 1, 1, 0]))
    sequences, keys = np.array([3.0, 17.5, 64.0, 128.0]), np.array([700.0, 90.0, 5000.0, 12.0])
    decodes = joined.decode_seconds(sequences, keys)
    mixed = joined.mixed_seconds(512.0, 100.0, sequences, keys)
    for case, which in enumerate((0, 1, 1, 0)):
        own = tables[which].cases
        assert decodes[case] == float(own.decode_seconds(sequences[case], keys[case]))
        assert mixed[case] == float(own.mixed_seconds(512.0, 100.0, sequences[case], keys[case]))


@pytest.mark.parametrize("pool", [{"tensor": 2, "pipeline": 4}, {"tensor": 2, "data": 2, "expert": 4}])
def test_a_table_takes_over_what_replicas_of_one_tensor_degree_share(pool):
    model, device, engine, first = REPLICAS["experts"]
    cluster, preset = usual_cluster(device), engines.get(engine)
    like = IterationTable(StepPrice(models.get(model), cluster, Pool(**first), preset), *MOST)
    price = StepPrice(models.get(model), cluster, Pool(**pool), preset)
    fresh, taken = IterationTable(price, *MOST), IterationTable(price, *MOST, like=like)
    for name in ("rank_s", "experts_s", "padded_s", "mixed_s", "head_s"):
        np.testing.assert_array_equal(getattr(taken, name), getattr(fresh, name))
    assert taken.step([(512, 64)], 9, 9000) == fresh.step([(512, 64)], 9, 9000)
