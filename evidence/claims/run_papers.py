"""Published figures of runs of weeks, and what the simulator says; `python -m benchmarks.papers` prints them.

Every band was set before the first run (issue "Weeks, not steps"). A figure without a band is printed with
its cause beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from core.errors import InputError
from evidence.claims.claim_files import Band, FigureClaim, named_runs, paper, read_figures
from meshwright.api.runs import RunSimulation, run
from simulator.faults import FaultTrace
from simulator.faults.law import WeibullLaw
from simulator.faults.replay import Replay
from simulator.runs.closed_form import simultaneous_losses, slowest_of_iid
from simulator.runs.recovery.replace import IN_PLACE_S, REQUEUE_S, scheduling_s


class RunClaim(FigureClaim):
    """A published figure of a run; one of `FIGURES`."""

    published: str
    """As printed, with its rows of the collected data."""
    band: Band | None = None
    """Least and most that counts as reached; none: printed without a band."""
    unit: str = ""
    """Of the figure."""


class Variants:
    """Runs of a scenario and of its variations, simulated once."""

    def __init__(self, scenario: str, replications: int | None = None) -> None:
        self.replications = replications
        self.simulated: dict[str, RunSimulation] = {}
        self.by_name = named_runs(paper(scenario))

    def __getitem__(self, name: str) -> RunSimulation:
        """The run of a variation; "" is the base."""
        if name not in self.simulated:
            each = self.by_name[name or "base"]
            self.simulated[name] = run(each.data, replications=self.replications)
        return self.simulated[name]


def goodput(runs: Variants, name: str = "") -> float:
    """Goodput of a variation, percent."""
    return 100 * (runs[name].planned.outcome.goodput or 0.0)


def mtbf_h(runs: Variants, name: str = "") -> float:
    """Hours between faults of a variation's job."""
    return runs[name].planned.outcome.mtbf_s / 3600


def first_order_percent(runs: Variants, name: str = "") -> float:
    """Effective time of a variation by RSC's law to first order, percent."""
    return 100 * (runs[name].planned.outcome.closed_form["first order"] or 0.0)


def never(runs: Variants, name: str) -> float:
    """1 where a variation is refused because it never finishes."""
    try:
        runs[name]
    except InputError as error:
        return float("never finishes" in str(error))
    return 0.0


def stall_s(runs: Variants, name: str = "") -> float:
    """Seconds that a save of a variation stops training."""
    return runs[name].planned.outcome.inputs.stall_s


def stall_over(runs: Variants, name: str = "", other: str = "") -> float:
    """Stall of a variation over that of another."""
    return stall_s(runs, name) / stall_s(runs, other)


def saved_bytes(runs: Variants, name: str = "") -> float:
    """Bytes of a checkpoint of a variation."""
    return float(runs[name].planned.case.state.total[0])


def terabytes(runs: Variants, unit: float) -> float:
    """Bytes of a checkpoint in a unit."""
    return saved_bytes(runs) / unit


def implied_gb_s(runs: Variants, seconds: float) -> float:
    """Rate that a published time implies for the predicted bytes, GB/s."""
    return saved_bytes(runs) / seconds / 1e9


def written_gb_s(runs: Variants, name: str = "") -> float:
    """Bytes of a checkpoint over its stall, GB/s."""
    return saved_bytes(runs, name) / stall_s(runs, name) / 1e9


def slower_percent(runs: Variants, name: str = "") -> float:
    """Time that the straggler of a variation adds to every step, percent."""
    return 100 * (runs[name].planned.outcome.inputs.slow[0].factor - 1)


def slowest_percent(runs: Variants) -> float:
    """Cost of the slow stage that costs most, percent."""
    return max(slower_percent(runs, f"slow {stage} stage") for stage in ("first", "middle", "last"))


def down_percent(runs: Variants, name: str = "") -> float:
    """Share of the time lost, percent."""
    return 100 - goodput(runs, name)


def spares_p99(runs: Variants, nodes: int) -> float:
    """P99 of nodes down at the same time: evictions of ByteRobust's dense job, repair in a day."""
    rate = (128 + 15) / 1200 / (90 * 86400)
    return float(simultaneous_losses(nodes, rate, 86400.0))


def scheduling(runs: Variants, ends: str, devices: int) -> float:
    """Scheduling time at a size between the two that the law is made from."""
    return scheduling_s({"requeue": REQUEUE_S, "in place": IN_PLACE_S}[ends], devices)


def _trace(runs: Variants) -> FaultTrace:
    """The replayed trace."""
    (process,) = (
        cause for cause in runs[""].planned.outcome.inputs.faults.processes if isinstance(cause, Replay)
    )
    return process.source


def trace_starts(runs: Variants) -> float:
    """Faults of the trace."""
    return _trace(runs).starts


def trace_per_1000(runs: Variants) -> float:
    """Faults of the trace in 1,000 node-days."""
    return _trace(runs).per_1000_node_days


def trace_availability(runs: Variants) -> float:
    """Availability of a server in the trace, percent."""
    return 100 * _trace(runs).availability


def fitted_rate(runs: Variants) -> float:
    """Faults of the fitted process in 1,000 node-days."""
    inputs = runs["fitted"].planned.outcome.inputs
    return inputs.faults.rate(inputs.job) / inputs.job.nodes * 1000 * 86400


def fitted_availability(runs: Variants) -> float:
    """Availability of a server under the fitted process: up over up and down, percent."""
    inputs = runs["fitted"].planned.outcome.inputs
    rate, repair = inputs.faults.loss_rate(inputs.job)
    return 100 / (1 + rate / inputs.job.nodes * repair)


def elastic_percent(runs: Variants, name: str) -> float:
    """Effective time of a variation by the elastic law, percent."""
    return 100 * float(runs[name].planned.case.effective[0])


def restart_percent(runs: Variants) -> float:
    """Effective time of a restart to first order without lost work, percent."""
    inputs = runs[""].planned.outcome.inputs
    return 100 * (1 - inputs.faults.rate(inputs.job) * sum(inputs.means().values()))


def backup_gain(runs: Variants, shape: float) -> float:
    """Best gain of backup workers over waiting for all 16: max over b of E[max] (n - b) / (n E[n-b]).

    A task takes 1 and a delay of 1 in the mean, Weibull with the shape: 1 is exponential, 0.5 heavy-tailed.
    """
    law = WeibullLaw(mean=1.0, shape=shape)
    draws = 1 + law.scale * np.random.default_rng(0).weibull(shape, 50_000)
    every = slowest_of_iid(draws, 16)
    return max(every / slowest_of_iid(draws, 16, b) * (16 - b) / 16 for b in range(16))


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
    uncoded = slowest_of_iid(draws + SHARE_S, n)
    coded = min(slowest_of_iid(draws + SHARE_S * (s + 1), n, s) for s in dropped)
    rounds = min(slowest_of_iid(draws + SHARE_S * 2 * (s + 1) / (s + 2), n, s // 2) for s in dropped)
    return uncoded, coded, rounds


def coding_saves(runs: Variants, shape: float, sequential: bool) -> float:
    """Time that a code saves of a step, percent: of one without, or of gradient coding."""
    uncoded, coded, rounds = _coded(shape)
    return 100 * (1 - (rounds / coded if sequential else coded / uncoded))


def resplit_percent(runs: Variants) -> float:
    """Speed that a new split of the layers regains, percent."""
    steps = [
        each.outcome.inputs.step_s * each.outcome.inputs.slow[0].factor
        for each in (runs[name].planned for name in ("", "new split"))
    ]
    return 100 * (steps[0] / steps[1] - 1)


FIGURES: dict[str, Callable[..., float]] = {
    each.__name__: each
    for each in (
        backup_gain,
        coding_saves,
        down_percent,
        elastic_percent,
        first_order_percent,
        fitted_availability,
        fitted_rate,
        goodput,
        implied_gb_s,
        mtbf_h,
        never,
        resplit_percent,
        restart_percent,
        scheduling,
        slower_percent,
        slowest_percent,
        spares_p99,
        stall_over,
        stall_s,
        terabytes,
        trace_availability,
        trace_per_1000,
        trace_starts,
        written_gb_s,
    )
}
"""Predictions by name, from a scenario's variations ("" is the base)."""
RUN_CLAIMS = read_figures("runs", RunClaim, FIGURES)


def run_rows(scenarios: Sequence[str]) -> Iterator[str]:
    """Lines of the table, in Markdown; claims of the scenarios asked for, or all."""
    yield "| scenario | figure | published | band | simulated | verdict |"
    yield "|---|---|---|---|---|---|"
    variants: dict[str, Variants] = {}
    for claim in RUN_CLAIMS:
        if not scenarios or claim.scenario in scenarios:
            runs = variants.setdefault(claim.scenario, Variants(claim.scenario))
            yield run_row(claim, FIGURES[claim.figure](runs, **claim.given))


def run_row(claim: RunClaim, reached: float) -> str:
    """One line of the table."""
    band, verdict = "none", "printed"
    if claim.band is not None:
        low, high = claim.band
        band = f"{low:g} to {high:g}"
        verdict = "inside" if low <= reached <= high else "below" if reached < low else "above"
    figure = f"{reached:.4g} {claim.unit}".strip()
    return f"| `{claim.scenario}` | {claim.what} | {claim.published} | {band} | {figure} | {verdict} |"
