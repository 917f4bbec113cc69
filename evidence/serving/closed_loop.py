"""Constant concurrency at fixed lengths: TTFT, TPOT, end to end and throughput."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core.loading import build
from evidence.serving.case import (
    MeasuredRow,
    ReplicaQuestion,
    ServingCase,
    Setup,
    degrees,
    rows_of,
)
from evidence.serving.collection import Collection, read_case
from evidence.serving.inferencex import DEFAULTS, Flags, Section, decode_slots, flags_of
from evidence.serving.served_run import ServedRun, client_defaults, figures_of, scenario_of
from evidence.serving.stated import LONGEST, NOTHING, Stated, lengths, read_stated
from meshwright.validation.rows import SkippedRow
from simulator.serving.question.speculation import RANDOM, TEXT, Speculation, published_acceptance
from simulator.serving.steady.batch_run import prompts_run
from simulator.serving.steady.disaggregated import PoolSide, disaggregated
from simulator.serving.steady.kinds import memory_of, table_of
from simulator.serving.steady.steady import Limits, Load, steady_state
from simulator.serving.steady.steady_cases import SpeculativeCases

CLIENT = client_defaults()
JITTER_MEAN = 0.5 * (1.0 + CLIENT["jittered_from"])
"""Mean of jittered lengths over the nominal ones."""
MOST_BUDGET = 65536
"""Most tokens of a step."""
LEAST_ROOM = 4096
"""KV tokens of one short request, which fits every server that ran."""
SMALLEST_BATCH = 16
"""Least sequences that a server is set to."""
CAPTURES = "tensorrt-llm"
"""Engine whose servers InferenceX configures with graphs of all of their batches: Dynamo's recipes
(``cuda_graph_config.batch_sizes`` up to ``max_batch_size``), and its scripts gptoss_fp4_b200_trt.sh,
gptoss_fp4_h200_trt.sh, dsr1_fp8_b200_trt.sh and dsr1_fp4_b200_trt.sh (``max_batch_size`` of the graphs: all
clients, those of an attention rank, or 512)."""
SLOTS = 1, 768
"""Sizes of decode batches in these recipes beside powers of two."""
MTP_DRAFTS = {"sglang": (2, 2), "tensorrt-llm": (3, 1)}
"""Tokens that prediction heads draft a step, without and with data-parallel attention (InferenceX's scripts
dsr1_fp8_b200_mtp.sh, dsr1_fp8_b200_trt_mtp.sh, dsr1_fp4_b200_trt_mtp.sh)."""
OTHER_DRAFTS = 1, 1
PLANNED = {"sglang": 2, "vllm": 1}
"""Steps that are planned before a prompt's own on a prefill server that steps without pause: SGLang looks for
prompts whose decode server has answered once a step, and plans a step ahead (disaggregation/prefill.py,
``event_loop_overlap_disagg_prefill``); vLLM plans ahead; TensorRT-LLM's context servers do not
(``disable_overlap_scheduler: true`` in every recipe)."""


@dataclass(frozen=True)
class ClosedLoop(ReplicaQuestion):
    """The configuration of one row; `serving` are the aggregated replicas, or those that decode."""

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
    decode_slots: int = 0
    """Sequences of a rank that decodes, where the source's configuration bounds them; 0: as the engine."""

    @property
    def key(self) -> tuple[Any, ...]:  # type: ignore[override]
        """See `Question`."""
        other = self.prefill.key if self.prefill else ()
        stated = self.stated.max_sequences, self.stated.limits_factor, self.stated.speculation
        return self.serving.key, other, self.speculates, self.drafts, self.sized, *stated

    @property
    def budget(self) -> int:
        """Token budget of a step."""
        engine = self.serving.engine
        default = engine.token_budget(self.serving.cluster.device, self.serving.pool.data)
        default *= self.stated.limits_factor
        if not self.sized or self.prefill is not None:
            nominal = self.prompt / (JITTER_MEAN if self.jitters else 1.0)
            return self.flags.token_budget or round(self.flags.budget_prompts * nominal) or default
        margin = CLIENT.get(f"sized_margin_of_{engine.engine}", CLIENT["sized_margin"])
        return int(self.prompt + self.concurrency / self.replicas + margin)

    @property
    def start_s(self) -> float:
        """Seconds that several clients' first requests wait for kernels to be compiled or tuned."""
        return flags_of(self.serving, "starts").start_s if self.concurrency > 1 else 0.0

    def wait_steps(self, clients: float) -> int:
        """Decode steps between two looks of a server at its queue."""
        return self.flags.wait_steps(clients, self.serving.pool.data, self.output)

    @property
    def speculation(self) -> dict[str, Any]:
        """Prediction heads of the server, as keys of a scenario."""
        if self.stated.speculation:
            keys = dict(self.stated.speculation)
            task = TEXT if self.stated.varied else RANDOM
            if positions := published_acceptance(keys["kind"], self.serving.model.name, task):
                keys["acceptance_by_position"] = positions[: keys["tokens"]]
            return keys
        engine, pool = self.serving.engine.engine, self.serving.pool
        tokens = self.drafts or MTP_DRAFTS.get(engine, OTHER_DRAFTS)[pool.data > 1]
        accepted = CLIENT["acceptance_of_random_tokens" if engine == "sglang" else "acceptance"]
        kind = "mtp" if self.serving.model.mtp_layers else "eagle"
        return {"kind": kind, "tokens": tokens, "acceptance": accepted}

    @property
    def longest(self) -> float:
        """Tokens of the longest request that the run draws, or that its server takes."""
        nominal = (self.prompt + self.output) / (0.5 + 0.5 * self.shortest)
        cut = LONGEST if self.stated.varied else 0
        drawn = sum(cut if tokens < cut else tokens for tokens in (self.prompt, self.output))
        return max(nominal, drawn, self.stated.longest)

    @property
    def shortest(self) -> float:
        """Tokens of the shortest prompts over those of the longest."""
        return CLIENT["jittered_from"] if self.jitters else 1.0 if self.sized else CLIENT["unstated_from"]

    def options(self, clients: int) -> dict[str, Any]:
        """Options of a replica's server that differ from the engine's defaults."""
        engine = self.serving.engine
        batch = max(clients / self.serving.pool.data, SMALLEST_BATCH)
        limit = self.stated.limits_factor * engine.sequence_limit(self.serving.cluster.device)
        most_sequences = self.stated.max_sequences or limit
        sequences = min(1 << (int(np.ceil(batch)) - 1).bit_length(), most_sequences)
        budget = self.budget if engine.chunked_prefill.value else max(self.budget, int(self.longest))
        options: dict[str, Any] = {
            "token_budget": min(budget, MOST_BUDGET),
            "max_sequences": sequences,
            "max_context": 1 << (int(self.longest) + 1).bit_length(),
            **self.memory(clients, min(clients, sequences)),
        }
        if self.caches is not None:
            options["prefix_caching"] = self.caches
        if self.stated.state_buffers:
            options["state_buffers"] = True
        if self.sized:
            options["scheduler"] = "chunked"
        if clients > 1:
            options["receive_interval"] = max(self.wait_steps(clients), 1)
            options["compile_s"] = self.start_s
        return options

    @property
    def caches(self) -> bool | None:
        """Whether the server caches equal prefixes; None: as its engine does. The clients of InferenceX and
        AIConfigurator send no prefix twice, and their servers cache none."""
        return False if self.bursts or self.sized else self.stated.prefix_caching

    def memory(self, clients: float, sequences: float) -> dict[str, Any]:
        """Options of the server's memory. The run took place, so its longest request did fit."""
        share = self.flags.memory_share
        options = {} if share is None else {"memory_share": share}
        room = self.kv_tokens(sequences, share)
        needed = clients / self.serving.pool.data * (self.prompt + self.output)
        if room < needed and share is None:
            tuned = self.kv_tokens(sequences, CLIENT["tuned_share"])
            if tuned > room:
                room, options = tuned, {"memory_share": CLIENT["tuned_share"]}
        least = max(self.longest + 2, LEAST_ROOM)
        if room < least:
            options = {"kv_blocks": int(-(-least // self.serving.engine.block_tokens.value)) + 1}
        return options

    def kv_tokens(self, sequences: float, share: float | None) -> float:
        """KV tokens of an attention rank. Graphs of drafted tokens hold as many sequences as the engine's."""
        kind = self.serving.with_pool(largest_graph=None) if self.speculates else self.serving
        return float(memory_of(kind, self.budget, sequences, share).kv_tokens)

    def room(self, sequences: float) -> float:
        """KV tokens of an attention rank with the options of `memory`."""
        options = self.memory(self.concurrency / self.replicas, sequences)
        if "kv_blocks" in options:
            return float(options["kv_blocks"] * self.serving.engine.block_tokens.value)
        return self.kv_tokens(sequences, options.get("memory_share"))

    def run(self) -> ServedRun | None:
        """The run of one replica with its share of the clients; None of disaggregated deployments."""
        if self.prefill is not None:
            return None
        clients = max(round(self.concurrency / self.replicas), 1)
        low = self.shortest
        keys: dict[str, Any] = {"options": self.options(clients)}
        if self.speculates:
            keys["speculation"] = self.speculation
        each = round(CLIENT["requests_per_client"])
        workload = {
            "requests": round(self.stated.requests / self.replicas) or each * clients,
            "arrivals": {"kind": "closed", "concurrency": clients, "gap": CLIENT["gap"]},
            "input": lengths(self.prompt, low, self.stated.varied),
            "output": lengths(self.output, low, self.stated.varied),
        }
        scenario = scenario_of(self.serving, workload, **keys)
        tokens = None if self.stated.varied else (self.prompt, self.output)
        return ServedRun(scenario, replicas=self.replicas, tokens=tokens)


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    return read_case("closed_loop", row, file)


def question(row: MeasuredRow, collection: Collection) -> ClosedLoop:
    """The question of a row.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    jitter = JITTER_MEAN if "0.8" in row.text("length_jitter") else 1.0
    values = {name: jitter * tokens for name, tokens in collection.values(row).items()}
    stated, harness = read_stated(row), row.text("harness")
    if row.text("mode") == "disagg":
        prefill, prefill_replicas = _side(row, collection, "prefill")
        serving, replicas = _side(row, collection, "decode")
    else:
        prefill, prefill_replicas = None, 0.0
        serving, replicas = _aggregated(row, collection)
    flags = Flags(token_budget=stated.token_budget or None, memory_share=stated.memory_share or None)
    drafts = 0
    if harness == "inferencex":
        flags = flags_of(serving)
        if prefill is None:
            serving = flags.server(serving)
            drafts = 0 if row.text("spec") else flags_of(serving, "speculating").drafts
    batch = row.number("batch")
    if prefill is not None and not row.number("concurrency"):
        raise SkippedRow("clients not stated: the decode batch is that of AIConfigurator's plan")
    concurrency = row.number("concurrency") or (batch or 0.0) * replicas
    if not concurrency:
        raise SkippedRow("concurrency not stated")
    ranks = replicas * serving.pool.data
    if batch and concurrency > batch * ranks:
        # The load was spread by a router over replicas whose attention ranks each ran `batch` requests.
        replicas *= concurrency / (batch * ranks)
    loop = ClosedLoop(
        serving=serving,
        prefill=prefill,
        concurrency=concurrency,
        replicas=replicas,
        prefill_replicas=prefill_replicas,
        speculates=row.text("spec") == "mtp" or drafts > 0 or bool(stated.speculation),
        bursts=harness.startswith("inferencex"),
        jitters=jitter != 1.0,
        sized=harness.startswith("aic"),
        flags=flags,
        drafts=drafts,
        stated=stated,
        decode_slots=0,
        **values,
    )
    if loop.bursts and prefill is not None:
        loop = replace(loop, decode_slots=_decode_slots(loop))
    largest = _largest_graph(loop)
    return replace(loop, serving=serving.with_pool(largest_graph=largest)) if largest else loop


def _decode_slots(question: ClosedLoop) -> int:
    """Sequences that a decode rank of InferenceX's servers takes; 0: as many as come.

    TensorRT-LLM's recipes set a power of two (or 768) and send up to 1.5 times as many clients:
    ctx1_gen2_dep8_batch64 has 1,176 clients on 16 ranks, ctx1_gen4_tep8_batch1 has 6 on 4 (nvidia-master.yaml
    of 2026). The rows state the clients alone. Servers without attention ranks and drafts run lists of client
    counts with the batch of the largest one ([5, 10, 15, 25] on five of batch 4), so that only one sequence a
    rank tells.
    Recipes that do otherwise are listed.
    """
    pool, engine = question.serving.pool, question.serving.engine.engine
    stated = decode_slots(question.serving, question.replicas, question.concurrency, question.prompt)
    if stated or engine != CAPTURES:
        return stated
    clients = max(int(question.concurrency / (question.replicas * pool.data)), 1)
    if clients > 1 and pool.data == 1 and not question.speculates:
        return 0
    return max(size for size in (*SLOTS, 1 << (clients.bit_length() - 1)) if size <= clients)


def _largest_graph(question: ClosedLoop) -> int:
    """Tokens of the largest graph that the server captured, where it is not the engine's own; else 0."""
    engine, pool = question.serving.engine, question.serving.pool
    sizes = engine.captured(question.serving.cluster.device, pool)
    tokens = 1 + question.speculation["tokens"] if question.speculates else 1
    largest = 0
    if tokens > 1 and engine.captures_batches and len(sizes):
        largest = tokens * int(sizes[-1])
    if question.bursts and engine.engine == CAPTURES:
        sequences = int(np.ceil(question.concurrency / question.replicas / pool.data))
        largest = max(largest, tokens * sequences, int(sizes[-1]))
    return largest


PARTS: dict[str, Section] = {"prefill": "prefill_ranks", "decode": "decode_ranks"}
"""Sections of InferenceX's rules by side of a deployment of two pools."""
LISTED = re.compile(r"_tp(\d+)(?:_\d+)?_ep(\d+)(?:_|$)")
"""Degrees of the server in the names of AIConfigurator's runs."""


def _aggregated(row: MeasuredRow, collection: Collection) -> tuple[Setup, float]:
    tp, dp, ep, pp = (row.count(name) for name in ("tp", "dp", "ep", "pp"))
    gpus = row.count("n_gpus", tp * pp)
    if row.text("harness") == "inferencex":
        # The source lists TP x DP or TP x EP GPUs: attention ranks lie inside the tensor-parallel group.
        named = LISTED.search(row.text("source"))
        tensor, expert = (int(degree) for degree in named.groups()) if named else (tp, ep)
        if expert == ep > 1 and max(tp, dp) == tensor * expert:
            # TP 2 with EP 2 is listed as 4 GPUs, as InferenceX's configurations show (nvidia-master.yaml:
            # gptoss-fp4-h200-trt runs TP 1, 2, 4 and 8 with as many experts' ranks, never TP 4 with EP 2).
            tp, dp = (tensor, dp) if dp == 1 else (1, tensor)
            gpus = tp * dp * pp
        elif dp == tp:
            gpus = tp * pp
    serving = collection.replica(row, degrees(tp, dp, ep, pp, gpus))
    return serving, max(gpus / serving.pool.devices, 1.0)


def _side(row: MeasuredRow, collection: Collection, side: str) -> tuple[Setup, float]:
    """The replicas of one side of a disaggregated deployment; ``tp`` counts the GPUs of a worker."""
    tp, dp, ep, pp = (row.count(f"{side}_{name}") for name in ("tp", "dp", "ep", "pp"))
    gpus, workers = row.number(f"{side}_gpus"), row.number(f"{side}_workers")
    if not gpus and not workers:
        raise SkippedRow(f"{side} workers not stated")
    listed = row.text("harness") == "inferencex"
    serving = collection.replica(row, degrees(tp, dp, ep, pp, tp * pp if listed else tp * dp * pp))
    if listed:
        flags = flags_of(serving, PARTS[side])
        if dp == 1 and flags.spreads_attention:
            serving = serving.with_pool(tensor=1, data=tp)
        serving = flags.server(serving)
    return serving, workers or max((gpus or 0.0) / serving.pool.devices, 1.0)


def predict(questions: Sequence[ClosedLoop]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replicas."""
    runs = [run for run in (row.run() for row in questions) if run is not None]
    return [figures_of(run) for run in runs] or predict_steady(questions)


def predict_steady(questions: Sequence[ClosedLoop]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replicas, from steady states."""
    first = questions[0]
    output, prompt, clients, replicas, prefills = np.array(
        [(row.output, row.prompt, row.concurrency, row.replicas, row.prefill_replicas) for row in questions]
    ).T
    decode = _steady_side(questions, first.serving)
    polls = np.array([row.wait_steps(row.concurrency) for row in questions])
    gpus = decode_gpus = prefill_gpus = replicas * first.serving.pool.devices
    if first.prefill is None:
        each = clients / replicas
        equal = np.array([float(row.sized) for row in questions])
        state = steady_state(decode.steps, Load(prompt, output, each, together=equal), decode.limits)
        ttft = state.ttft_s + 0.5 * np.where(each > 1, polls, 0) * state.step_s
        all_at_once = prompts_run(decode.steps, each / first.serving.pool.data, prompt, decode.limits.budget)
        queue = np.maximum(all_at_once.mean_s - state.prefill_s, 0.0)
        # Fewer than half of the requests meet others' prompts where these take less than their own.
        longest_s = ttft - np.where(state.queue_s < state.prefill_s, state.queue_s, 0.0)
    else:
        ranks = prefills * first.prefill.pool.data
        sides = _steady_side(questions, first.prefill, speculates=False), decode
        handoff_s = first.prefill.engine.handoff_s.value
        pools = disaggregated(
            *sides, prompt, output, clients, ranks, replicas, handoff_s, _widening(questions)
        )
        ttft, state = pools.ttft_s, pools.decode
        queue, longest_s = np.maximum(clients / ranks - 1, 0) / 2 * pools.prompt_s, ttft
        prefill_gpus = prefills * first.prefill.pool.devices
        gpus = decode_gpus + prefill_gpus
    e2e = ttft + state.tpot_s * np.maximum(output - 1, 1)
    bursts = np.array([row.bursts for row in questions])
    start = np.array([row.start_s for row in questions])
    burst = (queue + start) / CLIENT["requests_per_client"]
    burst = np.where(bursts, burst, 0.0)
    share = _drained(clients) if first.prefill else CLIENT["run_share"]
    rate = clients / (e2e + burst) * np.where(bursts, share, 1.0)
    mean = state.tpot_s + (state.last_tpot_s - state.tpot_s) / CLIENT["requests_per_client"]
    watts = state.watts / first.serving.pool.devices
    columns = {
        "ttft_ms_mean": 1e3 * (ttft + burst),
        "ttft_ms_p50": 1e3 * longest_s,
        "tpot_ms_mean": 1e3 * mean,
        "tpot_ms_p50": 1e3 * state.tpot_s,
        "e2e_ms_mean": 1e3 * (e2e + burst),
        "e2e_ms_p50": 1e3 * (e2e - ttft + longest_s),
        "out_tok_s_per_gpu": rate * output / decode_gpus,
        "in_tok_s_per_gpu": rate * prompt / prefill_gpus,
        "total_tok_s_per_gpu": rate * (prompt + output) / gpus,
        "req_s": rate,
        "power_w_per_gpu": watts,
        "j_per_output_token": watts * gpus / (rate * output),
    }
    return rows_of(columns)


def _drained(clients: np.ndarray) -> np.ndarray:
    """Throughput of a run over that of its steady state: the clients but the last idle for half of a request
    in the mean after their last one. Decode replicas get little faster meanwhile."""
    return 1.0 / (1.0 + 0.5 * (1.0 - 1.0 / clients) / CLIENT["requests_per_client"])


def _widening(questions: Sequence[ClosedLoop]) -> np.ndarray:
    """What jittered outputs add to the time within which a round of requests comes, over a request's decode
    time: the width of a uniform distribution of the variance that half of the rounds add up."""
    rounds = 0.5 * (CLIENT["requests_per_client"] - 1.0)
    jitter = (1.0 - CLIENT["jittered_from"]) / JITTER_MEAN
    return np.array([jitter * rounds**0.5 if row.bursts and row.jitters else np.inf for row in questions])


def _steady_side(questions: Sequence[ClosedLoop], kind: Setup, speculates: bool = True) -> PoolSide:
    """Step times and limits of the replicas of one role, over the rows."""
    first = questions[0]
    ranks_budget = (
        flags_of(kind, "prefill_ranks").token_budget if kind is first.prefill and first.bursts else None
    )
    budget = np.array([min(ranks_budget or row.budget, MOST_BUDGET) for row in questions], dtype=float)
    clients = max(row.concurrency / row.replicas for row in questions) / kind.pool.data
    stated = first.stated
    limit = stated.max_sequences or stated.limits_factor * kind.engine.sequence_limit(kind.cluster.device)
    sequences = min(max(clients, float(SMALLEST_BATCH)), limit)
    slots = np.array([row.decode_slots * (kind is first.serving) or sequences for row in questions])
    context = max(row.prompt + row.output for row in questions) + 2
    table = table_of(kind, float(np.max(budget)), sequences, context)
    room = [replace(row, serving=kind).room(sequences) for row in questions]
    limits = Limits(budget, slots, np.array(room), interleaved=first.sized or None)
    if not (first.speculates and speculates):
        return PoolSide(table.cases, limits, PLANNED.get(kind.engine.engine, 0))
    speculation = build(Speculation, first.speculation, "speculation")
    return PoolSide(SpeculativeCases(table.cases, speculation, kind.model.layers), limits)
