"""Heads of shipped scenarios: their figures are what the commands print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import meshwright as mw
from meshwright.questions.scenarios import question_of, shipped_scenarios

DAY = 86_400


def simulated(name: str) -> dict[str, Any]:
    return mw.simulate(name).to_dict()


def planned(name: str) -> dict[str, Any]:
    return mw.plan(name).to_dict()["plans"][0]


def compared(name: str) -> dict[str, dict[str, Any]]:
    """The base and the variations by label."""
    answer = mw.whatif(name).to_dict()
    return {"base": answer["base"], **{each["label"]: each for each in answer["variations"]}}


def gpt3(found: dict[str, Any]) -> list[str]:
    step, parts = found["step_time_s"], found["time_breakdown_s"]
    days = 300e9 / (found["global_batch"] * found["seq_len"]) * step / DAY
    shares = [f"{100 * parts[name] / step:.0f} %" for name in ("recompute", "tensor")]
    return [f"{step:.0f} s", f"{days:.0f} days", *shares]


def frontier(found: dict[str, Any]) -> list[str]:
    return [
        f"{found['step_time_s'] / 60:.0f} minutes",
        f"{found['kwh_per_million_tokens']:.0f} kWh",
        f"{100 * found['hfu']:.0f} % of the peak",
    ]


def chat(found: dict[str, Any]) -> list[str]:
    ttft, tpot = found["ttft_s"], found["tpot_s"]
    return [f"{ttft['p50']:.2f} s", f"p99 {ttft['p99']:.1f} s", f"{1e3 * tpot['mean']:.0f} ms"]


def apart(found: dict[str, Any]) -> list[str]:
    return [f"to {1e3 * found['tpot_s']['p99']:.0f} ms"]


def network(found: dict[str, dict[str, Any]]) -> list[str]:
    slower, replanned = (
        found[label]["step_time_change"] for label in ("NICs: nic_gbps 50", "base, re-planned")
    )
    return [f"costs {100 * slower:.0f} %", f"{-100 * replanned:.0f} %"]


HEADS: dict[str, tuple[Callable[[str], Any], Callable[[Any], list[str]]]] = {
    "disaggregate-llama3-70b": (simulated, apart),
    "energy-llama3-70b": (planned, lambda plan: [f"{plan['kwh_per_million_tokens']:.3f} kWh"]),
    "frontier-1t": (simulated, frontier),
    "gpt3-175b-1024-a100": (simulated, gpt3),
    "llama3-405b-16384-h100": (simulated, lambda found: [f"{100 * found['mfu']:.0f} %"]),
    "own-cluster": (
        planned,
        lambda plan: [f"{plan['step_time_s']:.1f} s", f"MFU of {100 * plan['mfu']:.0f} %"],
    ),
    "packed-llama3-8b": (
        simulated,
        lambda found: [f"{found['step_time_s']:.1f} s", f"{found['usd_per_million_tokens']:.2f} $"],
    ),
    "rl-qwen3-30b": (simulated, lambda found: [f"about {round(found['step_time_s'], -2):.0f} s"]),
    "serve-llama3-70b": (simulated, chat),
    "nic-gpt3-175b": (compared, network),
    "tables-dlrm-dcnv2": (simulated, lambda found: [f"{1e3 * found['step_time_s']:.1f} ms"]),
}
"""How a scenario is asked, and the figures of its head as printed from the answer."""


@pytest.mark.parametrize("name", HEADS)
def test_the_figures_of_a_head_are_those_that_are_printed(name):
    ask, figures = HEADS[name]
    head = " ".join(question_of(shipped_scenarios()[name]).split())
    for figure in figures(ask(name)):
        assert figure in head
