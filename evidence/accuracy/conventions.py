"""Conventions that no row of published tables takes: rules, releases and recipes that nothing needs.

    python -m benchmarks.conventions [TABLE.csv ...]

Reads the tables that ship and those that are named. Exit code 1 where a rule of
``meshwright/validation/conventions.yaml``, a release (``simulator/frameworks``) or a recipe
(``simulator/recipes``) is taken by no row and says nowhere why it stands: a rule in its key ``stands``, the
others in ``STANDS``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from evidence.command import command
from meshwright.validation.rows import (
    PublishedRow,
    SkippedRow,
    conventions,
    matches,
    published_files,
    read_rows,
    rule_of,
    spelled,
)
from simulator.frameworks import frameworks
from simulator.recipes import recipes

RECIPE = "a recipe of the release whose published steps are of other devices"
STANDS = {
    "maxtext": "a user's own runs: no row at hand names it",
    "megatron-deepspeed": "vTrain's steps (../shared/truth/vtrain_single.csv), which another reader takes",
    "torch-eager": "a user's own loop, as `validate --live` trains; steps on processors",
    "torchtune": "its launch files are written and read (meshwright/exporters/tuning.py)",
    "trl": "the default of adapters (simulator/default_frameworks.yaml), and peaks of fine-tuning",
    "unsloth": "peaks of fine-tuning (evidence/fits/fine_tuning_peaks.csv)",
    "verl-fsdp": "the trainer of veRL's runs (simulator/rl/frameworks/verl.yaml)",
    "megatron-bridge-deepseek-v3-h100": RECIPE,
    "nemo-deepseek-v3-h100": RECIPE,
}
"""Releases and recipes that no row takes, and why they stand."""


def rows_of(files: Iterable[Path]) -> Iterator[PublishedRow]:
    """The rows of tables, blank columns filled by their words."""
    for path in files:
        for values in read_rows(path):
            row = PublishedRow(values, str(path))
            yield PublishedRow(spelled(row), row.where)


def taken(rows: Iterable[PublishedRow]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], set[str]]:
    """Rules of releases and spellings that no row takes; releases and recipes that one does."""
    releases, fills, names = list(conventions()["releases"]), list(conventions()["spellings"]), set()
    for row in rows:
        fills = [rule for rule in fills if not matches(row, rule["where"])]
        names.add(row.text("recipe"))
        try:
            rule = rule_of(row)
        except SkippedRow:
            continue
        names.add(rule["release"])
        releases = [each for each in releases if each is not rule]
    return releases, fills, names


def idle(files: Iterable[Path]) -> list[str]:
    """What no row of tables takes and nothing says why it stands, as lines."""
    releases, fills, names = taken(rows_of(files))
    lines = [
        f"releases: {rule.get('match') or rule['where']} -> {rule['release']}"
        for rule in releases
        if "stands" not in rule
    ]
    lines += [f"spellings: {rule['where']} -> {rule['fills']}" for rule in fills if "stands" not in rule]
    bases = {recipes.get(name).framework for name in names if name in set(recipes.names())}
    for kind, catalogue in (("release", frameworks), ("recipe", recipes)):
        unused = set(catalogue.names()) - names - bases - set(STANDS)
        lines += [f"{kind}: {name}" for name in sorted(unused)]
    return lines


@command
def main(tables: Sequence[Path] = ()) -> int:
    """Print what no row takes."""
    lines = idle([*published_files(), *tables])
    print("\n".join(lines) or "every rule, release and recipe is taken, or says why it stands")
    return int(bool(lines))
