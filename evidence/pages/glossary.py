"""Our words beside those of launchers and engines, read from the mapping tables of the exporters.

    python -m benchmarks.glossary [--write]

``--write`` writes docs/glossary.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from evidence.command import command
from meshwright.exporters import exporter
from meshwright.exporters.table import LauncherTable, table
from simulator.plan import Plan
from simulator.serving.question.deployment import Pool
from simulator.serving.question.options import EngineOptions

PAGE = Path(__file__).parents[2] / "docs" / "glossary.md"
TRAINING = ("megatron-lm", "megatron-bridge", "torchtitan", "deepspeed")
SERVING = ("vllm", "sglang", "trtllm")
HEAD = """\
# Glossary

Fields of a plan and of a deployment beside the options of launchers and engines, as in the exporters' tables.
An empty cell has no option. `python -m benchmarks.glossary --write` writes this page.
"""


def words_of(launcher: LauncherTable, field: str) -> str:
    """Options of a launcher for a field; how it is derived where it has none."""
    entry = launcher.options.get(field)
    if entry is None:
        return launcher.derived.get(field, "")
    if entry.option:
        return f"`{entry.option}`"
    names = dict.fromkeys(name for choice in entry.choices for name in choice.sets)
    return ", ".join(f"`{name}`" for name in list(names)[:3])


def section(title: str, targets: tuple[str, ...], fields: dict[str, str]) -> Iterator[str]:
    """A table in Markdown; fields and what they mean by their name in the mapping tables."""
    tables = [table(exporter(target).table) for target in targets]
    yield f"\n## {title}\n"
    yield f"| field | meaning | {' | '.join(fields_of.version for fields_of in tables)} |"
    yield "|" + "---|" * (2 + len(tables))
    for field, meaning in fields.items():
        cells = [words_of(fields_of, field) for fields_of in tables]
        if any(cells):
            yield f"| `{field.rpartition('.')[2]}` | {meaning} | {' | '.join(cells)} |"


def lines() -> Iterator[str]:
    """The page."""
    yield from HEAD.splitlines()
    plan = {f"plan.{name}": str(info.description) for name, info in Plan.model_fields.items()}
    yield from section("A training plan", TRAINING, plan)
    pool = {f"pool.{name}": str(info.description) for name, info in Pool.model_fields.items()}
    pool |= {f"options.{name}": str(info.description) for name, info in EngineOptions.model_fields.items()}
    yield from section("A deployment", SERVING, pool)


@command
def main(*, write: Annotated[bool, "write docs/glossary.md"] = False) -> None:
    """Print the page, or write it."""
    text = "\n".join(lines()) + "\n"
    if write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
