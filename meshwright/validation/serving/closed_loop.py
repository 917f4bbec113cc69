"""Constant concurrency at fixed lengths: TTFT, TPOT, end to end and throughput (`closed_loop.csv`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hwmodels.loading import build
from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from meshwright.validation.serving.clients import (
    LATENCIES,
    client_defaults,
    cluster_key,
    device_watts,
    latencies,
    pool_keys,
    run,
)
from meshwright.validation.serving.inferencex import DEFAULTS, Flags, drafts_of, flags_of, start_of
from meshwright.validation.serving.stated import LONGEST, NOTHING, Stated, lengths, read_stated
from simulator.serving.question.speculation import Speculation
from simulator.serving.steady.disaggregated import PoolSide, disaggregated
from simulator.serving.steady.kinds import memory_of, table_of
from simulator.serving.steady.steady import Limits, Load, SpeculativeCases, steady_state

NEEDS = ("harness", "isl_tokens", "osl_tokens", "concurrency")
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

CLIENT = client_defaults()
JITTER_MEAN = 0.5 * (1.0 + CLIENT.jittered_from.value)
"""Mean of jittered lengths over the nominal ones."""
MOST_BUDGET = 65536
"""Most tokens of a step."""
LEAST_ROOM = 4096
"""KV tokens of one short request, which fits every server that ran."""
SMALLEST_BATCH = 16
"""Least sequences that a server is set to."""


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
    stated: Stated = NOTHING

    @property
    def budget(self) -> int:
        """Token budget of a step."""
        engine = self.serving.engine
        default = engine.token_budget(self.serving.cluster.device, self.serving.pool.data)
        if not self.sized or self.prefill is not None:
            nominal = self.prompt / (JITTER_MEAN if self.jitters else 1.0)
            return self.flags.token_budget or round(self.flags.budget_prompts * nominal) or default
        return int(self.prompt + self.concurrency / self.replicas) + CLIENT.sized_margin.value

    @property
    def start_s(self) -> float:
        """Seconds that several clients' first requests wait for kernels to be compiled or tuned."""
        found = self.serving
        if self.concurrency <= 1:
            return 0.0
        return start_of(found.engine.engine, found.cluster.device.name, found.pool.stored)

    @property
    def speculation(self) -> dict[str, Any]:
        """Prediction heads of the server, as keys of a scenario."""
        if self.stated.speculation:
            return dict(self.stated.speculation)
        engine, pool = self.serving.engine.engine, self.serving.pool
        tokens = self.drafts or MTP_DRAFTS.get(engine, OTHER_DRAFTS)[pool.data > 1]
        random = CLIENT.acceptance_of_random_tokens if engine == "sglang" else CLIENT.acceptance
        kind = "mtp" if self.serving.model.mtp_layers else "eagle"
        return {"kind": kind, "tokens": tokens, "acceptance": random.value}

    @property
    def longest(self) -> float:
        """Tokens of the longest request."""
        if self.stated.varied:
            return 2.0 * LONGEST
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
    drafts, stated = _drafts(row, serving), read_stated(row)
    question = ClosedLoop(
        serving=serving,
        prefill=prefill,
        prompt=prompt,
        output=output,
        concurrency=concurrency,
        replicas=replicas,
        prefill_replicas=prefill_replicas,
        speculates=row.text("spec") == "mtp" or drafts > 0 or bool(stated.speculation),
        bursts=row.text("harness").startswith("inferencex"),
        jitters=jitter != 1.0,
        sized=row.text("harness").startswith("aic"),
        flags=_flags(row, serving),
        drafts=drafts,
        stated=stated,
    )
    question = _captured(question)
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


CAPTURES = "tensorrt-llm"
"""Engine whose decode workers InferenceX configures with graphs of all of their batches (Dynamo's recipes:
``cuda_graph_config.batch_sizes`` up to ``max_batch_size``)."""


def _captured(question: ClosedLoop) -> ClosedLoop:
    """The same question with the largest graph that its server captured."""
    serving = question.serving
    engine, pool = serving.engine, serving.pool
    sizes = engine.captured(serving.cluster.device, pool)
    tokens = 1 + question.speculation["tokens"] if question.speculates else 1
    largest = 0
    if tokens > 1 and engine.captures_batches and len(sizes):
        largest = tokens * int(sizes[-1])
    if question.bursts and question.prefill is not None and engine.engine == CAPTURES:
        sequences = int(np.ceil(question.concurrency / question.replicas / pool.data))
        largest = max(largest, tokens * sequences, int(sizes[-1]))
    if not largest:
        return question
    captured = pool.model_copy(update={"largest_graph": largest})
    return replace(question, serving=replace(serving, pool=captured))


def _flags(row: MeasuredRow, serving: Setup) -> Flags:
    if row.text("harness") != "inferencex":
        stated = read_stated(row)
        share, budget = stated.memory_share or None, stated.token_budget or None
        return Flags(token_budget=budget, memory_share=share)
    engine, device = serving.engine, serving.cluster.device.name
    return flags_of(engine.engine, engine.version, device, serving.pool.stored)


def _drafts(row: MeasuredRow, serving: Setup) -> int:
    """Drafted tokens of rows that do not state speculation but whose configuration had it."""
    if row.text("harness") != "inferencex" or row.text("spec") or row.text("mode") == "disagg":
        return 0
    engine, device = serving.engine, serving.cluster.device.name
    return drafts_of(engine.engine, engine.version, device, serving.pool, serving.model.name)


def degrees(tp: int, dp: int, ep: int, pp: int, gpus: int) -> dict[str, int]:
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
    pool = degrees(tp, dp, ep, row.count("pp"), gpus)
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
    pool = degrees(tp, dp, ep, pp, tp * pp if row.text("harness") == "inferencex" else tp * dp * pp)
    found = setup(row, engine, version, pool, precision)
    return found, workers or max((gpus or 0.0) / found.pool.devices, 1.0)


def predict(questions: Sequence[ClosedLoop]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replicas."""
    if questions[0].prefill is None:
        return [columns_of(one, scenario(one)) for one in questions]
    return predict_steady(questions)


def options_of_row(one: ClosedLoop, clients: int) -> dict[str, Any]:
    """Options of the server that differ from the engine's defaults."""
    found = one.serving
    engine, device = found.engine, found.cluster.device
    each = max(clients / found.pool.data, SMALLEST_BATCH)
    most = one.stated.max_sequences or engine.sequence_limit(device)
    sequences = min(1 << (int(np.ceil(each)) - 1).bit_length(), most)
    budget = one.budget if engine.chunked_prefill.value else max(one.budget, int(one.longest))
    options: dict[str, Any] = {
        "prefix_caching": False,
        "token_budget": min(budget, MOST_BUDGET),
        "max_sequences": sequences,
        "max_context": 1 << (int(one.longest) + 1).bit_length(),
        **_memory_options(one, clients, min(clients, sequences)),
    }
    if one.sized:
        options["scheduler"] = "chunked"
    if clients > 1:
        options["receive_interval"] = max(one.flags.wait_steps(clients), 1)
        options["compile_s"] = one.start_s
    return options


def _memory_options(one: ClosedLoop, clients: float, sequences: float) -> dict[str, Any]:
    """Memory of the server. The run took place, so its longest request did fit."""
    found, share = one.serving, one.flags.memory_share
    options = {} if share is None else {"memory_share": share}
    room = _kv_tokens(one, sequences, share)
    if room < clients / found.pool.data * (one.prompt + one.output):
        tuned = _kv_tokens(one, sequences, CLIENT.tuned_share.value)
        if tuned > room:
            room, options = tuned, {"memory_share": CLIENT.tuned_share.value}
    least = max(one.longest + 2, LEAST_ROOM)
    if room < least:
        options = {"kv_blocks": int(-(-least // found.engine.block_tokens.value)) + 1}
    return options


def scenario(one: ClosedLoop) -> dict[str, Any]:
    """The run of one replica with its share of the clients, as a serving scenario."""
    found = one.serving
    clients = max(round(one.concurrency / one.replicas), 1)
    low = CLIENT.jittered_from.value if one.jitters else 1.0 if one.sized else CLIENT.unstated_from.value
    deployment = {**pool_keys(found), "options": options_of_row(one, clients)}
    if one.speculates:
        deployment["speculation"] = one.speculation
    return {
        "model": found.model.name,
        "cluster": cluster_key(found),
        "workload": {
            "kind": "serving",
            "requests": round(one.stated.requests / one.replicas)
            or CLIENT.requests_per_client.value * clients,
            "arrivals": {"kind": "closed", "concurrency": clients, "gap": CLIENT.gap.value},
            "input": lengths(one.prompt, low, one.stated.varied),
            "output": lengths(one.output, low, one.stated.varied),
        },
        "deployment": deployment,
    }


def columns_of(one: ClosedLoop, data: Mapping[str, Any]) -> dict[str, float]:
    """Columns of a row from the run of its scenario, or of one that differs from it in constants."""
    result = run(data)
    values = latencies(result)
    columns = result.records.columns()
    span = float(columns["last_s"].max() - columns["arrival_s"].min())
    rate = len(columns["last_s"]) / span * one.replicas
    gpus = one.replicas * one.serving.pool.devices
    watts = device_watts(result)
    figures = {
        "out_tok_s_per_gpu": rate * one.output / gpus,
        "in_tok_s_per_gpu": rate * one.prompt / gpus,
        "total_tok_s_per_gpu": rate * (one.prompt + one.output) / gpus,
        "req_s": rate,
        "power_w_per_gpu": watts,
        "j_per_output_token": watts * gpus / (rate * one.output),
    }
    for name in LATENCIES:
        figures[f"{name}_ms_mean"] = 1e3 * float(values[name].mean())
        for percent in (50, 90, 99):
            figures[f"{name}_ms_p{percent}"] = 1e3 * float(np.percentile(values[name], percent))
    return figures


def predict_steady(questions: Sequence[ClosedLoop]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replicas, from steady states."""
    first = questions[0]
    output, prompt, clients, replicas, prefills = np.array(
        [(one.output, one.prompt, one.concurrency, one.replicas, one.prefill_replicas) for one in questions]
    ).T
    decode = _steady_side(questions, first.serving)
    polls = np.array([one.flags.wait_steps(one.concurrency) for one in questions])
    gpus = decode_gpus = prefill_gpus = replicas * first.serving.pool.devices
    if first.prefill is None:
        each = clients / replicas
        equal = np.array([float(one.sized) for one in questions])
        state = steady_state(decode.steps, Load(prompt, output, each, together=equal), decode.limits)
        ttft = state.ttft_s + 0.5 * np.where(each > 1, polls, 0) * state.step_s
    else:
        ranks = prefills * first.prefill.pool.data
        sides = _steady_side(questions, first.prefill, speculates=False), decode
        ttft, state = disaggregated(*sides, prompt, output, clients, ranks, replicas)
        prefill_gpus = prefills * first.prefill.pool.devices
        gpus = decode_gpus + prefill_gpus
    e2e = ttft + state.tpot_s * np.maximum(output - 1, 1)
    bursts = np.array([one.bursts for one in questions])
    share = clients / (replicas if first.prefill is None else prefills)
    start = np.array([one.start_s for one in questions])
    burst = (np.maximum(share - 1, 0) / 2 * state.prefill_s + start) / CLIENT.requests_per_client.value
    burst = np.where(bursts, burst, 0.0)
    rate = clients / (e2e + burst) * np.where(bursts, CLIENT.run_share.value, 1.0)
    mean = state.tpot_s + (state.last_tpot_s - state.tpot_s) / CLIENT.requests_per_client.value
    watts = state.watts / first.serving.pool.devices
    columns = {
        "ttft_ms_mean": 1e3 * (ttft + burst),
        "ttft_ms_p50": 1e3 * ttft,
        "tpot_ms_mean": 1e3 * mean,
        "tpot_ms_p50": 1e3 * state.tpot_s,
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


def _steady_side(questions: Sequence[ClosedLoop], kind: Setup, speculates: bool = True) -> PoolSide:
    """Step times and limits of the replicas of one role, over the rows."""
    device = kind.cluster.device
    budget = np.array([min(one.budget, MOST_BUDGET) for one in questions], dtype=float)
    most = max(one.concurrency / one.replicas for one in questions) / kind.pool.data
    limit = questions[0].stated.max_sequences or kind.engine.sequence_limit(device)
    sequences = min(max(most, float(SMALLEST_BATCH)), limit)
    context = max(one.prompt + one.output for one in questions) + 2
    table = table_of(kind, float(np.max(budget)), sequences, context)
    room = [_room(replace(one, serving=kind), sequences) for one in questions]
    limits = Limits(budget, sequences, np.array(room), interleaved=questions[0].sized or None)
    first = questions[0]
    if not (first.speculates and speculates):
        return PoolSide(table.cases, limits)
    speculation = build(Speculation, first.speculation, "speculation")
    return PoolSide(SpeculativeCases(table.cases, speculation, kind.model.layers), limits)


def _room(one: ClosedLoop, sequences: float) -> float:
    """KV tokens of an attention rank."""
    options = _memory_options(one, one.concurrency / one.replicas, sequences)
    if "kv_blocks" in options:
        return float(options["kv_blocks"] * one.serving.engine.block_tokens.value)
    return _kv_tokens(one, sequences, options.get("memory_share"))


def _kv_tokens(one: ClosedLoop, sequences: float, share: float | None) -> float:
    """KV tokens of an attention rank. Graphs of drafted tokens hold as many sequences as the engine's."""
    kind = one.serving
    if one.speculates:
        kind = replace(kind, pool=kind.pool.model_copy(update={"largest_graph": None}))
    return float(memory_of(kind, one.budget, sequences, share).kv_tokens)


MTP_DRAFTS = {"sglang": (2, 2), "tensorrt-llm": (3, 1)}
"""Tokens that prediction heads draft a step, without and with data-parallel attention (InferenceX's scripts
dsr1_fp8_b200_mtp.sh, dsr1_fp8_b200_trt_mtp.sh, dsr1_fp4_b200_trt_mtp.sh)."""
OTHER_DRAFTS = 1, 1


def group_key(question: ClosedLoop) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    other = question.prefill.key if question.prefill else ()
    stated = question.stated.max_sequences, question.stated.speculation
    return question.serving.key, other, question.speculates, question.drafts, question.sized, *stated


def without(question: ClosedLoop, **changes: Any) -> ClosedLoop:
    """The same row with some fields changed."""
    return replace(question, **changes)
