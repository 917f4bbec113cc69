"""Whether the first answer of a serving search is the launch that the engines' documentation recommends.

    python -m benchmarks.serving_recipes [--only NAME] [--engine] [--own-drafts]

`serving_recipes.yaml` holds 24 questions, each with a launch and its source. For each question this prints:
whether the launch is in the space of the default search; its rank among the deployments shown; its goodput
(with a rate: its cost) over that of the first, on the steady state or with ``--engine`` on the event engine;
and the error of TPOT against a measured server of that launch, on the event engine with the client's closed
loop. A launch counts as good within 5 % of the first. ``--own-drafts`` holds the launch's speculation, or
none, in the search too: what is compared is then the format and the parallelism.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml

import meshwright as mw
from core.errors import MeshwrightError
from evidence.command import command
from planner.execution import Execution
from planner.serving.refine import refine_serving
from planner.serving.shapes import RULES, choices
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

FILE = Path(__file__).with_suffix(".yaml")
SHOWN, CLOSE, MEASURED = 5, 0.05, 0.20
DEGREES = ("tensor", "data", "pipeline", "expert")
ROUNDS = 10
"""Requests of a closed loop, over its clients."""


def launch(recipe: dict[str, Any]) -> dict[str, Any]:
    """Fields of a recipe, with degrees of one where it names none."""
    return {**dict.fromkeys(DEGREES, 1), "speculation": None, **recipe}


def matches(fields: dict[str, Any], recipe: dict[str, Any]) -> bool:
    """Whether a shape is the launch: degrees, formats and speculation; KV where the recipe has one."""
    launched = launch(recipe)
    return all(fields.get(name) == value for name, value in launched.items())


def in_space(question: Any, recipe: dict[str, Any]) -> bool:
    """Whether the search tries the launch."""
    wide = {name: value for name, value in recipe.items() if name != "kv"}
    tried = any(
        matches(spoken(fields), wide) and all(rule.keeps(question, fields) for rule in RULES)
        for fields in choices(question)
    )
    return tried and ("kv" not in recipe or tries_kv(question, recipe["kv"]))


def tries_kv(question: Any, kv: str) -> bool:
    """Whether the best layouts are tried with a KV format; 0.6.0 tries none."""
    try:
        from planner.serving.variants import other_formats
    except ImportError:
        return False
    return any(tried == kv for _, tried in other_formats(question))


def spoken(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a shape with speculation as ``KIND:DRAFTED``."""
    words = dict(fields)
    drafts = words.get("speculation")
    if drafts is not None and not isinstance(drafts, str):
        words["speculation"] = f"{drafts.kind}:{drafts.tokens}"
    return words


def shape_fields(plan: Any) -> list[dict[str, Any]]:
    """Fields of the pools of a plan."""
    return [
        spoken({name: getattr(group.shape.pool, name) for name in type(group.shape.pool).model_fields})
        for group in plan.groups
    ]


def fixed(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe as fields held by a search; 0.6.0 knows no speculation."""
    from planner.serving.question import FIELDS

    fields = {**dict.fromkeys(DEGREES, 1), "speculation": "none", **recipe}
    return {name: value for name, value in fields.items() if name in FIELDS}


def figure(question: Any, plan: Any, runs: dict[int, Any], index: int) -> float:
    """What the first answer is ranked by, the larger the better."""
    if question.objective != "goodput":
        return 1.0 / plan.figure(question.objective)
    run = runs.get(index)
    return plan.goodput if run is None or run.problem else run.goodput


def measured_tpot(entry: dict[str, Any]) -> float:
    """Predicted mean TPOT of the measured row, ms: `simulate` with the client's closed loop."""
    row, ask = entry["measured"], entry["ask"]
    recipe = {name: value for name, value in entry["recipe"].items() if name != "speculation"}
    recipe.pop("weights")  # As the checkpoint.
    lengths = {
        name: {"kind": "uniform", "low": int(row["range"] * ask[key]), "high": ask[key]}
        for name, key in (("input", "isl"), ("output", "osl"))
    }
    scenario = {
        "model": ask["model"],
        "cluster": ask["cluster"],
        "workload": {
            "kind": "serving",
            "requests": ROUNDS * row["concurrency"],
            "arrivals": {"kind": "closed", "concurrency": row["concurrency"]},
            **lengths,
        },
        "deployment": {"engine": ask["engine"], **recipe, "options": {"prefix_caching": False}},
    }
    scenario["deployment"].pop("kv", None)  # The rows state none.
    result = serve(make_serving(scenario, entry["name"], Path()))
    return 1e3 * result.to_dict()["tpot_s"]["mean"]


def answer(entry: dict[str, Any], engine: bool, drafts: bool) -> dict[str, Any]:
    """One question: space, rank, share of the first, and error of the measured figure."""
    out: dict[str, Any] = {"name": entry["name"]}
    recipe = entry["recipe"]
    try:
        fixed_fields = {"speculation": recipe.get("speculation", "none")} if drafts else None
        answered = mw.deploy(**entry["ask"], top=SHOWN, fix=fixed_fields)
        question, plans = answered.search.question, answered.search.plans
        out["space"] = in_space(question, recipe)
        # 0.6.0 has no variants in other formats.
        listed = [*plans, *(variant.plan for variant in getattr(answered.search, "variants", ()))]
        ranks = [i for i, plan in enumerate(listed) if any(matches(f, recipe) for f in shape_fields(plan))]
        out["rank"] = ranks[0] + 1 if ranks else None
        out["first"] = plans[0].describe() if plans else "none meets the targets"
        out["carries"] = plans[0].goodput if plans else 0.0
        out["share"] = share(question, plans, entry, engine) if plans else None
    except MeshwrightError as error:
        out |= {"space": False, "rank": None, "first": str(error)[:70], "share": None, "carries": 0.0}
    if "measured" in entry:
        try:
            out["error"] = measured_tpot(entry) / entry["measured"]["tpot_ms"] - 1.0
        except MeshwrightError as error:
            out["error"] = float("inf")
            out["problem"] = str(error)[:90]
    return out


def share(question: Any, plans: Any, entry: dict[str, Any], engine: bool) -> float | None:
    """The launch's figure over that of the first; None where the search cannot express it."""
    if not in_space(question, entry["recipe"]):
        return None
    objective = {"objective": question.objective} if "rate" in entry["ask"] else {}
    carried = mw.deploy(**{**entry["ask"], **objective}, fix=fixed(entry["recipe"]), split=False, top=1)
    if not carried.search.plans:
        return 0.0
    both = [plans[0], carried.best]
    runs = dict(refine_serving(question, both, Execution())) if engine else {}
    first, mine = (figure(question, plan, runs, index) for index, plan in enumerate(both))
    return mine / first


@command
def main(
    *,
    only: Annotated[str | None, "questions whose name has this"] = None,
    engine: Annotated[bool, "compare with the first on the event engine"] = False,
    own_drafts: Annotated[bool, "hold the launch's speculation"] = False,
) -> None:
    """Print a line a question, and the counts."""
    entries = [recipe for recipe in yaml.safe_load(FILE.read_text()) if (only or "") in recipe["name"]]
    rows = []
    for entry in entries:
        row = answer(entry, engine, own_drafts)
        rows.append(row)
        share_words = "-" if row["share"] is None else f"{row['share']:.2f}"
        error = f"{row['error']:+6.0%}" if "error" in row else "      "
        print(
            f"{row['name']:26} space {'yes' if row['space'] else 'no ':3} rank {row['rank'] or '-'} "
            f"of first {share_words:>5} measured {error}  first {row['carries']:.3g}/s: {row['first']} "
            f"{row.get('problem', '')}",
            flush=True,
        )
    good = [row for row in rows if row["rank"] or (row["share"] or 0.0) >= 1.0 - CLOSE]
    first = [row for row in rows if row["rank"] == 1 or (row["share"] or 0.0) >= 1.0 - CLOSE]
    errors = np.array([abs(row["error"]) for row in rows if "error" in row])
    print(
        f"{len(rows)} questions: in the space {sum(row['space'] for row in rows)}; among the {SHOWN} shown "
        f"or within {CLOSE:.0%} of the first {len(good)}, without those that are only shown {len(first)}; "
        f"measured figure within {MEASURED:.0%} {int(np.sum(errors <= MEASURED))} of {len(errors)}"
    )
