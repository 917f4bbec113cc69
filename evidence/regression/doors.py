"""Whether every door refuses the same plans: those that a release cannot run.

    python -m benchmarks.doors [--plans 200] [--framework NAME ...]

Random plans of each framework are asked as a scenario is (``simulate``, ``whatif``, ``sweep`` and ``import``
read it), exported, and searched with all fields fixed. Prints the plans that a rule refuses and the plans on
which doors differ.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from core.errors import InputError
from core.records import record
from evidence.command import command
from meshwright.jobs.exports import from_scenario
from meshwright.reports.tables import table
from planner.training.blame import no_shape
from planner.training.candidates import Enumeration
from planner.training.constraints import Constraints
from planner.training.rules import structure
from planner.training.space import Space
from simulator.frameworks import frameworks
from simulator.levers.overlap_tensor import TensorOverlap
from simulator.rules import RELEASE_RULES
from simulator.scenario import make_scenario
from simulator.setting import Setting

CLUSTERS = ("dgx-h100", "dgx-b200", "gb200-nvl72", "dgx-a100-80gb", "mi355x-8")
MODELS = ("mixtral-8x7b", "llama3.1-8b")
PRECISIONS = ("bf16", "mxfp8")
NAMES = tuple(rule.name for rule in RELEASE_RULES)
VALUES: Mapping[str, tuple[Any, ...]] = {
    "tensor": (1, 1, 2),
    "pipeline": (1, 1, 2),
    "virtual_pipeline": (1, 2),
    "expert": (1, 4, 8),
    "micro_batch": (1, 2),
    "zero": (0, 1, 2, 3),
    "recompute": ("none", "selective", "full"),
    "recompute_modules": (["core_attn"], ["layernorm"], ["moe"]),
    "overlap_expert": (False, False, True),
    "overlap_tensor": get_args(TensorOverlap),
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


def scenario(choose: Callable[[Sequence[Any]], Any], framework: str | None = None) -> dict[str, Any]:
    """A scenario whose plan has a valid shape; its levers may be any.

    Args:
        choose: returns one of several options.
        framework: of the scenario; by default one of all.
    """
    plan = {name: choose(values) for name, values in VALUES.items()}
    model = choose(MODELS)
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
    cluster = choose(CLUSTERS)
    precision = choose(PRECISIONS) if cluster in ("dgx-b200", "gb200-nvl72") else "bf16"
    return {
        "model": model,
        "cluster": cluster,
        "gpus": 64,
        "framework": framework or choose(frameworks.names()),
        "workload": {"seq_len": 4096, "global_batch": 128, "precision": precision},
        "plan": {"tensor": 1, "context": 1, **stated},
    }


def doors(framework: str, count: int, seed: int = 0) -> Iterator[Door]:
    """What the doors say of random plans of a framework, without those refused for another reason."""
    rng = random.Random(f"{seed} {framework}")
    for _ in range(count):
        try:
            yield ask_doors(scenario(rng.choice, framework))
        except InputError:
            continue


def ask_doors(data: Mapping[str, Any]) -> Door:
    """Ask every door about the plan of a scenario.

    Raises:
        InputError: a door refuses the plan for another reason than a rule about releases.
    """
    setting = make_scenario({**data, "plan": None}, "random", Path()).setting
    refused = {
        "scenario": _rules(lambda: make_scenario(data, "random", Path())),
        "export": _rules(lambda: from_scenario(data, "random", Path(), "")),
        "plan": _rules(lambda: _searched(data, setting)),
    }
    return Door(data["framework"], data["plan"], refused)


def _searched(data: Mapping[str, Any], setting: Setting) -> None:
    """Enumerate the space of a search that holds all of a plan's fields, as ``plan --fix`` does."""
    fixed = {name: value for name, value in data["plan"].items() if name != "schedule"}
    space = Space.of(setting, setting.cluster.devices, Constraints.of(fixed))
    enumeration = Enumeration(space, structure(space))
    if next(enumeration.blocks(), None) is None:
        raise InputError(no_shape(space, dict(enumeration.removed)))


def _rules(ask: Callable[[], object]) -> frozenset[str]:
    """The rules of releases by which a door refuses.

    Raises:
        InputError: it refuses for another reason.
    """
    try:
        ask()
    except InputError as error:
        words = str(error)
        names = frozenset(name for name in NAMES if f"--allow {name}" in words or f"({name})" in words)
        if not names:
            raise
        return names
    return frozenset()


@command
def main(*, plans: int = 200, framework: Sequence[str] = ()) -> None:
    """Print the plans refused and the plans on which doors differ, by framework."""
    console, rows, differ = Console(), [], []
    for name in framework or frameworks.names():
        opened = list(doors(name, plans))
        apart = [door for door in opened if not door.agree]
        rules = Counter(rule for door in opened for rule in door.refused["scenario"])
        differ += apart
        refused = ", ".join(f"{rule} {number}" for rule, number in rules.most_common())
        rows.append([name, str(len(opened)), str(len(opened) - len(apart)), refused])
    console.print(table(("framework", "plans", "doors agree", "refused by rule"), rows))
    for door in differ[:10]:
        console.print(door.framework, dict(door.plan), {k: sorted(v) for k, v in door.refused.items()})
