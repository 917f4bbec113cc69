"""Kinds of broken runs of weeks: what `simulate`, `plan --run` and `whatif` read below `run`."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.fuzz.case import Case, Kind, drawn, from_data
from tests.fuzz.mutate import as_text, mutated
from tests.fuzz.training import BASES
from tests.laws import questions

RUNS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("bases_runs.yaml").read_text(encoding="utf-8")
)
STEP = BASES["scenarios"][0]
NO_PLAN = {key: value for key, value in STEP.items() if key != "plan"}

SIMULATE = (
    ["simulate", "FILE", "--json"],
    ["simulate", "FILE"],
    ["simulate", "FILE", "--replications", "1", "--json"],
    ["simulate", "FILE", "--html", "out/page.html"],
    ["simulate", "FILE", "--trace", "out/trace.json.gz"],
)
SEARCH = (
    ["plan", "FILE", "--run", "--json"],
    ["plan", "FILE", "--run", "--top", "2"],
    ["plan", "FILE", "--run", "--quantile", "p90", "--objective", "cost", "--json"],
    ["plan", "FILE", "--run", "--gpus", "8..16"],
)


def _keys(random: Random) -> Case:
    """Changes below `run` only: most mutations of a whole scenario miss it."""
    changed = mutated(random.choice(RUNS), random, random.choice((1, 1, 2, 3)))
    command = random.choice(SIMULATE[:3])
    arguments = tuple("run.yaml" if part == "FILE" else part for part in command)
    return Case(arguments, {"run.yaml": as_text({**STEP, "run": changed}, ".yaml")})


KINDS: dict[str, Kind] = {
    "run": from_data([("run.yaml", {**STEP, "run": each}) for each in RUNS], SIMULATE),
    "run-keys": _keys,
    "run-question": drawn("run.yaml", questions.weeks, SIMULATE),
    "run-search": from_data(
        [("search.yaml", {**NO_PLAN, "run": each}) for each in (RUNS[0], RUNS[3])], SEARCH
    ),
    "run-variations": from_data(
        [
            ("variations.yaml", {**STEP, "run": RUNS[0], "variations": {"more": {"set": changed}}})
            for changed in ({"run.spares": 0}, {"run.recovery.detect": 60}, {"run.checkpoints.every": "1 h"})
        ],
        (["whatif", "FILE", "--json"], ["whatif", "FILE"]),
    ),
}
