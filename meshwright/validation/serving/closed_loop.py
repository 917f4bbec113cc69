"""Constant concurrency at fixed lengths: TTFT, TPOT, end to end and throughput (`closed_loop.csv`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, kv_tokens, setup, table_of
from meshwright.validation.serving.inferencex import DEFAULTS, Flags, drafts_of, flags_of, start_of
from meshwright.validation.serving.replay import Client
from simulator.serving.steady.steady import Limits, Load, Steady, steady_state
from simulator.serving.steps.table import IterationTable

NEEDS = ("harness", "isl_tokens", "osl_tokens", "concurrency")
LATENCIES = ("ttft", "tpot", "e2e")
STATISTICS = ("mean", "p50", "p90", "p99")
MEASURED = (
    *(f"{name}_ms_{statistic}" for name in LATENCIES for statistic in STATISTICS),
    "out_tok_s_per_gpu",
    "in_tok_s_per_gpu",
    "total_tok_s_per_gpu",
    "req_s",
    "power_w_per_gpu",
    "j_per_output_token",
)

JITTER_MEAN = 0.9
"""Mean of lengths drawn uniformly from 0.8 to 1.0 of the nominal ones."""
LENGTHS_FROM = 0.8
UNSTATED_FROM = 0.96
"""Lengths of rows that state no jitter, drawn from this share on: random tokens do not encode to exactly as
many again (assumed). Equal lengths would keep all clients in step for ever."""
AIC_MARGIN = 1500
"""Tokens of a step beyond one prompt and a token of each client, on servers that AIConfigurator starts
(ai-dynamo/aiconfigurator, generator/rule_plugin/benchmark/{trtllm,vllm,sglang}.rule: max_num_tokens is
max_batch_size + isl + 1500; SGLang's max_prefill_tokens is isl + 1500, with mixed chunks). Its client sends
equal lengths (bench_run.sh.j2: aiperf with ignore_eos)."""
ROUNDS, FEW, FEWER_ROUNDS = 10, 8, 4
"""Requests of a run over its concurrency. Above ``FEW`` clients fewer rounds are replayed; those after the
first stand for the others."""
ROUNDS_OF_CLIENTS = 8
"""Iterations of the clients' shares of both sides of a disaggregated deployment."""
TUNED_SHARE = 0.95
"""Memory share that a server is given where its default does not hold the clients."""
RUN_SHARE = 0.975
"""Measured throughput over that of the steady state: ramp-up and drain of a run of 10 C requests."""
BURST_SHARE = 0.1
"""All C requests of the start arrive at once, out of 10 C."""


@dataclass(frozen=True)
class ClosedLoop:
    """The configuration of one row."""

    serving: Setup
    """The aggregated replicas, or those that decode."""
    prefill: Setup | None
    """The replicas that prefill, in a disaggregated deployment."""
    prompt: float
    output: float
    concurrency: float
    """Over all replicas."""
    replicas: float
    prefill_replicas: float
    speculates: bool
    bursts: bool
    jitters: bool
    sized: bool = False
    """Whether AIConfigurator's rules sized the server's steps, and its client sent equal lengths."""
    flags: Flags = DEFAULTS
    drafts: int = 0
    """Tokens that prediction heads draft a step, where the source's scripts tell; else by engine."""

    @property
    def budget(self) -> int:
        """Token budget of a step."""
        engine = self.serving.engine
        default = engine.token_budget(self.serving.cluster.device)
        if not self.sized or self.prefill is not None:
            nominal = self.prompt / (JITTER_MEAN if self.jitters else 1.0)
            return self.flags.token_budget or round(self.flags.budget_prompts * nominal) or default
        return int(self.prompt + self.concurrency / self.replicas) + AIC_MARGIN

    @property
    def start_s(self) -> float:
        """Seconds that several clients' first requests wait for kernels to be compiled or tuned."""
        found = self.serving
        if self.concurrency <= 1:
            return 0.0
        return start_of(found.engine.engine, found.cluster.device.name, found.pool.stored)

    @property
    def longest(self) -> float:
        """Tokens of the longest request."""
        return (self.prompt + self.output) / (JITTER_MEAN if self.jitters else 1.0)


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        Skipped: the row leaves open what was run.
    """
    jitter = JITTER_MEAN if "0.8" in row.text("length_jitter") else 1.0
    prompt, output = jitter * row.need("isl_tokens"), jitter * row.need("osl_tokens")
    precision = row.text("weight_precision")
    version, engine = row.text("engine_version"), row.text("engine")
    if not engine:
        raise SkippedRow("engine not stated")
    if row.text("mode") == "disagg":
        prefill, prefill_replicas = _side(row, "prefill", engine, version, precision)
        serving, replicas = _side(row, "decode", engine, version, precision)
    else:
        prefill, prefill_replicas = None, 0.0
        serving, replicas = _aggregated(row, engine, version, precision)
    concurrency = row.number("concurrency") or (row.number("batch") or 0.0) * replicas
    if not concurrency and row.number("decode_batch"):
        concurrency = row.need("decode_batch") * replicas
    if not concurrency:
        raise SkippedRow("concurrency not stated")
    batch = row.number("batch")
    ranks = replicas * serving.pool.data
    if batch and concurrency > batch * ranks:
        # The load was spread by a router over replicas whose attention ranks each ran `batch` requests.
        replicas *= concurrency / (batch * ranks)
    drafts = _drafts(row, serving)
    question = ClosedLoop(
        serving=serving,
        prefill=prefill,
        prompt=prompt,
        output=output,
        concurrency=concurrency,
        replicas=replicas,
        prefill_replicas=prefill_replicas,
        speculates=row.text("spec") == "mtp" or drafts > 0,
        bursts=row.text("harness").startswith("inferencex"),
        jitters=jitter != 1.0,
        sized=row.text("harness").startswith("aic"),
        flags=_flags(row, serving),
        drafts=drafts,
    )
    return ServingCase(
        case_id=row.text("case_id"),
        file=file,
        engine=serving.engine.name,
        gpu=row.text("gpu"),
        measured=row.measured(*MEASURED),
        flagged=bool(row.text("flag")),
        group=row.text("repeat_group"),
        question=question,
    )


def _flags(row: MeasuredRow, serving: Setup) -> Flags:
    if row.text("harness") != "inferencex":
        return DEFAULTS
    engine, device = serving.engine, serving.cluster.device.name
    return flags_of(engine.engine, engine.version, device, serving.pool.stored)


def _drafts(row: MeasuredRow, serving: Setup) -> int:
    """Drafted tokens of rows that do not state speculation but whose configuration had it."""
    if row.text("harness") != "inferencex" or row.text("spec") or row.text("mode") == "disagg":
        return 0
    engine, device = serving.engine, serving.cluster.device.name
    return drafts_of(engine.engine, engine.version, device, serving.pool, serving.model.name)


def _degrees(tp: int, dp: int, ep: int, pp: int, gpus: int) -> dict[str, int]:
    """Our degrees from a row's: where ``dp`` ranks lie inside the tensor-parallel group, attention is not cut
    by them."""
    inside = dp > 1 and gpus < tp * dp * pp
    tensor = max(tp // dp, 1) if inside else tp
    ranks = tensor * dp
    expert = min(max(ep, 1), ranks)
    while ranks % expert:
        expert -= 1
    return {"tensor": tensor, "data": dp, "pipeline": pp, "expert": expert}


def _aggregated(row: MeasuredRow, engine: str, version: str, precision: str) -> tuple[Setup, float]:
    tp, dp, ep = row.count("tp"), row.count("dp"), row.count("ep")
    gpus = row.count("n_gpus", tp * row.count("pp"))
    if row.text("harness") == "inferencex" and dp == tp:
        # The source lists TP x DP or TP x EP GPUs: attention ranks lie inside the tensor-parallel group.
        gpus = tp * row.count("pp")
    pool = _degrees(tp, dp, ep, row.count("pp"), gpus)
    found = setup(row, engine, version, pool, precision)
    flags = _flags(row, found)
    if flags.kv and found.pool.kv is None:
        found = replace(found, pool=found.pool.model_copy(update={"kv": flags.kv}))
    return found, max(gpus / found.pool.devices, 1.0)


def _side(row: MeasuredRow, side: str, engine: str, version: str, precision: str) -> tuple[Setup, float]:
    """The replicas of one side of a disaggregated deployment; ``tp`` counts the GPUs of a worker."""
    tp, dp, ep, pp = (row.count(f"{side}_{name}") for name in ("tp", "dp", "ep", "pp"))
    gpus = row.number(f"{side}_gpus")
    workers = row.number(f"{side}_workers")
    if not gpus and not workers:
        raise SkippedRow(f"{side} workers not stated")
    pool = _degrees(tp, dp, ep, pp, tp * pp if row.text("harness") == "inferencex" else tp * dp * pp)
    found = setup(row, engine, version, pool, precision)
    return found, workers or max((gpus or 0.0) / found.pool.devices, 1.0)


def predict(questions: Sequence[ClosedLoop]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replicas."""
    first = questions[0]
    if first.prefill is None and not first.speculates:
        return _replayed(questions)
    return predict_steady(questions)


def _replayed(questions: Sequence[ClosedLoop]) -> list[dict[str, float]]:
    """Predictions by the event engine, with the client's start burst and drain."""
    found = questions[0].serving
    device = found.cluster.device
    budget = max(one.budget for one in questions)
    clients = [max(round(one.concurrency / one.replicas), 1) for one in questions]
    sequences = min(max(clients), found.engine.sequence_limit(device))
    context = max(one.longest for one in questions) + 2
    table = table_of(found, min(budget, 65536), max(sequences / found.pool.data, 16), context)
    return [_replay(one, count, table) for one, count in zip(questions, clients, strict=True)]


def _room(one: ClosedLoop, clients: float, sequences: float) -> float:
    """KV tokens of an attention rank. The run took place, so its longest request did fit."""
    found, share = one.serving, one.flags.memory_share
    room = kv_tokens(found, one.budget, sequences, share)
    if room < clients / found.pool.data * (one.prompt + one.output):
        room = max(room, kv_tokens(found, one.budget, sequences, TUNED_SHARE))
    return max(room, one.longest + 2)


def _replay(one: ClosedLoop, clients: int, table: IterationTable) -> dict[str, float]:
    found = one.serving
    room = _room(one, clients, min(clients, table.max_sequences))
    blocks = int(-(-room // found.engine.block_tokens.value)) + 1
    changes: dict[str, Any] = {"prefix_caching": False, "max_sequences": table.max_sequences}
    changes["token_budget"] = one.budget
    if one.sized:
        changes["scheduler"] = "chunked"
    if not found.engine.chunked_prefill.value:
        changes["token_budget"] = max(one.budget, int(one.longest))
    client = Client(found, table, blocks, changes)
    if clients > 1:
        step = float(table.cases.decode_seconds(clients / found.pool.data, one.prompt + 0.5 * one.output))
        client.poll_s = one.flags.wait_steps(clients) * step
    rounds = ROUNDS if clients <= FEW or not one.jitters else FEWER_ROUNDS
    count = rounds * clients
    random = np.random.default_rng(1)
    low = LENGTHS_FROM if one.jitters else 1.0 if one.sized else UNSTATED_FROM

    def lengths(mean: float) -> np.ndarray:
        nominal = mean / (0.5 + 0.5 * low)
        return np.maximum(np.round(random.uniform(low, 1.0, count) * nominal), 1).astype(int)

    prompts, outputs = lengths(one.prompt), lengths(one.output)
    run = client.closed(prompts, outputs, clients)

    def whole(values: np.ndarray) -> np.ndarray:
        later = np.tile(values[clients:], (ROUNDS - 1) // (rounds - 1))
        return np.concatenate([values[:clients], later])

    late = np.where(np.arange(count) < clients, one.start_s, 0.0)
    ttft, tpot, e2e = whole(run.ttft + late), whole(run.tpot), whole(run.e2e + late)
    rate = RUN_SHARE * clients / float(e2e.mean()) * one.replicas
    gpus = one.replicas * found.pool.devices
    mean_tpot = float(tpot.mean())
    batch = clients * float((tpot * one.output).mean() / e2e.mean())
    kv = batch * (one.prompt + 0.5 * one.output)
    tokens = batch * (1.0 + one.prompt / one.output)
    watts = float(table.power.watts(tokens, batch, kv, mean_tpot, hosts=False)) / found.pool.devices
    columns = {
        "out_tok_s_per_gpu": rate * one.output / gpus,
        "in_tok_s_per_gpu": rate * one.prompt / gpus,
        "total_tok_s_per_gpu": rate * (one.prompt + one.output) / gpus,
        "req_s": rate,
        "power_w_per_gpu": watts,
        "j_per_output_token": watts * gpus / (rate * one.output),
    }
    for name, values in zip(LATENCIES, (ttft, tpot, e2e), strict=True):
        columns[f"{name}_ms_mean"] = 1e3 * float(values.mean())
        for percent in (50, 90, 99):
            columns[f"{name}_ms_p{percent}"] = 1e3 * float(np.percentile(values, percent))
    return columns


def predict_steady(questions: Sequence[ClosedLoop]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replicas, from steady states."""
    first = questions[0]
    found = first.serving
    output = np.array([one.output for one in questions])
    prompt = np.array([one.prompt for one in questions])
    clients = np.array([one.concurrency / one.replicas for one in questions])
    replicas = np.array([one.replicas for one in questions])
    state = _state(questions, found, Load(prompt, output, clients))
    gain = _gains(questions, state)
    polls = np.array([one.flags.wait_steps(one.concurrency) for one in questions])
    tpot, ttft = state.tpot_s, state.ttft_s + 0.5 * np.where(clients > 1, polls, 0) * state.step_s
    tpot = tpot / gain
    decode_gpus = replicas * found.pool.devices
    prefill_gpus = decode_gpus
    if first.prefill is not None:
        ttft, state = _disaggregated(questions)
        tpot = state.tpot_s / _gains(questions, state)
        prefill_gpus = _prefill_replicas(questions) * first.prefill.pool.devices
    gaps = np.maximum(output - 1, 1)
    e2e = ttft + tpot * gaps
    bursts = np.array([one.bursts for one in questions])
    share = clients * (np.ones(()) if first.prefill is None else replicas / _prefill_replicas(questions))
    start = np.array([one.start_s for one in questions])
    burst = BURST_SHARE * (np.maximum(share - 1, 0) / 2 * state.prefill_s + start)
    burst = np.where(bursts, burst, 0.0)
    rate = clients * replicas / (e2e + burst) * np.where(bursts, RUN_SHARE, 1.0)
    watts = state.watts / found.pool.devices
    gpus = decode_gpus if first.prefill is None else decode_gpus + prefill_gpus
    columns = {
        "ttft_ms_mean": 1e3 * (ttft + burst),
        "ttft_ms_p50": 1e3 * ttft,
        "tpot_ms_mean": 1e3 * tpot,
        "tpot_ms_p50": 1e3 * tpot,
        "e2e_ms_mean": 1e3 * (e2e + burst),
        "e2e_ms_p50": 1e3 * e2e,
        "out_tok_s_per_gpu": rate * output / decode_gpus,
        "in_tok_s_per_gpu": rate * prompt / prefill_gpus,
        "total_tok_s_per_gpu": rate * (prompt + output) / gpus,
        "req_s": rate,
        "power_w_per_gpu": watts,
        "j_per_output_token": watts * gpus / (rate * output),
    }
    return [{name: float(values[i]) for name, values in columns.items()} for i in range(len(questions))]


def _state(questions: Sequence[ClosedLoop], found: Setup, load: Load) -> Steady:
    """The steady states of rows on replicas of one kind."""
    device = found.cluster.device
    budget = np.array([one.budget for one in questions], dtype=float)
    most = max(one.concurrency / one.replicas for one in questions) / found.pool.data
    sequences = min(max(most, 16.0), found.engine.sequence_limit(device))
    context = float(np.max(np.asarray(load.prompt) + np.asarray(load.output))) + 2
    table = table_of(found, min(float(np.max(budget)), 65536.0), sequences, context)
    room = [
        _room(replace(one, serving=found), one.concurrency / one.replicas, sequences) for one in questions
    ]
    return steady_state(table, load, Limits(budget, sequences, np.array(room)))


def _prefill_replicas(questions: Sequence[ClosedLoop]) -> np.ndarray:
    return np.array([one.prefill_replicas for one in questions])


def _gains(questions: Sequence[ClosedLoop], state: Steady) -> np.ndarray:
    """TPOT without over with prediction heads, of rows at their steady states."""
    found, count = questions[0].serving, len(questions)
    if not questions[0].speculates:
        return np.ones(count)
    batch = np.broadcast_to(state.batch, count)
    context = max(one.longest for one in questions) + 2
    table = table_of(found, 1024, float(np.max(batch)) + 1, context)
    keys = [one.prompt + 0.5 * one.output for one in questions]
    return np.array(
        [mtp_gain(found, table, float(batch[i]), keys[i], one.drafts) for i, one in enumerate(questions)]
    )


def _disaggregated(questions: Sequence[ClosedLoop]) -> tuple[np.ndarray, Steady]:
    """TTFT of disaggregated rows, and the steady state of the side that decodes.

    Clients go round between both sides: those that wait for a prefill do not decode. Prefill replicas serve
    prompts one after the other; a prompt finds the mean queue (mean value analysis of a closed network). The
    first token travels with the KV.
    """
    first = questions[0]
    if first.prefill is None:
        raise ValueError("an aggregated row has no prefill side")
    prompt = np.array([one.prompt for one in questions])
    output = np.array([one.output for one in questions])
    concurrency = np.array([one.concurrency for one in questions])
    clients = concurrency / np.array([one.replicas for one in questions])
    servers = _prefill_replicas(questions) * first.prefill.pool.data
    idle = _state(questions, first.prefill, Load(prompt, np.full_like(prompt, 2.0), np.ones_like(prompt)))
    own, fixed = idle.prefill_beside_s, idle.ttft_s - idle.prefill_s
    decoding, prefill = np.ones_like(prompt), own
    state, gain = idle, np.ones_like(prompt)
    for _ in range(ROUNDS_OF_CLIENTS):
        load = Load(prompt, output, np.maximum(clients * decoding, 1.0), cached=prompt - 1.0)
        state = _state(questions, first.serving, load)
        gain = _gains(questions, state)
        away = fixed + state.tpot_s / gain * np.maximum(output, 1.0)
        for _ in range(4 * ROUNDS_OF_CLIENTS):
            queued = concurrency / servers * prefill / (prefill + away)
            prefill = 0.5 * prefill + 0.5 * own * (1.0 + queued * (1.0 - 1.0 / np.maximum(concurrency, 1.0)))
        decoding = 0.5 * decoding + 0.5 * away / (away + prefill)
    return fixed + prefill + state.tpot_s / gain, state


MTP_DRAFTS = {"sglang": (2, 2), "tensorrt-llm": (3, 1)}
"""Tokens that prediction heads draft a step, without and with data-parallel attention (InferenceX's scripts
dsr1_fp8_b200_mtp.sh, dsr1_fp8_b200_trt_mtp.sh, dsr1_fp4_b200_trt_mtp.sh)."""
OTHER_DRAFTS = 1, 1
ACCEPTED = 0.75
"""Share of drafted tokens accepted after those before them: less on random prompts than the 0.85 to 0.90 that
DeepSeek-V3 states on text (arXiv 2412.19437; assumed)."""
RAW_ACCEPTED = {"sglang": 0.5}
"""The same where clients send random tokens, by engine (assumed)."""


def mtp_gain(found: Setup, table: IterationTable, batch: float, keys: float, drafts: int = 0) -> float:
    """TPOT without over TPOT with prediction heads: accepted tokens over the cost of a step that drafts, one
    layer a token, and verifies.

    Args:
        found: the replica.
        table: its step times.
        batch: decoding sequences of a rank.
        keys: their mean context.
        drafts: tokens drafted a step; 0: by engine.
    """
    share = RAW_ACCEPTED.get(found.engine.engine, ACCEPTED)
    drafts = drafts or MTP_DRAFTS.get(found.engine.engine, OTHER_DRAFTS)[found.pool.data > 1]
    sequences = max(round(batch), 1)
    kv = round(sequences * keys)
    plain = table.step((), sequences, kv)
    verify = table.step((), sequences, kv, queries=drafts + 1)
    drafting = drafts * plain / found.model.layers
    return sum(share**token for token in range(drafts + 1)) * plain / (verify + drafting)


def group_key(question: ClosedLoop) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    other = question.prefill.key if question.prefill else ()
    return question.serving.key, other, question.speculates


def without(question: ClosedLoop, **changes: Any) -> ClosedLoop:
    """The same row with some fields changed."""
    return replace(question, **changes)
