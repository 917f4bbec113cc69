"""Whether every door refuses the same plans: those that a release cannot run.

    python -m benchmarks.doors [--plans 200] [--framework NAME ...]

Random plans of each framework are asked as a scenario is (``simulate``, ``whatif``, ``sweep`` and ``import``
read it), exported, and searched with all fields fixed. Prints the plans that a rule refuses and the plans on
which doors differ.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from core.errors import InputError
from core.records import record
from meshwright.exporters.question import from_scenario
from meshwright.reports.tables import table
from planner.blame import no_shape
from planner.candidates import Enumeration
from planner.constraints import Constraints
from planner.rules import structure
from planner.space import Space
from simulator.frameworks import frameworks
from simulator.rules import RELEASE_RULES
from simulator.scenario import make_scenario

CLUSTERS = ("dgx-h100", "dgx-b200", "gb200-nvl72", "dgx-a100-80gb", "mi355x-8")
MODELS = ("mixtral-8x7b", "llama3.1-8b")
PRECISIONS = ("bf16", "mxfp8")
VALUES: Mapping[str, tuple[Any, ...]] = {
    "pipeline": (1, 1, 2),
    "virtual_pipeline": (1, 2),
    "expert": (1, 4, 8),
    "micro_batch": (1, 2),
    "zero": (0, 1, 2, 3),
    "recompute": ("none", "selective", "full"),
    "recompute_modules": (["core_attn"], ["layernorm"], ["moe"]),
    "overlap_expert": (False, False, True),
    "overlap_tensor": ("none", "backward", "full"),
    "dispatcher": ("all-to-all", "flex"),
    "dispatcher_library": (None, "deepep", "hybridep"),
    "grouped_launches": ("one", "per-expert", "per-expert", "fused-mlp"),
    "graphs": ("none", "none", "router", "attention", "step"),
    "fixed_capacity": (None, False, True),
}


@record()
class Door:
    """A plan and what each door says: the rules by which it refuses, empty where the plan runs."""

    framework: str
    plan: Mapping[str, Any]
    refused: Mapping[str, frozenset[str]]

    @property
    def agree(self) -> bool:
        """Whether all doors refuse, or none."""
        return len({bool(names) for names in self.refused.values()}) == 1


def random_scenario(framework: str, rng: random.Random) -> dict[str, Any]:
    """A scenario whose plan has a valid shape; its levers may be any."""
    plan = {name: rng.choice(values) for name, values in VALUES.items()}
    model = rng.choice(MODELS)
    if model != "mixtral-8x7b":
        plan |= {"expert": 1}
    if plan["pipeline"] == 1:
        plan |= {"virtual_pipeline": 1}
    plan["schedule"] = "interleaved" if plan["virtual_pipeline"] > 1 else "1f1b"
    if plan["recompute"] != "selective":
        plan["recompute_modules"] = None
    elif model == "llama3.1-8b":
        plan["recompute_modules"] = ["core_attn"]
    stated = {name: value for name, value in plan.items() if value is not None}
    cluster = rng.choice(CLUSTERS)
    precision = rng.choice(PRECISIONS) if cluster in ("dgx-b200", "gb200-nvl72") else "bf16"
    return {
        "model": model,
        "cluster": cluster,
        "gpus": 64,
        "framework": framework,
        "workload": {"seq_len": 4096, "global_batch": 128, "precision": precision},
        "plan": {"tensor": 1, "context": 1, **stated},
    }


def doors(framework: str, count: int, seed: int = 0) -> Iterator[Door]:
    """What the doors say of random plans of a framework."""
    rng = random.Random(f"{seed} {framework}")
    for _ in range(count):
        data = random_scenario(framework, rng)
        try:
            setting = make_scenario({**data, "plan": None}, "random", Path()).setting
        except InputError:
            continue
        refused = {
            "scenario": _rules(lambda data=data: make_scenario(data, "random", Path())),
            "export": _rules(lambda data=data: from_scenario(data, "random", Path(), "")),
            "plan": _rules(lambda data=data, setting=setting: _searched(data, setting)),
        }
        named = {door: rules for door, rules in refused.items() if rules is not None}
        if len(named) == len(refused):
            yield Door(framework, data["plan"], named)


def _searched(data: Mapping[str, Any], setting: Any) -> None:
    """Enumerate the space of a search that holds all of a plan's fields, as ``plan --fix`` does."""
    fixed = {name: value for name, value in data["plan"].items() if name != "schedule"}
    space = Space.of(setting, setting.cluster.devices, Constraints.of(fixed))
    enumeration = Enumeration(space, structure(space))
    if next(enumeration.blocks(), None) is None:
        raise InputError(no_shape(space, dict(enumeration.removed)))


def _rules(ask: Any) -> frozenset[str] | None:
    """The rules of releases by which a door refuses; None where it refuses for another reason."""
    names = [rule.name for rule in RELEASE_RULES]
    try:
        ask()
    except InputError as error:
        words = str(error)
        named = frozenset(name for name in names if f"--allow {name}" in words or f"({name})" in words)
        return named or None
    return frozenset()


def main() -> None:
    """Print the plans refused and the plans on which doors differ, by framework."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--plans", type=int, default=200)
    parser.add_argument("--framework", action="append", default=None)
    options = parser.parse_args()
    console, rows, differ = Console(), [], []
    for name in options.framework or frameworks.names():
        asked = list(doors(name, options.plans))
        apart = [door for door in asked if not door.agree]
        rules = Counter(rule for door in asked for rule in door.refused["scenario"])
        differ += apart
        refused = ", ".join(f"{rule} {number}" for rule, number in rules.most_common())
        rows.append([name, str(len(asked)), str(len(asked) - len(apart)), refused])
    console.print(table(("framework", "plans", "doors agree", "refused by rule"), rows))
    for door in differ[:10]:
        console.print(door.framework, dict(door.plan), {k: sorted(v) for k, v in door.refused.items()})


if __name__ == "__main__":
    main()
