"""Learning from a user's own measured steps: the errors of a step's parts by Bayes.

The logarithms of the parts' factors have a prior of t, the errors of published steps by evidence: near one as
a normal prior, but one host that is six times as slow is likelier than six odd runs. A measured step adds one
equation: how the logarithm of its time changes with the factors, times these, with an error of its own. The
most likely factors are found by Gauss-Newton steps that never make them less likely. Factors that no site can
apply (overlap, state off the device) are part of the fit only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from core.records import record
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.site import FACTORS, LEAST, MOST, SITE_FORMAT, Site, SiteMemory
from simulator.training import Step, predict
from simulator.training.memory import memory
from simulator.uncertainty.bands import evidence_scale, part_variance
from simulator.uncertainty.bayes import FREEDOM, Posterior, posterior
from simulator.uncertainty.errors import model_errors
from simulator.uncertainty.memory import peak_errors
from simulator.uncertainty.parts import PARTS, exposure

ROUNDS = 8
HALVED = (1.0, 0.5, 0.25, 0.125)
"""Shares of a step of the fit, until the posterior grows."""
ENOUGH = 0.02
"""Gain of twice the log posterior below which the fit ends: no factor moves by 0.15 of its spread."""

APPLIED = np.array([PARTS.index(name) for name in FACTORS])
WHOLE = PARTS.index("whole")

SAME_SITE_MEMORY = 0.05
"""Standard deviation of measured over predicted peaks of one source around its own mean: 0.023 to 0.077 in
the collections with ten peaks or more of one framework (KWAI, ZB, VOCAB, BS)."""

RUN_VARIANCE = 3.3
"""Variance of a run's own error over that of published steps' residual, which is the middle of a
distribution with heavy tails. Chosen over 52 families of published runs (`benchmarks.learning`): from 1 to
3.3 the errors of rows that were not shown change by less than 3 %; the best families lose least at 3.3."""

IDENTIFIED = 0.7
"""A factor is identified where its standard deviation falls below this share of the prior's."""

CONTRADICTS = 2.5
"""Standard deviations from which on a run contradicts the others."""


@record()
class MeasuredStep:
    """A measured step of a plan.

    Attributes:
        name: of the run, for reports.
        seconds: measured step time.
        peak_bytes: measured peak memory, where there is one.
    """

    name: str
    setting: Setting
    plan: Plan
    seconds: float
    peak_bytes: float | None = None


@record()
class Learned:
    """What measured steps say.

    Attributes:
        site: the factors.
        before, after: predicted over measured less 1, without and with the site, shape (runs,).
        left_out: the same, learned without the run.
        surprise: standard deviations between each run and what the others say.
        prior, posterior: standard deviation of the log of each part's factor, shape (parts,).
    """

    site: Site
    before: np.ndarray
    after: np.ndarray
    left_out: np.ndarray
    surprise: np.ndarray
    prior: np.ndarray
    posterior: np.ndarray

    @property
    def identified(self) -> dict[str, bool]:
        """Whether the runs tell each factor."""
        ratio = self.posterior / np.maximum(self.prior, 1e-12)
        return {name: bool(ratio[PARTS.index(name)] < IDENTIFIED) for name in FACTORS}


@record()
class _Point:
    """Logs of factors, and what the runs say of them.

    Attributes:
        mean: logs of the factors, shape (parts,).
        times: step times under them, shape (runs,).
        exposed: exposures of these steps, shape (runs, parts).
        errors: log errors that the factors and the exposures are to explain, shape (runs,).
        cost: twice the negative logarithm of their posterior, up to a constant.
    """

    mean: np.ndarray
    times: np.ndarray
    exposed: np.ndarray
    errors: np.ndarray
    cost: float


class _Runs:
    """Measured steps of one device and framework, and their prior."""

    def __init__(self, runs: Sequence[MeasuredStep]) -> None:
        scale = evidence_scale(runs[0].setting)
        self.runs = runs
        self.variance = np.mean([part_variance(run.setting, scale) for run in runs], axis=0)
        self.residual = scale * model_errors().parts.residual
        self.measured = np.array([run.seconds for run in runs])
        plain = np.concatenate([exposure(step) for step in self.steps(None)])
        self.fixed = np.where(_applied(np.ones(len(PARTS))), 0.0, plain)

    def steps(self, site: Site | None) -> list[Step]:
        return [predict(replace(run.setting, site=site), Plans.of(run.plan)) for run in self.runs]

    def posterior(self, exposed: np.ndarray, errors: np.ndarray, mean: np.ndarray | float = 0.0) -> Posterior:
        """Of the logs of the factors, given exposures (runs, parts) and log errors (runs,).

        ``mean``: the factors around which their prior, a t, is replaced by a normal one.
        """
        spread = np.full(len(errors), self.residual)
        prior = np.diag(self.variance + np.square(mean) * (self.variance > 0) / (FREEDOM + 1))
        return posterior(exposed, errors, prior, spread, RUN_VARIANCE * spread**2)

    def point(self, mean: np.ndarray) -> _Point:
        """The runs under some logs of factors, shape (parts,)."""
        steps = self.steps(_site_of(self, Posterior(mean, np.zeros((0, 0))), "", SiteMemory()))
        times = np.array([float(step.time[0]) for step in steps])
        # Exposures to what no site scales stay those without factors, so that one posterior is maximised.
        scaled = np.concatenate([exposure(step) for step in steps]) * _applied(np.ones(len(PARTS)))
        exposed = scaled + self.fixed
        left = np.log(self.measured / times) - self.fixed @ mean
        # Errors of runs are t, of the width and the weight that `posterior` gives them.
        odd = (FREEDOM + 1) / RUN_VARIANCE * np.log1p((left / self.residual) ** 2 / FREEDOM).sum()
        varies = self.variance > 0
        far = mean[varies] ** 2 / self.variance[varies]
        cost = float(odd + (FREEDOM + 1) * np.log1p(far / (FREEDOM + 1)).sum())
        return _Point(mean, times, exposed, left + exposed @ mean, cost)


def _site_of(runs: _Runs, posterior: Posterior, source: str, memory_factor: SiteMemory) -> Site:
    """The factors of a posterior; the factor of the whole step scales every part."""
    setting = runs.runs[0].setting
    factors = np.clip(np.exp(posterior.mean[APPLIED] + posterior.mean[WHOLE]), LEAST, MOST)
    return Site(
        site_format=SITE_FORMAT,
        source=source,
        device=setting.cluster.device.name,
        framework=setting.framework.name,
        factors={name: round(float(value), 5) for name, value in zip(FACTORS, factors, strict=True)},
        memory=memory_factor,
        parts=list(PARTS[: len(posterior.covariance)]),
        covariance=posterior.covariance.round(8).tolist(),
        residual=round(float(runs.residual), 5),
    )


def learn_site(steps: Sequence[MeasuredStep], source: str = "") -> Learned:
    """Factors of a site from measured steps of one device and framework.

    Args:
        steps: one or more runs.
        source: where they come from, for the file.
    """
    runs, memory_factor = _Runs(steps), _memory(steps)
    start, at, posterior = _most_likely(runs)
    site = _site_of(runs, posterior, source, memory_factor)
    left, surprise = _left_out(runs, at)
    return Learned(
        site,
        start.times / runs.measured - 1,
        at.times / runs.measured - 1,
        np.exp(-left) - 1,
        surprise,
        np.sqrt(runs.variance),
        np.sqrt(np.maximum(np.diag(posterior.covariance), 0.0)),
    )


def _most_likely(runs: _Runs) -> tuple[_Point, _Point, Posterior]:
    """The runs without factors, the same under the most likely ones, and the posterior around these.

    Each step is to the posterior of the linear model, halved until the factors get more likely: under some
    factors a run waits for the host or shows its communication, under others it does not.
    """
    start = at = runs.point(np.zeros(len(PARTS)))
    for _ in range(ROUNDS):
        aim = runs.posterior(at.exposed, at.errors, at.mean).mean
        tried = (runs.point(at.mean + share * (aim - at.mean)) for share in HALVED)
        better = next((point for point in tried if point.cost < at.cost), None)
        if better is None:
            break
        gained, at = at.cost - better.cost, better
        if gained < ENOUGH:
            break
    return start, at, Posterior(at.mean, runs.posterior(at.exposed, at.errors).covariance)


def _applied(mean: np.ndarray) -> np.ndarray:
    """The logs that a site applies: not those of overlap and of state off the device."""
    at_mean = np.zeros(len(PARTS))
    at_mean[APPLIED], at_mean[WHOLE] = mean[APPLIED], mean[WHOLE]
    return at_mean


def _left_out(runs: _Runs, at: _Point) -> tuple[np.ndarray, np.ndarray]:
    """Log error of each run under what the others say, and that error in standard deviations."""
    exposed, errors = at.exposed, at.errors
    left, surprise = np.zeros(len(errors)), np.zeros(len(errors))
    for index in range(len(errors)):
        others = np.arange(len(errors)) != index
        posterior = runs.posterior(exposed[others], errors[others], at.mean)
        left[index] = errors[index] - exposed[index] @ _applied(posterior.mean)
        spread = exposed[index] @ posterior.covariance @ exposed[index]
        spread += runs.residual**2
        surprise[index] = (errors[index] - exposed[index] @ posterior.mean) / np.sqrt(spread)
    return left, surprise


def _memory(steps: Sequence[MeasuredStep]) -> SiteMemory:
    """The factor of peaks, from measured ones."""
    logs = []
    for run in steps:
        if run.peak_bytes:
            plans = Plans.of(run.plan)
            step = predict(run.setting, plans)
            usage = memory(run.setting, plans, step.stages, step.parameters)
            logs.append(float(np.log(run.peak_bytes / usage.peak[0])))
    if not logs:
        return SiteMemory()
    errors = peak_errors(steps[0].setting)
    precision = 1 / errors.spread**2 + len(logs) / SAME_SITE_MEMORY**2
    mean = (errors.bias / errors.spread**2 + sum(logs) / SAME_SITE_MEMORY**2) / precision
    spread = float(np.sqrt(1 / precision + SAME_SITE_MEMORY**2))
    return SiteMemory(factor=round(float(np.clip(np.exp(mean), LEAST, MOST)), 4), spread=round(spread, 4))
