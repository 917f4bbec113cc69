"""Results in Python's prompt and in notebooks: a screen, never arrays."""

from __future__ import annotations

import html
import re

import pytest

import meshwright as mw

ASKED = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 16, "seq_len": "8k", "global_batch": 64}
LOAD = {"model": "llama3.1-8b", "isl": 1000, "osl": 100, "ttft": 1.0, "tpot": 0.05}


@pytest.fixture(scope="module")
def results():
    """One result of every kind that the API returns."""
    found = mw.plan(**ASKED)
    scenario = found.scenario()
    sizes = {name: value for name, value in ASKED.items() if name not in ("cluster", "gpus")}
    step = mw.simulate(scenario)
    exported = mw.export(scenario, "megatron-lm")
    return {
        "search": found,
        "plan": found.best,
        "step": step,
        "whatif": mw.whatif(scenario, variations={"fp8": {"set": [{"workload.precision": "fp8"}]}}),
        "size": mw.size(**sizes, clusters=["dgx-h100"], gpus="8..32", tokens=1e12),
        "deploy": mw.deploy(**LOAD, cluster="dgx-h100", gpus=2, rate=2.0),
        "mix": mw.mix(["l4", "a10g"], **LOAD, rate=2.0),
        "day": mw.day(rates=[2, 5], **LOAD, cluster="dgx-h100", gpus=8),
        "front": mw.serving_front(model="llama3.1-8b", cluster="dgx-h100", gpus=1, isl=1000, osl=100),
        "sweep": mw.sweep(scenario=scenario, grid={"plan.micro_batch": [1, 2]}, ask="simulate"),
        "export": exported,
        "import": mw.import_(
            "torchrun --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b",
            cluster="dgx-h100",
        ),
    }


KINDS = (
    "search",
    "plan",
    "step",
    "whatif",
    "size",
    "deploy",
    "mix",
    "day",
    "front",
    "sweep",
    "export",
    "import",
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_result_fits_a_screen(results, kind):
    made = results[kind]
    made = made[0] if isinstance(made, tuple) else made
    text = repr(made)
    assert 20 < len(text) < 2500
    assert "array(" not in text and " object at 0x" not in text


@pytest.mark.slow
def test_notebooks_show_tables_and_bars(results):
    for kind in ("search", "plan", "step"):
        made = results[kind]._repr_html_()
        assert "<script" not in made
        assert len(re.findall(r"display:inline-block", made)) > 2
    table = html.unescape(results["search"]._repr_html_())
    assert "MFU" in table and results["search"].best.plan.describe().split()[0] in table
    assert "<pre" in results["deploy"]._repr_html_()
