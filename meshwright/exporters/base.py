"""Inputs and results of exporters."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.exporters.table import Facts, Options

if TYPE_CHECKING:
    from simulator.plan import Plan
    from simulator.rl.setting import RlSetting
    from simulator.scenario import Scenario
    from simulator.serving.setting import ServingSetting


@dataclass(frozen=True)
class ExportQuestion:
    """Exported question: a training plan, a deployment or a step of post-training, resolved."""

    title: str
    scenario: Scenario | None = None
    plan: Plan | None = None
    serving: ServingSetting | None = None
    rl: RlSetting | None = None
    command: str = "meshwright export"
    """The command line that writes the files."""

    @property
    def serves(self) -> bool:
        """Whether the question is about serving."""
        return self.serving is not None

    @property
    def kind(self) -> str:
        """training, serving or rl, as ``Exporter.kinds``."""
        if self.rl is not None:
            return "rl"
        return "serving" if self.serves else "training"

    def post_trained(self) -> RlSetting:
        """The setting of a question of post-training."""
        if self.rl is None:
            raise ValueError("the question is not one of post-training")
        return self.rl

    def training(self) -> tuple[Scenario, Plan]:
        """The scenario and plan of a training question."""
        if self.scenario is None or self.plan is None:
            raise ValueError("a serving question has no plan")
        return self.scenario, self.plan

    @property
    def insisted(self) -> Mapping[str, str]:
        """Rules of the release that the plan breaks and that the user set aside, with their reasons."""
        if self.scenario is None or self.plan is None:
            return {}
        from simulator.rules import insisted

        return insisted(self.scenario.setting, self.plan)

    def deployed(self) -> ServingSetting:
        """The setting of a serving question."""
        if self.serving is None:
            raise ValueError("a training question has no deployment")
        return self.serving


@dataclass(frozen=True, repr=False)
class Export:
    """Files to write, and their gaps."""

    files: Mapping[str, str]
    gaps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Inputs left to the user: data, tokenizer, learning rate."""
    run: str = ""
    """Shell command that starts the launcher on one node, from the folder of the files."""
    framework: str = ""
    """Framework that the files run, where the plan was predicted for another one."""
    levers: Mapping[str, Any] = field(default_factory=dict)
    """Levers that the files state, also those that the plan leaves to its release."""

    def __repr__(self) -> str:
        """Names of the files, gaps and notes, cut to a screen."""
        gaps = [f"not expressed: {one_line(gap)[:200]}" for gap in self.gaps[:8]]
        notes = [f"yours to add: {one_line(note)[:200]}" for note in self.notes[:4]]
        return "\n".join([f"Export of {', '.join(list(self.files)[:20])}", *gaps, *notes])[:2400]


@dataclass(frozen=True, repr=False)
class Imported:
    """A scenario made of a launch file."""

    scenario: dict[str, Any]
    target: str
    aside: Options
    """Options that the scenario does not express, unchanged."""
    unknown: tuple[str, ...]
    """Unknown options among them."""
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        """The scenario as YAML, cut to a screen."""
        from core.yaml_text import yaml_text

        return f"Imported from {self.target}, {len(self.aside)} options aside:\n{yaml_text(self.scenario)}"[
            :2400
        ]


@dataclass(frozen=True)
class Launch:
    """A launch file or command, read: its options, and the devices that it starts."""

    options: Options
    devices: int | None = None
    notes: tuple[str, ...] = ()
    script: str = ""
    """Training script or module that the command starts."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts of the files that the script writes before, by name."""
    automatic: tuple[str, ...] = ()
    """Options whose value a trainer fills in (``auto``)."""


@dataclass(frozen=True)
class Exporter:
    """One target."""

    name: str
    title: str
    kinds: tuple[str, ...]
    """Of question: training, serving, rl."""
    write: Callable[[ExportQuestion], Export]
    read: Callable[[Launch, str], Facts] | None = None
    """Facts of a launch, by the names of `facts.py`; none where the target cannot be imported."""
    parse: Callable[[str, str, Path | None], Launch] | None = None
    """Parser of a launch from a text, its name in errors and its file."""
    table: str = ""
    """File of the mapping table."""
    hints: tuple[str, ...] = field(default=())
    """Texts by which an import recognises the target."""


def header(
    question: ExportQuestion, version: str, gaps: tuple[str, ...], notes: tuple[str, ...]
) -> list[str]:
    """The comment at the top of every file: the question, the version, and the gaps."""
    lines = [f"{one_line(question.title)}", f"For {version}; written by `{one_line(question.command)}`."]
    lines += [f"AGAINST {rule}: {one_line(why)}" for rule, why in question.insisted.items()]
    lines += [f"NOT EXPRESSED: {one_line(gap)}" for gap in gaps]
    lines += [f"Yours to add: {one_line(note)}" for note in notes]
    return lines


def commented(lines: list[str]) -> str:
    """Lines as comments."""
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def one_line(text: str) -> str:
    """Text that cannot end a comment: one line of printable characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def required(variable: str, meaning: str) -> str:
    """Shell lines that end a script without a variable; bash expands nothing in the meaning."""
    words = shlex.quote(f"{variable}: {one_line(meaning)}")
    return f"[ -n \"${{{variable}:-}}\" ] || {{ printf '%s\\n' {words} >&2; exit 1; }}\n"


def flags(options: Options) -> list[str]:
    """Options as words of a command line, one option per line."""
    lines = []
    for name, value in options.items():
        if value is True:
            lines.append(name)
        elif isinstance(value, list):
            lines.append(" ".join([name, *(shlex.quote(str(word)) for word in value)]))
        elif value is not False and value is not None:
            lines.append(f"{name} {shlex.quote(plain(value))}")
    return lines


def overrides(options: Options) -> list[str]:
    """Options as ``key=value`` words, one per line; flags unchanged."""
    pairs = {name: value for name, value in options.items() if not name.startswith("-")}
    return [shlex.quote(f"{name}={plain(value)}") for name, value in pairs.items()]


def plain(value: Any) -> str:
    """A value in the spelling of launchers' parsers."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    if isinstance(value, float) and isfinite(value):
        return f"{value:.10g}" if value != int(value) or abs(value) > 1e15 else f"{value:.1f}"
    return str(value)


def array(name: str, lines: list[str]) -> str:
    """A bash array, one option per line."""
    return f"{name}=(\n" + "".join(f"    {line}\n" for line in lines) + ")\n"


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as nested mappings."""
    tree: dict[str, Any] = {}
    for name, value in options.items():
        *path, last = name.split(".")
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return tree
