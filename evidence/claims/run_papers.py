"""Published figures of runs of weeks, and what the simulator says; `python -m benchmarks.papers` prints them.

Every band was set before the first run (issue "Weeks, not steps"). A figure without a band is printed with
its cause beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from core.errors import InputError
from meshwright.api.runs import RunSimulation, run
from meshwright.questions.scenarios import shipped_scenarios
from meshwright.variations.question import WhatIfQuestion
from simulator.faults import FaultTrace
from simulator.faults.law import WeibullLaw
from simulator.faults.replay import Replay
from simulator.runs.closed_form import simultaneous_losses, slowest_of_iid
from simulator.runs.recovery.replace import IN_PLACE_S, REQUEUE_S, scheduling_s


@dataclass(frozen=True)
class RunClaim:
    """A published figure of a run.

    Attributes:
        scenario: file in ``scenarios/papers``.
        what: the figure.
        published: as printed, with its rows of the collected data.
        band: least and most that counts as reached; None: printed without a band.
        figure: the prediction, from the scenario's variations by name ("" is the base).
        unit: of the figure.
    """

    scenario: str
    what: str
    published: str
    band: tuple[float, float] | None
    figure: Callable[[Variants], float]
    unit: str = ""


class Variants:
    """Runs of a scenario and of its variations, simulated once."""

    def __init__(self, scenario: str, replications: int | None = None) -> None:
        self.question = WhatIfQuestion.read(shipped_scenarios()[f"papers/{scenario}"])
        self.replications = replications
        self.known: dict[str, RunSimulation] = {}
        self.data = {each.name: each for each in [self.question.base, *self.question.runs()]}

    def __getitem__(self, name: str) -> RunSimulation:
        """The run of a variation; "" is the base."""
        if name not in self.known:
            each = self.data[name or "base"]
            self.known[name] = run(each.data, replications=self.replications)
        return self.known[name]


def goodput(name: str = "") -> Callable[[Variants], float]:
    """Goodput of a variation, percent."""
    return lambda runs: 100 * (runs[name].planned.outcome.goodput or 0.0)


def mtbf_h(name: str = "") -> Callable[[Variants], float]:
    """Hours between faults of a variation's job."""
    return lambda runs: runs[name].planned.outcome.mtbf_s / 3600


def first_order_percent(name: str = "") -> Callable[[Variants], float]:
    """Effective time of a variation by RSC's law to first order, percent."""
    return lambda runs: 100 * (runs[name].planned.outcome.closed_form["first order"] or 0.0)


def never(name: str) -> Callable[[Variants], float]:
    """1 where a variation is refused because it never finishes."""

    def found(runs: Variants) -> float:
        try:
            runs[name]
        except InputError as error:
            return float("never finishes" in str(error))
        return 0.0

    return found


def stall_s(name: str = "") -> Callable[[Variants], float]:
    """Seconds that a save of a variation stops training."""
    return lambda runs: runs[name].planned.outcome.inputs.stall_s


def stall_over(name: str, other: str = "") -> Callable[[Variants], float]:
    """Stall of a variation over that of another."""
    return lambda runs: stall_s(name)(runs) / stall_s(other)(runs)


def terabytes(unit: float) -> Callable[[Variants], float]:
    """Bytes of a checkpoint in a unit."""
    return lambda runs: float(runs[""].planned.case.state.total[0]) / unit


def implied_gb_s(seconds: float) -> Callable[[Variants], float]:
    """Rate that a published time implies for the predicted bytes, GB/s."""
    return lambda runs: float(runs[""].planned.case.state.total[0]) / seconds / 1e9


def written_gb_s(name: str = "") -> Callable[[Variants], float]:
    """Bytes of a checkpoint over its stall, GB/s."""
    return lambda runs: float(runs[name].planned.case.state.total[0]) / stall_s(name)(runs) / 1e9


def slower_percent(name: str) -> Callable[[Variants], float]:
    """Time that the straggler of a variation adds to every step, percent."""
    return lambda runs: 100 * (runs[name].planned.outcome.inputs.slow[0].factor - 1)


def down_percent(name: str = "") -> Callable[[Variants], float]:
    """Share of the time lost, percent."""
    return lambda runs: 100 - goodput(name)(runs)


def spares_p99(nodes: int) -> Callable[[Variants], float]:
    """P99 of nodes down at the same time: evictions of ByteRobust's dense job, repair in a day."""
    rate = (128 + 15) / 1200 / (90 * 86400)
    return lambda runs: float(simultaneous_losses(nodes, rate, 86400.0))


def scheduling(ends: tuple[float, float], devices: int) -> Callable[[Variants], float]:
    """Scheduling time at a size between the two that the law is made from."""
    return lambda runs: scheduling_s(ends, devices)


def trace_figure(read: Callable[[FaultTrace], float]) -> Callable[[Variants], float]:
    """A figure of the replayed trace."""

    def found(runs: Variants) -> float:
        (process,) = runs[""].planned.outcome.inputs.faults.processes
        assert isinstance(process, Replay)
        return read(process.source)

    return found


_per_1000 = trace_figure(lambda trace: trace.per_1000_node_days)
_availability = trace_figure(lambda trace: 100 * trace.availability)


def fitted_rate(runs: Variants) -> float:
    """Faults of the fitted process in 1,000 node-days."""
    inputs = runs["fitted"].planned.outcome.inputs
    return inputs.faults.rate(inputs.job) / inputs.job.nodes * 1000 * 86400


def fitted_availability(runs: Variants) -> float:
    """Availability of a server under the fitted process: up over up and down, percent."""
    inputs = runs["fitted"].planned.outcome.inputs
    rate, repair = inputs.faults.loss_rate(inputs.job)
    return 100 / (1 + rate / inputs.job.nodes * repair)


def elastic_percent(name: str) -> Callable[[Variants], float]:
    """Effective time of a variation by the elastic law, percent."""
    return lambda runs: 100 * float(runs[name].planned.case.effective[0])


def restart_percent(runs: Variants) -> float:
    """Effective time of a restart to first order without lost work, percent."""
    inputs = runs[""].planned.outcome.inputs
    return 100 * (1 - inputs.faults.rate(inputs.job) * sum(inputs.means().values()))


def backup_gain(shape: float) -> Callable[[Variants], float]:
    """Best gain of backup workers over waiting for all 16: max over b of E[max] (n - b) / (n E[n-b]).

    A task takes 1 and a delay of 1 in the mean, Weibull with the shape: 1 is exponential, 0.5 heavy-tailed.
    """

    def found(runs: Variants) -> float:
        law = WeibullLaw(mean=1.0, shape=shape)
        draws = 1 + law.scale * np.random.default_rng(0).weibull(shape, 50_000)
        every = slowest_of_iid(draws, 16)
        return max(every / slowest_of_iid(draws, 16, b) * (16 - b) / 16 for b in range(16))

    return found


CODED_WORKERS, SHARE_S = 256, 0.01
"""Workers, and seconds of one share of the data over a task's fixed second (assumed)."""


def _coded(shape: float) -> tuple[float, float, float]:
    """Seconds of a step of 256 workers: without a code, with gradient coding, and with a sequential one.

    A task takes 1, a share of the data ``SHARE_S`` and a delay of 1 in the mean. A code that drops s workers
    computes s + 1 shares each (Tandon et al. 2017); one over two rounds 2 (s + 1) / (s + 2) shares, where s
    covers the workers dropped in both (Krishnan et al. 2023, M-SGC with B = 1, W = 2). Best s of each.
    """
    law, n = WeibullLaw(mean=1.0, shape=shape), CODED_WORKERS
    draws = 1 + law.scale * np.random.default_rng(0).weibull(shape, 20_000)
    dropped = [2**power for power in range(8)]
    whole = slowest_of_iid(draws + SHARE_S, n)
    coded = min(slowest_of_iid(draws + SHARE_S * (s + 1), n, s) for s in dropped)
    rounds = min(slowest_of_iid(draws + SHARE_S * 2 * (s + 1) / (s + 2), n, s // 2) for s in dropped)
    return whole, coded, rounds


def coding_saves(shape: float, sequential: bool) -> Callable[[Variants], float]:
    """Time that a code saves of a step, percent: of one without, or of gradient coding."""

    def found(runs: Variants) -> float:
        whole, coded, rounds = _coded(shape)
        return 100 * (1 - (rounds / coded if sequential else coded / whole))

    return found


def resplit_percent(runs: Variants) -> float:
    """Speed that a new split of the layers regains, percent."""
    steps = [
        each.outcome.inputs.step_s * each.outcome.inputs.slow[0].factor
        for each in (runs[name].planned for name in ("", "new split"))
    ]
    return 100 * (steps[0] / steps[1] - 1)


def _large_mtbf(runs: Variants) -> float:
    """Hours between failures at 131,072 GPUs."""
    return mtbf_h("131,072 GPUs, fast")(runs)


def _slowest(runs: Variants) -> float:
    """Cost of the slow stage that costs most."""
    return max(slower_percent(f"slow {stage} stage")(runs) for stage in ("first", "middle", "last"))


LAW, ELASTIC, ROBUST = "run-rsc-law", "run-elastic-98k", "run-byterobust"
SAVES_70, SAVES_256 = "run-byterobust-saves-70b", "run-byterobust-saves-256b"
BLOOM, DCP, LOCAL, TRACE = "run-bloom-176b", "run-dcp-7b", "run-fastpersist", "run-stepfun-trace"
BACKUP, SPLIT = "run-backup-workers", "run-last-stage"

RUN_CLAIMS: tuple[RunClaim, ...] = (
    RunClaim("run-llama3-405b", "hours between interruptions", "3.09 (F0022)", (3.085, 3.095), mtbf_h(), "h"),
    RunClaim("run-llama3-405b", "effective training time", "> 90 % (F0023)", (88, 97), goodput(), "%"),
    RunClaim(LAW, "between failures, 16,384", "1.80 (F0060)", (1.795, 1.805), mtbf_h(), "h"),
    RunClaim(LAW, "between failures, 131,072", "0.23 (F0061)", (0.2245, 0.2355), _large_mtbf, "h"),
    RunClaim(LAW, "ETTR, w 300 s, u 600 s", "66 % (F0082)", (65, 67), first_order_percent(), "%"),
    RunClaim(LAW, "the same at 131,072: never finishes", "no progress", (1, 1), never("131,072 GPUs")),
    RunClaim(LAW, "ETTR, w 10 s, u 120 s", "93 %", (92, 94), first_order_percent("fast"), "%"),
    RunClaim(LAW, "the same at 131,072", "72 %", (71, 73), first_order_percent("131,072 GPUs, fast"), "%"),
    RunClaim(
        LAW, "1,024 GPUs: an input", "7.9 (F0059)", None, mtbf_h("1,024 GPUs, with RSC's size term"), "h"
    ),
    RunClaim(ELASTIC, "restart, to first order", "44 % (F0055)", (40, 48), restart_percent, "%"),
    RunClaim(ELASTIC, "restart, faults strike recoveries too", "-", None, goodput(), "%"),
    RunClaim(ELASTIC, "elastic", "80 % (F0056)", (76, 84), elastic_percent("elastic"), "%"),
    RunClaim(ELASTIC, "elastic, drawn", "-", None, goodput("elastic"), "%"),
    RunClaim(ELASTIC, "with the second stall of 100 s", "-", None, goodput("elastic, second stall too"), "%"),
    RunClaim(ROBUST, "ETTR", "97 % (F0127)", (95, 99), goodput(), "%"),
    RunClaim(ROBUST, "re-queue, 4,096", "545 (F0117)", (436, 654), scheduling(REQUEUE_S, 4096), "s"),
    RunClaim(ROBUST, "re-queue, 8,192", "635 (F0119)", (508, 762), scheduling(REQUEUE_S, 8192), "s"),
    RunClaim(ROBUST, "warm, 4,096", "51 (F0118)", (40.8, 61.2), scheduling(IN_PLACE_S, 4096), "s"),
    RunClaim(ROBUST, "warm, 8,192", "54 (F0120)", (43.2, 64.8), scheduling(IN_PLACE_S, 8192), "s"),
    RunClaim(ROBUST, "P99 of losses, 128 nodes", "2 (F0123)", (2, 3), spares_p99(128)),
    RunClaim(ROBUST, "P99 of losses, 256 nodes", "2 (F0124)", (2, 3), spares_p99(256)),
    RunClaim(ROBUST, "P99 of losses, 512 nodes", "3 (F0125)", (3, 4), spares_p99(512)),
    RunClaim(ROBUST, "P99 of losses, 1,024 nodes", "4 (F0126)", (4, 5), spares_p99(1024)),
    RunClaim(SAVES_70, "Megatron, 2,048: fitted here", "6.77 (C0001)", None, stall_s(), "s"),
    RunClaim(SAVES_70, "Megatron, 4,096", "7.14 (C0004)", (4.76, 10.71), stall_s("twice the GPUs"), "s"),
    RunClaim(SAVES_70, "in memory", "1.84 (C0002)", None, stall_s("in memory"), "s"),
    RunClaim(SAVES_70, "ByteRobust", "0.04 (C0003)", (0, 0.1), stall_s("ByteRobust"), "s"),
    RunClaim(SAVES_256, "Megatron, 8,192", "13.02 (C0007)", (8.68, 19.53), stall_s(), "s"),
    RunClaim(SAVES_256, "Megatron, 16,384", "12.98 (C0010)", (8.65, 19.47), stall_s("twice the GPUs"), "s"),
    RunClaim(SAVES_256, "in memory", "0.22 (C0008)", None, stall_s("in memory"), "s"),
    RunClaim(SAVES_256, "ByteRobust", "0.01 (C0009)", (0, 0.1), stall_s("ByteRobust"), "s"),
    RunClaim("run-c4", "time lost before: fitted", "31.19 % (F0172)", (28.2, 34.2), down_percent(), "%"),
    RunClaim("run-c4", "time lost with C4", "1.16 % (F0172)", (0, 4.16), down_percent("C4"), "%"),
    RunClaim(
        BLOOM, "checkpoint", "2.3 TB (C0026), as du prints TiB", (2.185, 2.415), terabytes(2**40), "TiB"
    ),
    RunClaim(BLOOM, "checkpoint, units of 1e12", "2.3 TB", None, terabytes(1e12), "TB"),
    RunClaim(BLOOM, "its time at 57.5 GB/s", "40 s", None, lambda runs: terabytes(57.5e9)(runs), "s"),
    RunClaim(BLOOM, "2.5 % on the slowest stage", "-6 % (F0169), not explained", (2.3, 2.8), _slowest, "%"),
    RunClaim(BLOOM, "2.5 % on the first stage", "-", (0, 2.3), slower_percent("slow first stage"), "%"),
    RunClaim(
        DCP, "asynchronous over synchronous stall", "0.042 (C0018)", (0, 0.9999), stall_over("asynchronous")
    ),
    RunClaim(DCP, "rate that 148.8 s imply", "(C0017)", None, implied_gb_s(148.8), "GB/s"),
    RunClaim(DCP, "rate that 6.3 s imply", "(C0018)", None, implied_gb_s(6.3), "GB/s"),
    RunClaim(DCP, "lazy over synchronous", "up to 48x (C0036)", (0, 0.9999), stall_over("lazy")),
    RunClaim(DCP, "in memory over synchronous", "less (REFT)", (0, 0.9999), stall_over("in memory of peers")),
    RunClaim(
        DCP, "universal over asynchronous", "little", (0.9, 1.1), stall_over("universal", "asynchronous")
    ),
    RunClaim(LOCAL, "four SSDs", "15.6 GB/s (C0028)", (11, 53), written_gb_s(), "GB/s"),
    RunClaim(LOCAL, "eight SSDs", "22.6 GB/s (C0031)", (22.6, 53), written_gb_s("eight SSDs"), "GB/s"),
    RunClaim(LOCAL, "eight over four", "1.45", (1.2, 2.4), lambda r: 1 / stall_over("eight SSDs")(r)),
    RunClaim(TRACE, "starts", "584 (F0219)", (584, 584), trace_figure(lambda trace: trace.starts)),
    RunClaim(
        TRACE,
        "a 1,000 node-days",
        "4.20 (F0220)",
        (4.195, 4.205),
        _per_1000,
    ),
    RunClaim(
        TRACE,
        "availability",
        "97.5 % (F0225)",
        (97.45, 97.55),
        trace_figure(lambda t: 100 * t.availability),
        "%",
    ),
    RunClaim(TRACE, "fitted, a 1,000 node-days", "4.20", (3.78, 4.62), fitted_rate),
    RunClaim(TRACE, "fitted, availability", "97.5 %", (96.5, 98.5), fitted_availability, "%"),
    RunClaim(BACKUP, "backup workers, exponential", "up to 3x", (1, 3), backup_gain(1.0), "x"),
    RunClaim(BACKUP, "backup workers, heavy tail", "up to 3x", (1, 3), backup_gain(0.5), "x"),
    RunClaim(BACKUP, "gradient coding, 256, exponential", "-", None, coding_saves(1.0, False), "%"),
    RunClaim(BACKUP, "sequential over it, exponential", "16 %", (0, 100), coding_saves(1.0, True), "%"),
    RunClaim(BACKUP, "gradient coding, 256, heavy tail", "-", None, coding_saves(0.5, False), "%"),
    RunClaim(BACKUP, "sequential over it, heavy tail", "16 %", (0, 100), coding_saves(0.5, True), "%"),
    RunClaim(SPLIT, "new split of the layers", "9.9 % (F0148)", (5, 15), resplit_percent, "%"),
    RunClaim(SPLIT, "long last stage, over an even one", "-", None, slower_percent(""), "%"),
)


def run_rows(asked: list[str]) -> Iterator[str]:
    """Lines of the table, in Markdown; claims of the scenarios asked for, or all."""
    yield "| scenario | figure | published | band | simulated | verdict |"
    yield "|---|---|---|---|---|---|"
    variants: dict[str, Variants] = {}
    for claim in RUN_CLAIMS:
        if not asked or claim.scenario in asked:
            runs = variants.setdefault(claim.scenario, Variants(claim.scenario))
            yield run_row(claim, claim.figure(runs))


def run_row(claim: RunClaim, found: float) -> str:
    """One line of the table."""
    band, verdict = "none", "printed"
    if claim.band is not None:
        low, high = claim.band
        band = f"{low:g} to {high:g}"
        verdict = "inside" if low <= found <= high else "below" if found < low else "above"
    figure = f"{found:.4g} {claim.unit}".strip()
    return f"| `{claim.scenario}` | {claim.what} | {claim.published} | {band} | {figure} | {verdict} |"
