"""A policy that never acts, near the knee: how often a comparison over seeds says that it makes a difference.

    python -m benchmarks.idle_policies

Twenty deployments at 90 to 110 % of the rate that they complete, each with migration that no load triggers,
beside the same without. A placebo follows: the same deployment under other seeds, paired with the first ones,
which is nothing but chance.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evidence.command import command
from meshwright.replications import DEFAULT, FIGURES, difference, over_seeds, seeded
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

DEPLOYMENTS = (
    ("qwen2.5-7b", "a10g-8", 8, {"kind": "lognormal", "median": 200, "sigma": 1.2, "most": 4096}, 300),
    ("llama3.1-8b", "dgx-h100", 4, {"kind": "lognormal", "median": 700, "sigma": 1.0, "most": 8000}, 150),
    ("llama3.1-8b", "l40s-8", 6, {"kind": "uniform", "low": 100, "high": 2000}, 100),
    ("mixtral-8x7b", "dgx-h200", 4, {"kind": "lognormal", "median": 500, "sigma": 0.8, "most": 4000}, 200),
)
"""Model, cluster, replicas of one GPU (Mixtral: two), prompts, mean output tokens."""
LOADS = (0.9, 0.95, 1.0, 1.05, 1.1)
"""Rates over the rate that is sustained under overload."""
REQUESTS = 1200
IDLE = {"kind": "freeness", "migrate": {"kind": "llumnix", "threshold": -1e6, "interval": 0.05}}


def scenario(model, cluster, replicas, prompts, output, rate, router):
    """A deployment with exponential outputs at a rate."""
    return {
        "model": model,
        "cluster": cluster,
        "workload": {
            "kind": "serving",
            "requests": REQUESTS,
            "arrivals": {"kind": "poisson", "rate": rate},
            "input": prompts,
            "output": {"kind": "uniform", "low": 10, "high": 2 * output - 10},
        },
        "deployment": {
            "engine": "vllm-0.19",
            "replicas": replicas,
            "tensor": 2 if model.startswith("mixtral") else 1,
            "router": router,
            "options": {"max_context": 12288},
        },
    }


def reported(data, shift=0):
    """Medians over the seeds, which start at ``shift``."""
    setting = make_serving(data, "benchmark", Path())
    settings = seeded(replace(setting, seed=setting.seed + shift), DEFAULT)
    return over_seeds([serve(each).to_dict() for each in settings])


def telling(report, base):
    """Figures with a difference that the seeds can tell, and the largest change of one seed."""
    paired = {name: difference({**report, "seeds": base["seeds"]}, base, name) for name in FIGURES}
    ours, theirs = report["by_seed"]["TTFT p99"], base["by_seed"]["TTFT p99"]
    largest = max((mine / other - 1.0 for mine, other in zip(ours, theirs, strict=True)), key=abs)
    return [name for name, gap in paired.items() if gap is not None and gap.tells], largest


@command
def main() -> None:
    wrong = placebo = count = 0
    for deployment in DEPLOYMENTS:
        overloaded = make_serving(scenario(*deployment, 1e4, "freeness"), "benchmark", Path())
        capacity = serve(overloaded).metrics.request_rate
        for load in LOADS:
            rate = load * capacity
            base = reported(scenario(*deployment, rate, "freeness"))
            idle, largest = telling(reported(scenario(*deployment, rate, IDLE)), base)
            chance, by_chance = telling(reported(scenario(*deployment, rate, "freeness"), 1000), base)
            count, wrong, placebo = count + 1, wrong + bool(idle), placebo + bool(chance)
            place = f"{deployment[0]} on {deployment[1]} at {load:g} of {capacity:.3g}/s"
            said = f"idle policy: {', '.join(idle) or 'no difference'} ({100 * largest:+.1f} %)"
            by_luck = f"placebo: {', '.join(chance) or 'no difference'} ({100 * by_chance:+.0f} %)"
            print(f"{place}; {said}; {by_luck}", flush=True)
    print(f"{count} scenarios said to differ: {wrong} by an idle policy, {placebo} by a placebo")
    print("In brackets: the largest change of TTFT p99 of one seed.")
