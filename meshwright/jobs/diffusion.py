"""A batch of images or videos by a diffusion model."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType

from meshwright.jobs import alone
from meshwright.jobs.base import AskOptions, Question

FIGURES = MappingProxyType(
    {
        "J each": lambda report: f"{report['joules']:,.0f}",
        "$ per 1,000": lambda report: f"{1e3 * report['usd']:,.2f}",
    }
)
"""Columns of a comparison, beside the latency."""


def answer(question: Question, terms: AskOptions) -> alone.LoneAnswer:
    """The predicted batch, or a load on replicas.

    Raises:
        InputError: a wrong scenario.
        InfeasibleError: the model does not fit a device.
    """
    from meshwright.reports.diffusion import ServedLoad, describe_diffusion, diffusion_tables
    from simulator.diffusion.request import predict_request
    from simulator.diffusion.scenario import load_of, make_diffusion
    from simulator.diffusion.serving import run_load

    setting, stated = make_diffusion(*question), load_of(*question[:2])
    request, served = predict_request(setting), None
    if stated is not None:
        load, replicas, seed = stated
        served = ServedLoad(load, replicas, run_load(setting, load, replicas, seed))
    describe, draw = partial(describe_diffusion, served=served), partial(diffusion_tables, served=served)
    return alone.LoneAnswer(request, describe, draw)


JOB = alone.job("diffusion", "steps", answer, FIGURES, "there is no search of layouts of diffusion models")
