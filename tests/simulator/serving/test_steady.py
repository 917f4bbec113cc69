"""Steady states: Little's law, limits, and agreement with the event engine."""

from pathlib import Path

import numpy as np
import pytest

from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steady.prompts_first import lane_steps, rank_steps
from simulator.serving.steady.steady import Limits, Load, steady_state
from simulator.serving.steady.steady_cases import Cases
from simulator.serving.steps.memory import check_fits, kv_token_bytes, memory
from simulator.serving.steps.power import PowerModel
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.table import IterationTable


@pytest.fixture(scope="module")
def table() -> IterationTable:
    cluster = usual_cluster("h100-sxm")
    price = StepPrice(models.get("llama3.1-8b"), cluster, Pool(), engines.get("vllm-0.15"))
    return IterationTable(price, 2048, 64, 4096)


LIMITS = Limits(2048, 64, 400_000)
OPTIONS = {"token_budget": 2048, "prefix_caching": False, "max_context": 4096}


def ran(requests, arrivals, prompts, outputs, first, last, **deployment) -> dict[str, float]:
    """Mean latencies of the event engine, s, without the first and the last requests."""
    data = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": requests,
            "arrivals": arrivals,
            "input": {"kind": "uniform", "low": prompts[0], "high": prompts[1]},
            "output": {"kind": "uniform", "low": outputs[0], "high": outputs[1]},
        },
        "deployment": {"engine": "vllm-0.15", "weights": "bf16", **deployment},
        "seed": 3,
    }
    columns = serve(make_serving(data, "test", Path())).records.columns()
    columns = {name: values[first : len(values) - last] for name, values in columns.items()}
    ttft = columns["first_s"] - columns["arrival_s"]
    e2e = columns["last_s"] - columns["arrival_s"]
    tpot = (e2e - ttft) / (columns["output"] - 1)
    return {"ttft": float(ttft.mean()), "tpot": float(tpot.mean()), "e2e": float(e2e.mean())}


def closed(clients, prompts, outputs, slots, blocks, rounds=12, **degrees) -> dict[str, float]:
    """As `ran`, at constant concurrency."""
    options = {**OPTIONS, "max_sequences": slots, "kv_blocks": blocks}
    arrivals = {"kind": "closed", "concurrency": clients, "gap": 0.001}
    return ran(rounds * clients, arrivals, prompts, outputs, 2 * clients, clients, options=options, **degrees)


def test_littles_law_holds_under_constant_concurrency(table):
    state = steady_state(table, Load(512, 128, np.array([1.0, 8.0, 32.0, 64.0])), LIMITS)
    in_system = state.requests_s * (state.ttft_s + state.decode_s)
    assert in_system == pytest.approx([1, 8, 32, 64], rel=1e-6)
    assert (np.diff(state.tpot_s) > 0).all() and (np.diff(state.output_tokens_s) > 0).all()


def test_one_client_waits_for_nobody(table):
    state = steady_state(table, Load(512, 128, 1.0), LIMITS)
    assert float(state.tpot_s) == pytest.approx(float(table.cases.decode_seconds(1.0, 512 + 64)), rel=1e-3)
    assert float(state.queue_s) == pytest.approx(0.0, abs=1e-6)


def test_a_rate_above_the_capacity_is_not_stable(table):
    state = steady_state(table, Load(512, 128, rate=np.array([0.5, 5.0, 500.0])), LIMITS)
    assert state.stable.tolist() == [True, True, False]
    assert np.isinf(state.ttft_s[2])


def test_cases_do_not_depend_on_their_neighbours(table):
    alone = steady_state(table, Load(512, 128, 16.0), LIMITS)
    beside = steady_state(table, Load(np.array([512.0, 2000.0]), 128, np.array([16.0, 60.0])), LIMITS)
    assert float(alone.tpot_s) == pytest.approx(float(beside.tpot_s[0]), rel=1e-12)


@pytest.mark.parametrize("clients", [4, 16, 48])
def test_the_event_engine_agrees(table, clients):
    run = closed(clients, (410, 614), (103, 153), 64, 25_000)
    state = steady_state(table, Load(512.0, 128.0, clients), LIMITS)
    assert float(state.tpot_s) == pytest.approx(run["tpot"], rel=0.03)
    assert float(state.ttft_s + state.decode_s) == pytest.approx(run["e2e"], rel=0.03)


@pytest.mark.parametrize("clients", [16, 48, 64])
def test_the_event_engine_agrees_where_prompts_fill_all_steps(table, clients):
    """Prompts of 2,000 tokens and 64 outputs: with 48 clients most of a decode's time is prompts."""
    run = closed(clients, (1900, 2100), (60, 68), 64, 25_000)
    state = steady_state(table, Load(2000.0, 64.0, clients), LIMITS)
    assert float(state.tpot_s) == pytest.approx(run["tpot"], rel=0.03)
    assert float(state.ttft_s + state.decode_s) == pytest.approx(run["e2e"], rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("clients", [8, 32, 96])
def test_the_event_engine_agrees_on_pipelines(table, clients):
    """Two stages: two micro batches in flight, each with half of the clients."""
    price = StepPrice(table.price.model, table.price.cluster, Pool(pipeline=2), table.price.engine)
    staged = IterationTable(price, 2048, 64, 4096)
    run = closed(clients, (410, 614), (103, 153), 128, 50_000, 72, pipeline=2)
    state = steady_state(staged, Load(512.0, 128.0, clients), Limits(2048, 128, 800_000))
    assert float(state.tpot_s) == pytest.approx(run["tpot"], rel=0.08)
    assert float(state.ttft_s + state.decode_s) == pytest.approx(run["e2e"], rel=0.08)


@pytest.mark.parametrize("rate", [9.0, 18.0, 26.0])
def test_the_event_engine_agrees_under_poisson_arrivals(table, rate):
    """About 34 requests a second are the most that 64 slots carry."""
    options = {**OPTIONS, "max_sequences": 64, "kv_blocks": 25_000}
    arrivals = {"kind": "poisson", "rate": rate}
    run = ran(1500, arrivals, (410, 614), (103, 153), 200, 100, options=options)
    state = steady_state(table, Load(512.0, 128.0, rate=rate), LIMITS)
    assert float(state.tpot_s) == pytest.approx(run["tpot"], rel=0.04)
    assert float(state.ttft_s) == pytest.approx(run["ttft"], rel=0.15)
    assert float(state.ttft_s + state.decode_s) == pytest.approx(run["e2e"], rel=0.04)


def test_kv_capacity_agrees_with_published_logs():
    """KV blocks that vLLM 0.15.1 logs on H100 (inference-sim/sim-to-real-accuracy-validation)."""
    logged = [
        ("llama2-7b", 1, 2048, 7463),
        ("qwen2.5-7b", 1, 2048, 65352),
        ("mistral-nemo-12b", 2, 1024, 48009),
    ]
    for name, tensor, budget, blocks in logged:
        cluster = usual_cluster("h100-sxm")
        price = StepPrice(models.get(name), cluster, Pool(tensor=tensor), engines.get("vllm-0.15"))
        assert memory(price, budget, 128, 0.9).kv_blocks == pytest.approx(blocks, rel=0.03)


def test_sparse_attention_keeps_keys_of_its_indexer():
    """576 values of the latent vector in 16 bits, and 128 in 8 bits with a scale, a token and layer."""
    sparse, dense = (
        kv_token_bytes(models.get(name), 8, 1, None) for name in ("deepseek-v3.2", "deepseek-v3")
    )
    assert dense == 61 * 576 * 2 and sparse == dense + 61 * (128 + 4)


def test_a_model_that_does_not_fit_says_by_how_much():
    from core.errors import InfeasibleError

    cluster = usual_cluster("h100-sxm")
    price = StepPrice(models.get("llama3.1-70b"), cluster, Pool(), engines.get("vllm-0.15"))
    with pytest.raises(InfeasibleError, match=r"GiB too much a device.*2 devices a replica or fp8 weights"):
        check_fits(price, memory(price, 2048, 128))


@pytest.mark.parametrize("engine", ["vllm-0.19", "sglang-0.5.12", "tensorrt-llm-1.3"])
def test_prompts_whose_kv_arrives_do_not_delay_decodes(engine):
    """On a replica that only decodes, a request joins the next step: each step is a decode step."""
    pool = Pool(data=8, expert=8, weights="fp8")
    price = StepPrice(models.get("deepseek-v3"), usual_cluster("h200-sxm"), pool, engines.get(engine))
    table = IterationTable(price, 8192, 256, 4096)
    state = steady_state(table, Load(1024, 256, 1024.0, cached=1023.0), Limits(8192, 256, 2_000_000))
    alone = table.cases.decode_seconds(state.batch, 1024 + 128)
    assert float(state.tpot_s) == pytest.approx(float(alone), rel=0.02)


def served(rate: float, prompt: int, output: int, pool: dict, model: str = "mixtral-8x7b") -> dict:
    """A scenario under Poisson arrivals of equal requests."""
    return {
        "model": model,
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 1200,
            "warmup": 0.3,
            "arrivals": {"kind": "poisson", "rate": rate},
            "input": {"kind": "fixed", "tokens": prompt},
            "output": {"kind": "fixed", "tokens": output},
        },
        "deployment": {"engine": "vllm-0.19", **pool},
    }


@pytest.mark.parametrize("pool", [{"data": 4, "engine": "tensorrt-llm-1.2"}, {"pipeline": 4}, {}])
def test_equal_requests_that_begin_together_prefill_together(pool):
    """Prompts that filled a step on every rank and in every micro batch at the start do so in each round."""
    pool, ranks = {"engine": "vllm-0.15", **pool}, pool.get("data", 1)
    slots, prompt, output, rounds = 64, 1500, 200, 6
    options = {"token_budget": 3200, "prefix_caching": False, "max_context": 4096, "max_sequences": slots}
    data = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": rounds * slots * ranks,
            "arrivals": {"kind": "burst"},
            "input": prompt,
            "output": output,
        },
        "deployment": {"weights": "bf16", **pool, "options": options},
    }
    setting = make_serving(data, "test", Path())
    columns = serve(setting).records.columns()
    rate = rounds * slots * ranks * output / float(columns["last_s"].max())
    load = {"prompt": prompt, "output": output, "concurrency": slots * ranks}
    limits = Limits(3200, slots, 400_000)
    table = setting.pools[0].costs.steps
    together = steady_state(table, Load(**load, together=1.0), limits)
    assert float(together.output_tokens_s) == pytest.approx(rate, rel=0.06)


@pytest.mark.parametrize(
    ("engine", "clients", "prompt", "output"),
    [
        *(("tensorrt-llm-1.2", clients, 1024, output) for clients, output in ((8, 64), (8, 512), (64, 512))),
        pytest.param(
            *("tensorrt-llm-1.2", 64, 1024, 64),
            marks=pytest.mark.xfail(
                strict=True, reason="the steady state's TTFT is 33 % high with 0.14's constants of engines"
            ),
        ),
        ("vllm-0.15", 32, 1024, 128),
        ("sglang-0.5.6", 32, 2048, 256),
    ],
)
def test_clients_that_begin_together_agree_with_the_event_engine(engine, clients, prompt, output):
    """Groups that prefilled together stay together: their prompts queue behind each other, and so they decode
    beside fewer prompts than requests that come at any time."""
    options = {"token_budget": 2 * prompt + 64, "prefix_caching": False, "max_sequences": clients}
    options |= {"scheduler": "chunked", "max_context": 4096}
    data = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 10 * clients,
            "arrivals": {"kind": "closed", "concurrency": clients},
            "input": prompt,
            "output": output,
        },
        "deployment": {"weights": "bf16", "engine": engine, "options": options},
    }
    setting = make_serving(data, "test", Path())
    columns = serve(setting).records.columns()
    columns = {name: values[2 * clients : -clients] for name, values in columns.items()}
    ttft = columns["first_s"] - columns["arrival_s"]
    tpot = (columns["last_s"] - columns["first_s"]) / (output - 1)
    limits = Limits(options["token_budget"], clients, 400_000, interleaved=True)
    table = setting.pools[0].costs.steps
    at_once = steady_state(table, Load(prompt, output, clients, together=1.0), limits)
    assert float(at_once.tpot_s) == pytest.approx(tpot.mean(), rel=0.03)
    assert float(at_once.ttft_s) == pytest.approx(ttft.mean(), rel=0.25)
    assert at_once.last_tpot_s <= at_once.tpot_s


def rate_of(load, prompt, output, pool, model="mixtral-8x7b", **keys) -> float:
    """Requests/s at which lone requests would be served `load` at a time, whatever kernels cost."""
    setting = make_serving({**served(1.0, prompt, output, pool, model), **keys}, "test", Path())
    one = setting.pools[0]
    budget, slots = (pool["options"][name] for name in ("token_budget", "max_sequences"))
    limits = Limits(budget, slots, one.costs.kv_blocks * one.options.block_tokens)
    lone = steady_state(one.costs.steps, Load(prompt, output, 1.0), limits)
    return load / float(lone.ttft_s + lone.decode_s)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "prompt", "output", "budget"),
    [(17.4, 2000, 200, 2048), (30.7, 1000, 200, 512), (65.9, 100, 20, 2048)],
)
def test_ranks_in_lockstep_agree_with_the_event_engine(load, prompt, output, budget):
    """Prompts of all ranks delay all decodes, and decodes take tokens of the budget.

    A step lasts as long as that of the rank with most prompts: spread evenly, the last was 13 % short. The
    p90 of 1,200 requests scatters by 10 % with the seed.
    """
    pool = {"data": 4, "expert": 4, "options": {"token_budget": budget, "max_sequences": 128}}
    rate = rate_of(load, prompt, output, pool)
    data = served(rate, prompt, output, pool)
    data["workload"] |= {"requests": 6000}
    setting = make_serving(data, "test", Path())
    run = serve(setting).metrics.latencies
    one = setting.pools[0]
    price = StepPrice(setting.model, setting.cluster, one.pool, engines.get("vllm-0.19"))
    limits = Limits(budget, 128, one.costs.kv_blocks * one.options.block_tokens)
    state = steady_state(IterationTable(price, budget, 128, 4096), Load(prompt, output, rate=rate), limits)
    assert float(state.tpot_s) == pytest.approx(run["tpot"].mean, rel=0.06)
    assert float(state.ttft_s) == pytest.approx(run["ttft"].mean, rel=0.12)
    tail = float(state.tpot_s + 1.28 * state.tpot_spread_s)
    assert tail == pytest.approx(run["tpot"].p90, rel=0.08)


@pytest.mark.parametrize("rate", [20.0, 60.0, 150.0])
@pytest.mark.parametrize("batch", [4, 48, 256])
def test_rounds_of_two_stages_are_those_of_their_turns(table, rate, batch):
    """One of two micro batches leaves d / 2 behind the other, or by what its turn exceeds half of that one's.

    It computes the prompts that came meanwhile. At 90 % of turns with prompts decodes were 60 % too fast.
    """
    price = StepPrice(table.price.model, table.price.cluster, Pool(pipeline=2), engines.get("sglang-0.5.12"))
    steps = IterationTable(price, 8192, 512, 4096).cases
    cases = Cases(steps, Load(np.array([100.0]), 1000, rate=np.array([rate])), Limits(8192, 512, 4_000_000))
    step = cases.decode(np.array([float(batch)]))
    prompts = cases.prefills(np.array([float(batch)]), step)
    turns = prompts.seconds(np.maximum(np.arange(82.0), 1.0))
    random, kept, before, spent, decodes = np.random.default_rng(7), [0, 0], float(step[0]), 0.0, 0
    for _ in range(40_000):
        number = kept.pop(0)
        turn = float(turns[number]) if number else float(step[0])
        decodes += not number
        gap, before = max(0.5 * turn, turn - 0.5 * before), turn
        spent += gap
        kept.append(min(int(random.poisson(rate * gap)), 81))
    lanes = None
    for _ in range(4):
        lanes = lane_steps(cases, np.array([rate / 2]), step, prompts, lanes)
    assert float(lanes.tpot_s[0]) == pytest.approx(2.0 * spent / decodes, rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "prompt", "budget"),
    [
        (26.6, 100, 1024),
        (53.3, 100, 1024),
        (8.46, 1500, 1024),
    ],
)
def test_pipelines_whose_prompts_come_first_agree_with_the_event_engine(load, prompt, budget):
    """A micro batch gives up a turn to prompts, and the others only wait for it: TPOT was 20 to 78 % long.

    None plans while a prompt is in the pipeline, and a prompt that begins in what another leaves of a turn
    waits for the next turn of that micro batch: TTFT was up to 33 % short.
    """
    options = {"token_budget": budget, "max_sequences": 512, "prefix_caching": False}
    pool = {"engine": "sglang-0.5.12", "pipeline": 2, "options": options}
    rate = rate_of(load, prompt, 100, pool, "llama3.1-8b")
    data = served(rate, prompt, 100, pool, "llama3.1-8b")
    data["workload"] |= {"requests": 6000}
    setting = make_serving(data, "test", Path())
    one = setting.pools[0]
    limits = Limits(budget, 512, one.costs.kv_blocks * one.options.block_tokens)
    state = steady_state(one.costs.steps, Load(prompt, 100, rate=rate), limits)
    columns = {name: values[1000:-500] for name, values in serve(setting).records.columns().items()}
    ttft, tpot = columns["first_s"] - columns["arrival_s"], (columns["last_s"] - columns["first_s"]) / 99
    assert float(state.tpot_s) == pytest.approx(tpot.mean(), rel=0.08)
    assert float(state.ttft_s) == pytest.approx(ttft.mean(), rel=0.08)


@pytest.mark.slow
def test_a_prompt_that_is_not_cut_has_a_step_of_its_own():
    """It was cut as others are where it exceeded the budget: TTFT was 29 to 63 % long on a pipeline."""
    pool = {"engine": "tensorrt-llm-1.2", "options": {"token_budget": 512, "max_sequences": 128}}
    setting = make_serving(served(3.0, 2000, 100, pool, "llama3.1-8b"), "test", Path())
    one = setting.pools[0]
    limits = Limits(512, 128, one.costs.kv_blocks * one.options.block_tokens)
    price = StepPrice(setting.model, setting.cluster, one.pool, engines.get("tensorrt-llm-1.2"))
    state = steady_state(IterationTable(price, 2048, 128, 4096), Load(2000, 100, rate=3.0), limits)
    run = serve(setting).metrics.latencies
    assert float(state.ttft_s) == pytest.approx(run["ttft"].mean, rel=0.1)
    assert float(state.tpot_s) == pytest.approx(run["tpot"].mean, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("load", "budget"), [(1.54, 512), (2.47, 512)])
def test_prompts_of_several_steps_wait_behind_those_of_their_rank(load, budget):
    """An arrival goes where fewest prompts are, not where one ends first: TTFT was 21 and 28 % too short."""
    pool = {"data": 4, "expert": 4, "options": {"token_budget": budget, "max_sequences": 128}}
    rate = rate_of(load, 2000, 1, pool)
    setting = make_serving(served(rate, 2000, 1, pool), "test", Path())
    one = setting.pools[0]
    limits = Limits(budget, 128, one.costs.kv_blocks * one.options.block_tokens)
    state = steady_state(one.costs.steps, Load(2000, 1, rate=rate), limits)
    assert float(state.ttft_s) == pytest.approx(serve(setting).metrics.latencies["ttft"].mean, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "model", "load", "prompt", "output", "budget"),
    [
        *(("vllm-0.6", "gpt-oss-20b", load, 100, 100, 8192) for load in (6.53, 39.2, 75.1)),
        *(("sglang-0.5.12", "qwen3-30b-a3b", load, 2000, 100, 2048) for load in (1.52, 9.11, 18.2)),
        ("vllm-0.6", "qwen3-30b-a3b", 41.4, 700, 100, 8192),
        *(("sglang-0.5.12", "mixtral-8x7b", load, 700, 100, 512) for load in (0.587, 7.05)),
        ("sglang-0.5.12", "mixtral-8x7b", 2.89, 6000, 100, 1024),
    ],
)
def test_ranks_whose_prompts_come_first_agree_with_the_event_engine(
    engine, model, load, prompt, output, budget
):
    """A rank decodes only in steps without its own prompts, which prompts of other ranks make longer.

    A prompt of 1.4 budgets takes two steps, and the second one launches as much: TTFT was 18 to 22 % short.
    The mean of 200 requests with long prompts scatters by 12 % with the seed.
    """
    options = {"token_budget": budget, "max_sequences": 256, "prefix_caching": False}
    pool = {"engine": engine, "data": 4, "expert": 4, "options": options}
    rate = rate_of(load, prompt, output, pool, model)
    data = served(rate, prompt, output, pool, model)
    data["workload"] |= {"requests": 4000 if prompt == 2000 else 1200}
    setting = make_serving(data, "test", Path())
    columns = {name: values[500:-500] for name, values in serve(setting).records.columns().items()}
    one = setting.pools[0]
    price = StepPrice(setting.model, setting.cluster, one.pool, engines.get(engine))
    limits = Limits(budget, 256, one.costs.kv_blocks * one.options.block_tokens)
    state = steady_state(IterationTable(price, budget, 256, 4096), Load(prompt, output, rate=rate), limits)
    tpot = (columns["last_s"] - columns["first_s"]) / (output - 1)
    assert float(state.tpot_s) == pytest.approx(tpot.mean(), rel=0.08)
    assert float(state.ttft_s) == pytest.approx((columns["first_s"] - columns["arrival_s"]).mean(), rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "ranks", "load"), [("gpt-oss-20b", 2, 0.7), ("mixtral-8x7b", 4, 1.0)])
def test_a_request_begins_to_decode_in_the_spell_of_its_own_prompt(model, ranks, load):
    """Its few decodes were charged the mean step of all times: 32 % short."""
    options = {"token_budget": 4096, "max_sequences": 256, "prefix_caching": False}
    pool = {"engine": "sglang-0.5.12", "data": ranks, "expert": ranks, "options": options}
    rate = rate_of(load, 6000, 20, pool, model)
    data = served(rate, 6000, 20, pool, model)
    data["workload"] |= {"requests": 3000}
    setting = make_serving(data, "test", Path())
    one = setting.pools[0]
    limits = Limits(4096, 256, one.costs.kv_blocks * one.options.block_tokens)
    state = steady_state(one.costs.steps, Load(6000, 20, rate=rate), limits)
    run = serve(setting).metrics.latencies
    assert float(state.tpot_s) == pytest.approx(run["tpot"].mean, rel=0.16)
    assert float(state.ttft_s) == pytest.approx(run["ttft"].mean, rel=0.08)


@pytest.mark.parametrize(("load", "prompt"), [(0.8, 1000), (0.5, 1)])
def test_pipelines_agree_with_the_event_engine_under_poisson_arrivals(load, prompt):
    """Micro batches share prompts, and the longest of uneven micro batches delays all.

    At a share of the rate that the replica carries: beyond nine tenths of it queues are longer than priced.
    """
    price = StepPrice(
        models.get("llama3.1-8b"), usual_cluster("h100-sxm"), Pool(pipeline=2), engines.get("vllm-0.19")
    )
    staged, limits = IterationTable(price, 512, 512, 4096), Limits(512, 512, 400_000)
    rates = np.linspace(10.0, 200.0, 96)
    carried = rates[steady_state(staged, Load(prompt, 200, rate=rates), limits).stable].max()
    rate = float(load * carried)
    options = {"token_budget": 512, "max_sequences": 512, "kv_blocks": 25_000}
    setting = make_serving(
        served(rate, prompt, 200, {"pipeline": 2, "options": options}, "llama3.1-8b"), "test", Path()
    )
    run = serve(setting).metrics.latencies
    state = steady_state(staged, Load(prompt, 200, rate=rate), limits)
    assert float(state.tpot_s) == pytest.approx(run["tpot"].mean, rel=0.1)
    assert float(state.ttft_s) == pytest.approx(run["ttft"].mean, rel=0.15)


@pytest.mark.parametrize(
    ("rate", "stages", "prompt", "slots"),
    [
        *((19.0, 1, 1000, 16), (34.0, 1, 1000, 16), (38.0, 2, 1000, 16), (75.0, 2, 1000, 16)),
        *((75.0, 4, 1000, 16), (131.0, 4, 1000, 16), (470.0, 2, 100, 256), (56.0, 4, 2000, 64)),
        *((6.1, 1, 6000, 128), (22.5, 4, 6000, 64)),
    ],
)
def test_replicas_that_only_prefill_agree_with_the_event_engine(rate, stages, prompt, slots):
    """Prompts that meet share a step; long pipelines have long turns from a third of their load.

    TTFT was up to 65 % short there, and 31 % short where a step takes more than one prompt and less than two.
    """
    pool = {"pipeline": stages, "options": {"token_budget": 8192, "max_sequences": slots}}
    data = served(rate, prompt, 1, pool, "llama3.1-8b")
    setting = make_serving({**data, "workload": {**data["workload"], "requests": 3000}}, "test", Path())
    run = serve(setting).metrics
    one = setting.pools[0]
    price = StepPrice(setting.model, setting.cluster, one.pool, engines.get("vllm-0.19"))
    limits = Limits(8192, slots, one.costs.kv_blocks * one.options.block_tokens)
    state = steady_state(IterationTable(price, 8192, slots, 8192), Load(prompt, 1, rate=rate), limits)
    assert float(state.ttft_s) == pytest.approx(run.latencies["ttft"].mean, rel=0.16)
    devices = run.joules / run.makespan_s - PowerModel.of(price).host_w
    assert float(state.watts) == pytest.approx(devices, rel=0.15)


@pytest.mark.parametrize("slots", [120, 128, 144])
def test_waits_for_a_slot_rise_over_risers_of_the_step(slots):
    """The load of slots is that of full steps; the step of the present batch jumps at sizes of graphs."""
    price = StepPrice(models.get("gpt-oss-20b"), usual_cluster("h200-sxm"), Pool(), engines.get("vllm-0.19"))
    limits = Limits(8192, slots, 400_000)
    rates = np.linspace(1.0, 80.0, 800)
    state = steady_state(IterationTable(price, 8192, slots, 4096), Load(700, 100, rate=rates), limits)
    waits = np.where(state.stable, state.queue_s, np.inf)
    assert np.isfinite(waits).sum() > 100 and np.isinf(waits[-1])
    assert (waits[1:] >= waits[:-1] * (1 - 1e-3)).all()


STATED = {
    "name": "stated",
    "based_on": "tensorrt-llm-1.2",
    "version": "1.2.0",
    "times": [
        {"layers": "experts", "format": "fp4", "generation": "blackwell", "layer_s": 0.0}
        | {
            "sequence_s": 6.0e-06,
            "eager_layer_s": 3.24e-04,
            "prefill_factor": 1.04,
            "kind": "derived",
            "source": "test",
        },
        {"layers": "dense", "format": "16-bit", "layer_s": 2.03e-05, "all_reduce_s": 7.0e-07}
        | {
            "sequence_s": 1.31e-05,
            "eager_layer_s": 8.3e-04,
            "prefill_factor": 1.04,
            "kind": "derived",
            "source": "test",
        },
    ],
}
"""An engine whose times no fit moves: where the stair of steps lies beside a rate decides what tests see."""
PROMPTS_FIRST = {
    "name": "prompts-first",
    "based_on": "sglang-0.5.12",
    "version": "0.5.12",
    "times": [
        {"layers": "dense", "format": "16-bit", "layer_s": 0.0, "all_reduce_s": 1.26e-06}
        | {
            "sequence_s": 1.6e-05,
            "eager_layer_s": 5.32e-04,
            "prefill_factor": 1.04,
            "kind": "derived",
            "source": "test",
        },
    ],
}
"""The same of one whose prompts come first."""


@pytest.mark.parametrize(
    ("engine", "model", "cluster", "rate", "output", "pipeline", "within"),
    [
        (STATED, "gpt-oss-20b", "dgx-b200", 580.0, 20, 1, 0.1),
        ("vllm-0.6", "llama2-13b", "l40s-8", 90.0, 1, 2, 0.2),
    ],
)
def test_steps_of_many_short_prompts_agree_with_the_event_engine(
    engine, model, cluster, rate, output, pipeline, within
):
    """A step of few prompts takes as long as its launches or its weights; beyond them each prompt adds time.

    A line between two prompts and a full step was 47 % high in the first, and the slope at two prompts missed
    that one micro batch takes all of them in the second.
    """
    setting = make_serving(
        {
            "model": model,
            "cluster": cluster,
            "workload": {
                "kind": "serving",
                "requests": 3000,
                "arrivals": {"kind": "poisson", "rate": rate},
                "input": 100,
                "output": output,
            },
            "deployment": {
                "engine": engine,
                "pipeline": pipeline,
                "options": {"token_budget": 4096, "max_sequences": 32 * (16 if output > 1 else 1)},
            },
        },
        "test",
        Path(),
    )
    columns = serve(setting).records.columns()
    seconds = (columns["last_s"] - columns["arrival_s"])[600:].mean()
    one = setting.pools[0]
    limits = Limits(4096, one.options.max_sequences, one.costs.kv_blocks * one.options.block_tokens)
    state = steady_state(one.costs.steps, Load(100, output, rate=rate), limits)
    assert float(state.e2e_s) == pytest.approx(seconds, rel=within)


def test_ranks_that_decode_wait_for_no_less_than_a_decode_step():
    """Short prompts take less than the decodes of many: TPOT was negative, a search an IndexError."""
    options = {"token_budget": 512, "max_sequences": 256}
    pool = {"engine": "vllm-0.6", "data": 8, "expert": 8, "options": options}
    data = {**served(1.0, 100, 300, pool, "qwen3-30b-a3b"), "cluster": "l40s-8"}
    one = make_serving(data, "test", Path()).pools[0]
    limits = Limits(512, 256, one.costs.kv_blocks * one.options.block_tokens)
    cases = Cases(one.costs.steps.cases, Load(100, 300, rate=1.0), limits)
    batch, arriving = np.array(255.0), np.array(50.0)
    step = cases.decode(batch)
    assert rank_steps(cases, arriving, step, cases.prefills(batch, step), np.array(1.0)).tpot_s >= step


def test_a_prompt_beside_decodes_of_other_ranks_takes_no_less_than_the_shorter_of_both():
    """What the others add was negative where their batch is large: steps of less than no time."""
    options = {"token_budget": 1024, "max_sequences": 256}
    pool = {"engine": "vllm-0.6", "data": 2, "weights": "fp4", "options": options}
    data = {**served(1.0, 100, 20, pool, "gpt-oss-20b"), "cluster": "mi300x-8"}
    one = make_serving(data, "test", Path()).pools[0]
    limits = Limits(1024, 256, one.costs.kv_blocks * one.options.block_tokens)
    cases = Cases(one.costs.steps.cases, Load(100, 20, rate=1.0), limits)
    batch = np.array(255.0)
    step, alone = cases.decode(batch), cases.prefill[0]
    assert cases.prefills(batch, step).one_chunk >= min(step, alone)


def test_latencies_rise_over_a_riser_of_the_step():
    """A leap of the iteration beyond the riser was taken for a solution: 54 ms, and 48 at the next rate."""
    price = StepPrice(models.get("llama3.1-8b"), usual_cluster("h100-sxm"), Pool(), engines.get(STATED))
    load = Load(700, 100, rate=np.linspace(38.4, 43.6, 131), replicas=4)
    state = steady_state(IterationTable(price, 8192, 512, 4096), load, Limits(8192, 512, 400_000))
    assert state.tpot_s[-1] > 2.0 * state.tpot_s[0]
    assert (np.diff(state.tpot_s) >= 0.0).all()
    assert (np.diff(state.e2e_s[state.stable]) >= 0.0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "cluster", "rate", "prompt", "slots", "within"),
    [("mixtral-8x7b", "l40s-8", 1.0, 700, 8, 0.06), ("qwen3-30b-a3b", "l40s-8", 2.65, 100, 8, 0.06)],
)
def test_few_slots_agree_with_the_event_engine(model, cluster, rate, prompt, slots, within):
    """The step beside a mean batch was 17 and 22 % long, where each sequence more reads further experts."""
    options = {"token_budget": 2048, "max_sequences": slots, "prefix_caching": False}
    data = served(rate, prompt, 100, {"engine": "vllm-0.11", "tensor": 4, "options": options}, model)
    setting = make_serving({**data, "cluster": cluster}, "test", Path())
    one = setting.pools[0]
    limits = Limits(2048, slots, one.costs.kv_blocks * one.options.block_tokens)
    state = steady_state(one.costs.steps, Load(prompt, 100, rate=rate), limits)
    run = serve(setting).metrics.latencies["tpot"].mean
    assert float(state.tpot_s) == pytest.approx(run, rel=within)


@pytest.mark.slow
@pytest.mark.parametrize(
    "load",
    [
        50.7,
        pytest.param(
            64.6,
            marks=pytest.mark.xfail(
                strict=True, reason="TPOT is 33 % short: the run takes an upper branch from 26 requests/s on"
            ),
        ),
    ],
)
def test_short_prompts_cost_a_pipeline_turns_of_its_decodes(load):
    """A turn with a prompt was as short as alone, beside decodes of twice its length: TPOT was 34 % short."""
    options = {"token_budget": 512, "max_sequences": 512, "prefix_caching": False}
    pool = {"engine": PROMPTS_FIRST, "pipeline": 2, "options": options}
    rate = rate_of(load, 100, 300, pool, "llama2-13b", cluster="dgx-h200")
    data = {**served(rate, 100, 300, pool, "llama2-13b"), "cluster": "dgx-h200"}
    data["workload"] |= {"requests": 4000}
    setting = make_serving(data, "test", Path())
    one = setting.pools[0]
    limits = Limits(512, 512, one.costs.kv_blocks * one.options.block_tokens)
    state = steady_state(one.costs.steps, Load(100, 300, rate=rate), limits)
    run = serve(setting).metrics.latencies["tpot"].mean
    assert float(state.tpot_s) == pytest.approx(run, rel=0.08)


@pytest.mark.slow
def test_batches_in_graphs_last_up_to_the_riser_of_the_step():
    """A point of the curve below the largest graph ended their branch: decodes were 40 % too slow.

    At this rate batches stay in the graphs for a million requests; at 65 requests/s a replica, for 4,000.
    """
    options = {"token_budget": 8192, "max_sequences": 2048, "prefix_caching": False}
    pool = {"engine": "tensorrt-llm-1.2", "replicas": 2, "weights": "fp4", "options": options}
    data = {**served(120.0, 700, 300, pool, "gpt-oss-20b"), "cluster": "dgx-b200"}
    data["workload"] |= {"requests": 3000}
    setting = make_serving(data, "test", Path())
    one = setting.pools[0]
    limits = Limits(8192, 2048, one.costs.kv_blocks * one.options.block_tokens)
    state = steady_state(one.costs.steps, Load(700, 300, rate=60.0, replicas=2.0), limits)
    run = serve(setting).metrics.latencies["tpot"].mean
    assert float(state.tpot_s) == pytest.approx(run, rel=0.06)


@pytest.mark.slow
def test_balanced_prompts_come_more_evenly_than_random_ones():
    """Fewer share a step, so that more steps have one: decodes were 18 % too fast."""
    options = {"token_budget": 1024, "max_sequences": 1024, "prefix_caching": False}
    pool = {"engine": "tensorrt-llm-1.2", "replicas": 8, "largest_graph": 1024, "options": options}
    data = served(280.0, 100, 300, pool, "llama3.1-8b")
    data |= {"cluster": "dgx-h200"}
    data["workload"] |= {"requests": 20_000}
    setting = make_serving(data, "test", Path())
    one = setting.pools[0]
    limits = Limits(1024, 1024, one.costs.kv_blocks * one.options.block_tokens)
    load = Load(100, 300, rate=35.0, replicas=8.0)
    state = steady_state(one.costs.steps, load, limits)
    run = serve(setting).metrics.latencies["tpot"].mean
    assert float(state.tpot_s) == pytest.approx(run, rel=0.06)


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_a_prompt_of_a_whole_budget_takes_one_step_where_nothing_decodes(rate):
    """A request's own decodes, which come behind its prompt, took tokens of it: 11 % late."""
    pool = {"engine": "vllm-0.11", "options": {"token_budget": 2048, "prefix_caching": False}}
    data = served(rate, 2048, 100, pool, "llama3.1-8b")
    data["workload"] |= {"requests": 300}
    setting = make_serving(data, "test", Path())
    costs = setting.pools[0].costs
    limits = Limits(2048, 1024, costs.kv_blocks * 16)
    state = steady_state(costs.steps, Load(2048, 100, rate=rate), limits)
    assert float(state.ttft_s) == pytest.approx(serve(setting).metrics.latencies["ttft"].mean, rel=0.03)


def test_prompts_that_come_while_one_waits_delay_its_first_decodes():
    """Those that came in its own steps alone left decodes of short outputs 13 % too fast."""
    pool = {"engine": "vllm-0.11", "options": {"token_budget": 2048, "prefix_caching": False}}
    data = served(11.0, 2000, 20, pool, "llama3.1-8b")
    data["workload"] |= {"requests": 1500}
    setting = make_serving(data, "test", Path())
    costs = setting.pools[0].costs
    limits = Limits(2048, 1024, costs.kv_blocks * 16)
    state = steady_state(costs.steps, Load(2000, 20, rate=11.0), limits)
    assert float(state.tpot_s) == pytest.approx(serve(setting).metrics.latencies["tpot"].mean, rel=0.1)
