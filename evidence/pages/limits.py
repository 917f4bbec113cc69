"""The page of all bounds: ``python -m benchmarks.limits`` writes ``docs/limits.md`` from the definitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from core import bounds as files
from core import quantities
from evidence.command import command
from evidence.serving import case
from hwmodels.cluster import Cluster
from hwmodels.device import Device
from hwmodels.mixed import MixedCluster
from meshwright.deployments import MOST_WATTS
from meshwright.variations.answer import LONG_S
from simulator.frameworks import Framework
from simulator.models import Model
from simulator.placement import Placement
from simulator.plan import Plan
from simulator.recipes.recipe import Recipe
from simulator.runs.question import RunQuestion
from simulator.scenario import Definition
from simulator.serving.engines.engine import BOUNDS, Engine
from simulator.serving.question.options import EngineOptions
from simulator.serving.replica.schedulers import schedulers
from simulator.serving.routers import routers
from simulator.serving.scalers import scalers
from simulator.serving.scenario import ServingDefinition
from simulator.serving.workload.traces import base
from simulator.training.step_graph import length

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"
ROOTS: dict[str, tuple[type[BaseModel], ...]] = {
    "A scenario about training": (Definition, RunQuestion, Plan, Placement),
    "A scenario about serving": (ServingDefinition, EngineOptions),
    "Policies of serving": (*schedulers.values(), *routers.values(), *scalers.values()),
    "Models": (Model,),
    "Devices and clusters": (Device, Cluster, MixedCluster),
    "Frameworks and recipes": (Framework, Recipe),
    "Serving engines": (Engine,),
}
UNITS = {
    quantities._bytes_per_second: (f"{quantities.SLOWEST_LINK:g}", ""),
    quantities._seconds: ("", f"{quantities.LONGEST_LATENCY_S:g}"),
    quantities._gigabits: ("", f"{quantities.FASTEST_NIC_GBPS:g}"),
}
"""Bounds of validators that check a unit."""

Range = tuple[str, str]


def nested(annotation: Any) -> Iterator[Any]:
    """The parts of an annotation: types, and what is said about them."""
    if get_origin(annotation) is Annotated:
        yield from annotation.__metadata__
        yield from nested(annotation.__origin__)
    elif get_args(annotation):
        for part in get_args(annotation):
            yield from nested(part)
    else:
        yield annotation


def bounds(field: FieldInfo) -> Range | None:
    """Least and highest value of a field's numbers; None where it has no numbers."""
    said = [*field.metadata, *nested(field.annotation)]
    said += [inner for bound in said if isinstance(bound, FieldInfo) for inner in bound.metadata]
    if not any(bound in (int, float) for bound in said):
        return None
    least = largest = ""
    for bound in said:
        if isinstance(bound, AfterValidator) and bound.func in UNITS:
            low, high = UNITS[bound.func]  # type: ignore[index]
            least, largest = low or least, high or largest
        for name, sign in (("ge", ""), ("gt", "above ")):
            if isinstance(limit := getattr(bound, name, None), int | float):
                least = f"{sign}{_shown(limit)}"
        for name, sign in (("le", ""), ("lt", "below ")):
            if isinstance(limit := getattr(bound, name, None), int | float):
                largest = f"{sign}{_shown(limit)}"
    return least, largest


def rows(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[str]:
    """Lines of the table of a definition and of those inside it."""
    if model in seen:
        return
    seen.add(model)
    name = model.__name__
    for key, field in model.model_fields.items():
        if (limits := bounds(field)) is not None:
            yield f"| `{name}` | `{key}` | {limits[0]} | {limits[1]} |"
    for field in model.model_fields.values():
        for part in nested(field.annotation):
            if (
                isinstance(part, type)
                and issubclass(part, BaseModel)
                and not part.__name__.startswith("Figure")
            ):
                yield from rows(part, seen)


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def page() -> str:
    """The text of the page."""
    parts = [HEAD.format(**_constants())]
    seen: set[type[BaseModel]] = set()
    for title, models in ROOTS.items():
        table = [row for model in models for row in rows(model, seen)]
        if title == "Serving engines":
            table += [f"| `Engine` | `{key}` | {low:g} | {high:g} |" for key, (low, high) in BOUNDS.items()]
        if table:
            parts.append(
                f"## {title}\n\n| of | key | from | to |\n|---|---|---|---|\n" + "\n".join(table) + "\n"
            )
    return "\n".join(parts)


def _constants() -> dict[str, str]:
    return {
        "megabytes": f"{files.MOST_BYTES / 2**20:g}",
        "values": f"{files.MOST_VALUES:,}",
        "deepest": str(files.DEEPEST),
        "smallest": f"{files.SMALLEST:g}",
        "largest": f"{files.LARGEST:g}",
        "digits": str(files.LONGEST_NUMBER),
        "trace": f"{base.LARGEST:g}",
        "row_low": f"{case.SMALLEST:g}",
        "row_high": f"{case.LARGEST:g}",
        "batches": f"{length.MOST_MICRO_BATCHES:,}",
        "engine_s": f"{length.LONGEST_S:g}",
        "whatif_s": f"{LONG_S / 60:g}",
        "watts": f"{MOST_WATTS:g}",
    }


HEAD = """# Bounds of every number

Numbers out of these ranges are refused with the key, the range and what was found (exit code 2). The ranges
are wider than any cluster; they keep sums of products in range, so that no plan looks good because a number
has overflowed. `python -m benchmarks.limits` writes this page from the definitions.

| what | bound |
|---|---|
| a file of YAML or JSON | {megabytes} MiB, {values} values (aliases expanded), {deepest} levels deep |
| a number in it | 0, or from {smallest} to {largest} in size, of at most {digits} characters |
| a number of a request log | at most {trace} |
| a number of a measured serving run | 0, or from {row_low} to {row_high} |
| a step on the event engine | {batches} micro batches, {engine_s} s |
| `whatif` without `--yes` | {whatif_s} minutes |
| `--watts` of a mix | {watts} |

Below, an empty cell means that only the bound of all numbers holds.
"""


@command
def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.name}: {page().count(chr(10))} lines")
