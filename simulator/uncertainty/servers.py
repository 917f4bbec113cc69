"""Learning from measured servers: factors of a server's steps and its front end, by Bayes.

The logarithms of the factors (``simulator.site.SERVER_FACTORS``) and the seconds of TTFT outside of steps
have a normal prior. Each measured latency of a load adds one equation: the change of its logarithm with each
factor, times the factors, with an error of its own. The posterior is that of a linear model at the factors of
the round before. Predictions are runs of the event engine; changes with the factors are those of the steady
state, where the deployment has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from core.arrays import distinct
from core.cache import read_shipped
from core.errors import InputError
from core.loading import Strict, build
from core.records import record
from simulator.serving.result import ServingResult, serve
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting
from simulator.serving.steady.steady import Limits, Load, steady_state
from simulator.serving.steps.costs import engine_of
from simulator.serving.steps.shared_tables import SharedTables
from simulator.serving.steps.table import IterationTable
from simulator.site import BY_TOKENS, LEAST, MOST, SERVER_FACTORS, STEP_TOKENS, ServerSite
from simulator.uncertainty.bayes import Posterior, posterior

ERRORS_FILE = Path(__file__).parent / "server_errors.yaml"

FRONT = "front"
LEARNED = (*SERVER_FACTORS, FRONT)
"""What measured servers teach: logarithms of factors, and seconds of TTFT outside of steps."""
ROUNDS = 2
"""Rounds of prediction and fit after the first fit."""
CHANGE = 0.1
"""Change of a factor's logarithm in differences of steady states."""
FRONT_CHANGE_S = 0.005
MOST_FRONT_S = 60.0
KEPT_TABLES = 8


class ServerErrors(Strict):
    """Errors of predicted servers: standard deviations of logarithms, and of the front end in seconds."""

    source: str
    spread: dict[str, float] = Field(description="error of each factor")
    tokens: float = Field(gt=0, description="error of steps by their tokens")
    reach: float = Field(gt=0, description="logarithm of the ratio of tokens over which it fades")
    front_s: float = Field(gt=0, description="error of the part of TTFT outside of steps")
    residual: dict[str, float] = Field(description="error of a load's latency that no factor explains")

    @property
    def prior(self) -> np.ndarray:
        """Covariance of ``LEARNED``: that of steps fades with the ratio of their tokens."""
        spread = [self.tokens if name in BY_TOKENS else self.spread[name] for name in SERVER_FACTORS]
        covariance = np.diag(np.square([*spread, self.front_s]))
        sizes = np.log(STEP_TOKENS)
        steps = np.array([LEARNED.index(name) for name in BY_TOKENS])
        apart = np.abs(sizes[:, None] - sizes)
        covariance[np.ix_(steps, steps)] = self.tokens**2 * np.exp(-apart / self.reach)
        return covariance


@cache
def server_errors() -> ServerErrors:
    """The shipped errors."""
    return build(ServerErrors, read_shipped(ERRORS_FILE), str(ERRORS_FILE))


@record()
class MeasuredLoad:
    """Measured latencies of one load on one server.

    Attributes:
        name: of the load, for reports.
        data: the serving scenario that reproduces it.
        measured: seconds by latency and statistic: ``ttft_p50``, ``ttft_mean``, ``tpot_mean``, ``tpot_p50``.
        folder: base of the scenario's relative paths.
    """

    name: str
    data: Mapping[str, Any]
    measured: Mapping[str, float]
    folder: Path = Path()

    @property
    def learned_from(self) -> list[str]:
        """The statistics that are learned from: the mean TPOT, and the median TTFT, which a start-up burst
        changes least."""
        learned = []
        for kinds in (("tpot_mean", "tpot_p50"), ("ttft_p50", "ttft_mean")):
            learned += [kind for kind in kinds if kind in self.measured][:1]
        return learned

    def setting(self, site: ServerSite | None, tables: SharedTables) -> ServingSetting:
        """The load's scenario under a site's factors.

        Raises:
            InputError: a wrong key or value.
            InfeasibleError: the model does not fit.
        """
        if site is None:
            return make_serving(self.data, self.name, self.folder, tables)
        # The scenario was read without a site before, so that its deployment is a mapping.
        deployment = {**(self.data.get("deployment") or {}), "site": site.model_dump(mode="json")}
        return make_serving({**self.data, "deployment": deployment}, self.name, self.folder, tables)


@record()
class LearnedServer:
    """What measured servers say.

    Attributes:
        site: the factors.
        before, after, left_out: predicted over measured less 1 of each equation, without and with the site,
            and learned without its load, shape (equations,).
        surprise: standard deviations between each equation and what the other loads say.
        loads, kinds: load and statistic of each equation.
        prior, posterior: standard deviation of each of ``LEARNED``.
    """

    site: ServerSite
    before: np.ndarray
    after: np.ndarray
    left_out: np.ndarray
    surprise: np.ndarray
    loads: list[int]
    kinds: list[str]
    prior: np.ndarray
    posterior: np.ndarray


def statistic(result: ServingResult, kind: str) -> float:
    """A latency's statistic over the requests of a run, s.

    Args:
        result: of a run.
        kind: ``ttft`` or ``tpot``, and ``mean`` or ``p50``.
    """
    columns = result.records.columns()
    first, name = columns["first_s"], kind.partition("_")[0]
    values = (
        first - columns["arrival_s"]
        if name == "ttft"
        else (columns["last_s"] - first) / np.maximum(columns["output"] - 1, 1)
    )
    return float(np.median(values) if kind.endswith("p50") else values.mean())


@record()
class ServerFit:
    """A posterior, its site, and the linear model: changes (rows, learned) and log errors (rows,)."""

    posterior: Posterior
    site: ServerSite
    changes: np.ndarray
    errors: np.ndarray


class ServerLoads:
    """Measured loads of servers of one device and engine: their equations, and predictions of them.

    Args:
        loads: one or more.
        source: where they come from, for the site.
    """

    def __init__(self, loads: Sequence[MeasuredLoad], source: str = "") -> None:
        self.loads, self.tables = loads, SharedTables(KEPT_TABLES)
        self.rows = [(index, kind) for index, load in enumerate(loads) for kind in load.learned_from]
        self.owner = np.array([index for index, _ in self.rows])
        self.measured = np.array([loads[index].measured[kind] for index, kind in self.rows])
        errors = server_errors()
        self.prior = errors.prior
        self.residual = np.array([errors.residual[kind.partition("_")[0]] for _, kind in self.rows])
        self.plain = _plain_site([load.setting(None, self.tables) for load in loads], source)

    def seconds(self, site: ServerSite | None, rows: np.ndarray) -> np.ndarray:
        """Predicted latency of the wanted equations, by runs of the event engine; else 1, shape (rows,).

        Raises:
            InputError: a latency that the load's answers cannot have.
        """
        latencies = np.ones(len(self.rows))
        for index in distinct(self.owner[rows]):
            result = serve(self.loads[index].setting(site, self.tables))
            for row in np.flatnonzero((self.owner == index) & rows):
                kind = self.rows[row][1]
                latencies[row] = statistic(result, kind)
                if not latencies[row] > 0:
                    problem = "answers of one token have no time per output token"
                    raise InputError(
                        f"{kind.replace('_', ' ')} cannot be predicted: {problem}", self.loads[index].name
                    )
        return latencies

    @cached_property
    def before(self) -> np.ndarray:
        """Predicted latencies without a site."""
        return self.seconds(None, np.ones(len(self.rows), dtype=bool))

    @cached_property
    def changes(self) -> np.ndarray:
        """Change of the logarithm of each latency with each of ``LEARNED``, shape (rows, learned)."""
        base = self._quick(self.plain)
        slopes = np.zeros((len(self.rows), len(LEARNED)))
        for column, name in enumerate(LEARNED):
            step = FRONT_CHANGE_S if name == FRONT else CHANGE
            changed = site_of(self.plain, np.where(np.arange(len(LEARNED)) == column, step, 0.0))
            slopes[:, column] = np.log(self._quick(changed) / base) / step
        return slopes

    def _quick(self, site: ServerSite) -> np.ndarray:
        """Latencies of steady states, or of runs where a deployment has no closed form."""
        settings = [load.setting(site, self.tables) for load in self.loads]
        latencies = [steady_latencies(setting) or run_latencies(setting) for setting in settings]
        return np.array([latencies[index](kind) for index, kind in self.rows])

    def posterior(self, changes: np.ndarray, errors: np.ndarray, rows: np.ndarray) -> Posterior:
        """Of ``LEARNED``, from the kept equations."""
        spread = self.residual[rows]
        return posterior(changes[rows], errors[rows], self.prior, spread, spread**2)

    def fit(self, rows: np.ndarray) -> ServerFit:
        """Learn from the kept equations."""
        now, mean = self.before, np.zeros(len(LEARNED))
        for _ in range(ROUNDS):
            fit = self._fit(now, mean, rows)
            mean = fit.posterior.mean
            now = self.seconds(fit.site, rows)
        return self._fit(now, mean, rows)

    def _fit(self, now: np.ndarray, mean: np.ndarray, rows: np.ndarray) -> ServerFit:
        """A linear model at a point where latencies are ``now``."""
        changes, first = self.changes.copy(), [kind.startswith("ttft") for _, kind in self.rows]
        # Seconds of the front end add to TTFT as they are.
        changes[first, LEARNED.index(FRONT)] = 1.0 / now[first]
        errors = np.log(self.measured / now) + changes @ mean
        posterior = self.posterior(changes, errors, rows)
        return ServerFit(posterior, site_of(self.plain, posterior.mean), changes, errors)


def _plain_site(settings: Sequence[ServingSetting], source: str) -> ServerSite:
    """A site without factors, of the device and engine of all loads.

    Raises:
        InputError: there are several.
    """
    pools = [(pool, setting.folder) for setting in settings for pool in setting.pools]
    places = {
        "devices": sorted({pool.cluster.device.name for pool, _ in pools}),
        "engines": sorted({engine_of(pool.pool.engine, folder, "engine").name for pool, folder in pools}),
    }
    for kind, names in places.items():
        if len(names) > 1:
            raise InputError(f"holds servers of several {kind}: {', '.join(names)}; learn each apart", source)
    return ServerSite(source=source, device=places["devices"][0], engine=places["engines"][0])


Latencies = Callable[[str], float]


def run_latencies(setting: ServingSetting) -> Latencies:
    """Latencies of a run, by statistic."""
    result = serve(setting)
    return lambda kind: statistic(result, kind)


def steady_latencies(setting: ServingSetting) -> Latencies | None:
    """Latencies of the steady state of one pool, by statistic; None where it has none.

    A mean TTFT of a closed loop holds the burst of the first requests.
    """
    pool, workload = setting.pools[0], setting.serving
    steps, arrivals = pool.costs.steps, workload.arrivals
    lengths = workload.input, workload.output
    if len(setting.pools) > 1 or not isinstance(steps, IterationTable) or arrivals is None or None in lengths:
        return None
    prompt, output = (length.mean() for length in lengths if length is not None)
    options, replicas = pool.options, pool.pool.replicas
    clients = getattr(arrivals, "concurrency", 0) / replicas
    rate = arrivals.mean_rate() or 0.0
    if not clients and not rate:
        return None
    load = Load(prompt, output, concurrency=clients, rate=rate / replicas)
    room = float(pool.costs.kv_blocks * options.block_tokens)
    state = steady_state(steps, load, Limits(options.token_budget, options.max_sequences, room))
    rounds = max(workload.requests / max(clients * replicas, 1.0), 1.0)
    burst = 0.5 * max(clients - 1.0, 0.0) * float(state.prefill_s) / rounds
    ttft, tpot = float(state.ttft_s), float(state.tpot_s)
    return lambda kind: tpot if kind.startswith("tpot") else ttft + (burst if kind == "ttft_mean" else 0.0)


def site_of(plain: ServerSite, logs: np.ndarray) -> ServerSite:
    """A site with the factors of a vector of ``LEARNED``."""
    factors = np.clip(np.exp(logs[:-1]), LEAST, MOST)
    return plain.model_copy(
        update={
            "factors": {
                name: round(float(factor), 5) for name, factor in zip(SERVER_FACTORS, factors, strict=True)
            },
            "front_s": round(float(np.clip(logs[-1], -MOST_FRONT_S, MOST_FRONT_S)), 6),
        }
    )


def learn_server(loads: Sequence[MeasuredLoad], source: str = "") -> LearnedServer:
    """Factors of servers from measured loads on one device and engine.

    Args:
        loads: one or more.
        source: where they come from, for the file.

    Raises:
        InputError: a wrong scenario, or several devices or engines.
        InfeasibleError: the model does not fit.
    """
    runs = ServerLoads(loads, source)
    every = np.ones(len(runs.rows), dtype=bool)
    fit = runs.fit(every)
    left, surprise = _left_out(runs, fit)
    return LearnedServer(
        fit.site,
        runs.before / runs.measured - 1,
        runs.seconds(fit.site, every) / runs.measured - 1,
        np.exp(-left) - 1,
        surprise,
        [index for index, _ in runs.rows],
        [kind for _, kind in runs.rows],
        np.sqrt(np.diag(runs.prior)),
        np.sqrt(np.maximum(np.diag(fit.posterior.covariance), 0.0)),
    )


def _left_out(runs: ServerLoads, fit: ServerFit) -> tuple[np.ndarray, np.ndarray]:
    """Log error of each equation under what the other loads say, and that error in standard deviations."""
    left, surprise = np.zeros(len(fit.errors)), np.zeros(len(fit.errors))
    for row, changes in enumerate(fit.changes):
        posterior = runs.posterior(fit.changes, fit.errors, runs.owner != runs.owner[row])
        left[row] = fit.errors[row] - changes @ posterior.mean
        surprise[row] = left[row] / np.sqrt(
            changes @ posterior.covariance @ changes + runs.residual[row] ** 2
        )
    return left, surprise
