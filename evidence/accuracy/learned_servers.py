"""How much two measured concurrencies of a server improve the prediction of its others; the priors' fit.

Read by ``python -m benchmarks.learning --servers FILE [--draws 1] [--every N] [--fit]``. A server is a model,
device, engine version, degrees, number formats and lengths of a file of closed loops (`closed_loop.csv.gz`);
rows with speculation, flags, or pools of prompts are left out, and so are TTFTs of clients whose start nobody
describes (`benchmarks.served_rows.unknown`). Two concurrencies are drawn, ``learn`` sees them, the others
are predicted by runs of the event engine. ``--fit`` prints the spreads of
`simulator/uncertainty/server_errors.yaml` by maximum likelihood: factors of a server are multivariate t.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import lgamma, log, pi
from pathlib import Path
from typing import Any

import numpy as np

from evidence.fits.part_errors import FREEDOM
from evidence.fits.served_rows import source_of, unknown
from evidence.serving import ledger
from evidence.serving.case import ServingCase
from evidence.serving.loads import load_of
from simulator.site import BY_TOKENS, SERVER_FACTORS
from simulator.uncertainty.servers import (
    FRONT,
    LEARNED,
    MeasuredLoad,
    ServerErrors,
    ServerLoads,
    server_errors,
)

SHOWN = 2
LEAST_LOADS = 3
KINDS = ("tpot", "ttft")
LEAST_LOG, MOST_LOG = -6.0, 1.5
SPREADS = tuple(name for name in SERVER_FACTORS if name not in BY_TOKENS)
FIGURES = (*SPREADS, "tokens", "reach", "front_s", *KINDS)
"""What ``--fit`` finds."""


@dataclass
class Server:
    """Measured loads of one server, by concurrency."""

    name: str
    source: str
    loads: list[MeasuredLoad]
    clients: list[float]


def servers(path: Path) -> list[Server]:
    """The servers of a file of closed loops."""
    questions: dict[Any, list[ServingCase]] = defaultdict(list)
    ledger._read(path, True, questions, ledger.ServingLedger())
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        versions = {row["case_id"]: row["engine_version"] for row in csv.DictReader(file)}
    groups: dict[tuple[Any, ...], list[ServingCase]] = defaultdict(list)
    for case in questions["closed_loop"]:
        load = case.question
        if case.flagged or load.speculates or load.prefill is not None:
            continue
        key = load.serving.key, versions[case.case_id], load.prompt, load.output, load.replicas
        groups[*key, source_of(case)].append(case)
    return [_server(key, cases) for key, cases in groups.items()]


def _server(key: tuple[Any, ...], cases: Sequence[ServingCase]) -> Server:
    """A server; repeats of a concurrency count once."""
    loads: dict[float, MeasuredLoad] = {}
    for case in sorted(cases, key=lambda case: case.case_id):
        load = load_of(case)
        measured = {
            kind: value
            for kind, value in load.measured.items()
            if not unknown(case, "{}_ms_{}".format(*kind.split("_")))
        }
        if measured and case.question.concurrency not in loads:
            loads[case.question.concurrency] = MeasuredLoad(load.name, load.data, measured, load.folder)
    (model, device, _, engine), version, prompt, output, *_ = key
    name = f"{model} on {device}, {engine} ({version}), {prompt:.0f} to {output:.0f}"
    return Server(name, key[-1], list(loads.values()), list(loads))


def judged(server: Server, draws: int, random: np.random.Generator) -> list[tuple[str, str, float, float]]:
    """Kind, place, and sizes of the errors before and after of the loads that were not shown, over all draws.

    The place is inside the two concurrencies that were shown, or outside.
    """
    runs = ServerLoads(server.loads, server.name)
    ratios = []
    for _ in range(draws):
        drawn = random.choice(len(server.loads), SHOWN, replace=False)
        ends = [server.clients[index] for index in sorted(drawn, key=lambda index: server.clients[index])]
        visible = np.isin(runs.owner, drawn)
        after = runs.seconds(runs.fit(visible).site, ~visible) / runs.measured - 1
        before = runs.before / runs.measured - 1
        ratios += [
            (
                runs.rows[row][1].partition("_")[0],
                "inside" if ends[0] < server.clients[runs.owner[row]] < ends[-1] else "outside",
                abs(before[row]),
                abs(after[row]),
            )
            for row in np.flatnonzero(~visible)
        ]
    return ratios


def show_servers(path: Path, draws: int, seed: int, every: int = 1) -> None:
    """Print medians of the errors of loads that were not shown, by who measured them and by place.

    A draw takes about 3 s of CPU a server: 150 servers of the collected file ten minutes, `every` fifth two.
    """
    random = np.random.default_rng(seed)
    errors: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    count: dict[str, int] = defaultdict(int)
    for server in [server for server in servers(path) if len(server.loads) >= LEAST_LOADS][::every]:
        count[server.source] += 1
        for kind, place, before, after in judged(server, draws, random):
            for group in (server.source, place, "all"):
                errors[kind, group].append((before, after))
    print(f"{SHOWN} concurrencies shown, {draws} draws, the others predicted; servers: {dict(count)}")
    print(
        f"{'latency':8s} {'place':16s} {'loads':>6s} {'before':>8s} {'after':>8s} {'p90':>8s} {'after':>8s}"
    )
    for (kind, source), values in sorted(errors.items()):
        both = np.array(values)
        middle, high = np.median(both, axis=0), np.quantile(both, 0.9, axis=0)
        figures = f"{middle[0]:8.1%} {middle[1]:8.1%} {high[0]:8.1%} {high[1]:8.1%}"
        print(f"{kind.upper():8s} {source:16s} {len(both):6d} {figures}")


def errors_of(logs: np.ndarray) -> ServerErrors:
    """The errors whose figures have these logarithms, in the order of ``FIGURES``."""
    values = dict(zip(FIGURES, np.exp(logs).tolist(), strict=True))
    return ServerErrors(
        source="a fit",
        spread={name: values[name] for name in SPREADS},
        tokens=values["tokens"],
        reach=values["reach"],
        front_s=values["front_s"],
        residual={kind: values[kind] for kind in KINDS},
    )


def likelihood(logs: np.ndarray, runs: Sequence[ServerLoads]) -> float:
    """Negative log likelihood of the errors of servers.

    Args:
        logs: logarithms of ``FIGURES``.
        runs: the servers.
    """
    total, errors = 0.0, errors_of(logs)
    prior = errors.prior
    for run in runs:
        noise = np.array([errors.residual[kind.partition("_")[0]] ** 2 for _, kind in run.rows])
        together = run.changes @ prior @ run.changes.T + np.diag(noise)
        root = np.linalg.cholesky(together)
        left = np.linalg.solve(root, np.log(run.measured / run.before))
        n, nu = len(left), FREEDOM
        total += float(np.log(np.diag(root)).sum() + 0.5 * (nu + n) * np.log1p(left @ left / nu))
        total += lgamma(0.5 * nu) - lgamma(0.5 * (nu + n)) + 0.5 * n * log(nu * pi)
    return total


def show_fit(path: Path) -> None:
    """Print the spreads that make the errors of all servers most likely."""
    from scipy.optimize import minimize

    errors = server_errors()
    spreads = (errors.spread[name] for name in SPREADS)
    residuals = (errors.residual[kind] for kind in KINDS)
    start = np.log([*spreads, errors.tokens, errors.reach, errors.front_s, *residuals])
    runs = [ServerLoads(server.loads, server.name) for server in servers(path)]
    for run in runs:
        run.changes[[kind.startswith("tpot") for _, kind in run.rows], LEARNED.index(FRONT)] = 0.0
        run.tables = type(run.tables)(1)
    bounds = [(LEAST_LOG, MOST_LOG)] * len(start)
    optimum = minimize(likelihood, start, args=(runs,), method="L-BFGS-B", bounds=bounds)
    for name, value in zip(FIGURES, np.exp(optimum.x), strict=True):
        print(f"{name:10s} {value:.4f}")
