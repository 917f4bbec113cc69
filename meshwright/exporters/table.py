"""Mapping tables: fields of a question against the options of a launcher, read in both directions.

A table is a YAML file beside this one, named after its target and the target's version. Every field of a plan
is an option, a choice between options, or derived; a field or value without an option is a gap, and is named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from core.cache import read_shipped
from core.errors import InputError, shown
from core.loading import Strict, build

TYPING = 0.93
"""Likeness of an unknown option to a known one from which it is a typing error."""
Facts = dict[str, Any]
"""Values by field (``plan.tensor``, ``workload.seq_len``, ``model.moe.experts``)."""
Options = dict[str, Any]
"""Values by the launcher's name of an option; true stands for a flag without a value."""


class Choice(Strict):
    """One value of a field, and the options that mean it."""

    value: Any
    sets: Options = Field(default_factory=dict)
    gap: str = ""
    """The part of the value that the options do not express; named as a gap."""
    only_read: bool = False
    """Whether the options are read but not written, as their meaning is only similar."""


class LauncherOption(Strict):
    """Options of a launcher for one field."""

    option: str = ""
    """Option that takes the value unchanged."""
    default: Any = None
    """The launcher's default."""
    choices: list[Choice] = Field(default_factory=list)
    """The first of a value is written; all are read."""
    otherwise: str = ""
    """Reason why other values cannot be expressed."""
    only_written: bool = False
    """Whether an import keeps the options aside."""

    @model_validator(mode="after")
    def _one_way(self) -> LauncherOption:
        if bool(self.option) == bool(self.choices):
            raise ValueError("give option or choices")
        return self


class LauncherTable(Strict):
    """The options of one launcher at one version."""

    target: str
    version: str
    source: str
    """Files of the launcher that the names were read in."""
    framework: str = ""
    """Framework that an imported question is predicted with."""
    always: Options = Field(default_factory=dict)
    """Options that every file has."""
    defaults: Options = Field(default_factory=dict)
    """Values that the launcher takes by itself for every model and device; files do not repeat them."""
    repeated: dict[str, str] = Field(default_factory=dict)
    """Options that files state even at their default, and why: it is no one value."""
    options: dict[str, LauncherOption]
    derived: dict[str, str] = Field(default_factory=dict)
    """Fields that the launcher computes, or that other options express."""
    models: dict[str, str] = Field(default_factory=dict)
    """The launcher's names of catalogue models."""
    configs: dict[str, Options] = Field(default_factory=dict)
    """Configurations that ship with the launcher, by name, as far as a prediction reads them."""
    refused: dict[str, str] = Field(default_factory=dict)
    """Options (or ``option=value``) that change a step in a way that no prediction knows, and the reason."""
    aside: list[str] = Field(default_factory=list)
    """Options of the launcher that no prediction reads."""
    deciding: list[str] = Field(default_factory=list)
    """Parts of the names of options that decide a run: one of them that no table knows is refused."""

    def tells(self, field: str) -> bool:
        """Whether the launcher has options for a field of a plan, or of the release's defaults of one."""
        return field in self.options or _of_plan(field) in self.options

    def expresses(self, field: str, value: Any) -> bool:
        """Whether a value of a field is an option, or a choice between options, that is written."""
        entry = self.options.get(field)
        if entry is None:
            return False
        return bool(entry.option) or any(same(c.value, value) and not c.only_read for c in entry.choices)

    def write(self, facts: Facts) -> tuple[Options, list[str]]:
        """The options for the facts, and descriptions of facts without an option."""
        options, gaps = dict(self.always), []
        for field, value in facts.items():
            if field in self.derived or _of_plan(field) in self.derived or value in (None, "", []):
                continue
            entry = self.options.get(field) or self.options.get(_of_plan(field))
            if entry is None:
                gaps.append(f"{field} = {_words(value)}: {self.version} has no option for it")
            elif entry.option:
                options[entry.option] = value
            else:
                choice = next((c for c in entry.choices if same(c.value, value) and not c.only_read), None)
                if choice is None:
                    reason = entry.otherwise or f"{self.version} has no option for it"
                    gaps.append(f"{field} = {_words(value)}: {reason}")
                else:
                    options |= choice.sets
                    if choice.gap:
                        gaps.append(f"{field} = {_words(value)}: {choice.gap}")
        return {name: value for name, value in options.items() if not self.is_default(name, value)}, gaps

    def is_default(self, option: str, value: Any) -> bool:
        """Whether the launcher takes the value by itself."""
        return option in self.defaults and same(value, self.defaults[option])

    def repeats(self, options: Options) -> list[str]:
        """Why files state options that may be at their default, a line each reason."""
        names: dict[str, list[str]] = {}
        for option, why in self.repeated.items():
            if option in options:
                names.setdefault(why, []).append(option)
        return [f"{', '.join(stated)}: {why}" for why, stated in names.items()]

    def read(self, options: Options) -> tuple[Facts, Options]:
        """The facts of the options, and options without a fact."""
        facts: Facts = {}
        read = {name for name in self.always if same(options.get(name), self.always[name])}
        for field, entry in self.options.items():
            if entry.only_written:
                continue
            if entry.option:
                if entry.option in options:
                    facts[field] = options[entry.option]
                    read.add(entry.option)
                elif entry.default is not None:
                    facts[field] = entry.default
                continue
            matching = [choice for choice in entry.choices if within(choice, options)]
            if matching:
                choice = max(matching, key=lambda choice: len(choice.sets))
                facts[field] = choice.value
                read |= {name for other in matching if other.value == choice.value for name in other.sets}
        return facts, {name: value for name, value in options.items() if name not in read}

    def check(self, options: Options, where: str, named: bool = False) -> None:
        """Refuse options that no prediction knows.

        Args:
            options: of a launch file.
            where: to name in errors.
            named: whether the user names the model, so that options of its shape do not count.

        Raises:
            InputError: such an option, with the reason.
        """
        for name, reason in self.refused.items():
            option, _, value = name.partition("=")
            stated = option in options and (not value or same(options[option], value))
            if stated and not (named and "--model" in reason):
                raise InputError(reason, f"{where}: {name}")

    def check_known(self, left: Options, where: str) -> None:
        """Refuse an unknown option of the sections that decide a run.

        Raises:
            InputError: such an option, with the nearest known one.
        """
        known_options = {entry.option for entry in self.options.values() if entry.option}
        known_options |= {
            option for entry in self.options.values() for choice in entry.choices for option in choice.sets
        }
        for name in self.unknown(left):
            if left[name] in (False, "false") or name in self.refused:
                continue
            if any(re.search(part, name) for part in self.deciding) or get_close_matches(
                name, known_options, 1, TYPING
            ):
                likely = get_close_matches(name, known_options - {name}, 1, 0.7)
                hint = f"; did you mean {likely[0]!r}?" if likely else ""
                problem = f"is not read, and may change the step{hint}"
                ways = "leave it out to predict the run without it, or state the plan's field with --fix"
                raise InputError(f"{problem}; {ways}", f"{where}: {name}")

    def unknown(self, left: Options) -> list[str]:
        """Remaining options that are unknown to the table."""
        return [name for name in left if name not in self.aside]


def _of_plan(field: str) -> str:
    """The plan's field of a release's default of it."""
    return field.replace("framework.", "plan.")


def within(choice: Choice, options: Mapping[str, Any]) -> bool:
    """Whether options include those of a choice."""
    return all(name in options and same(value, options[name]) for name, value in choice.sets.items())


def same(value: Any, other: Any) -> bool:
    """Whether two values are equal: as numbers if both are numbers, as lists of words, else as text."""
    if isinstance(value, list) or isinstance(other, list):
        return words_of(value) == words_of(other)
    if isinstance(value, bool) or isinstance(other, bool):
        return _flag(value) == _flag(other)
    try:
        return math.isclose(float(value), float(other), rel_tol=1e-9)
    except (TypeError, ValueError):
        return str(value).lower() == str(other).lower()


def _flag(value: Any) -> str:
    """A flag's value as text; variables without a value behind a flag are nothing."""
    return re.sub(r"^(\$\{?\w+\}?\s*)+$", "true", str(value)).lower()


def words_of(value: Any) -> list[str]:
    """The words of a list, or of its text: ``a b``, ``a,b`` or ``[a, b]``."""
    listed = value if isinstance(value, list) else re.split(r"[\s,\[\]'\"]+", str(value))
    return [str(word) for word in listed if str(word)]


def _words(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def table(file: str) -> LauncherTable:
    """The table in a file of this folder."""
    path = Path(__file__).parent / file
    return build(LauncherTable, read_shipped(path), str(path))


def integer(facts: Facts, field: str, where: str) -> int | None:
    """A fact as a whole number; None if not given.

    Raises:
        InputError: not a whole number.
    """
    value = facts.get(field)
    if value is None:
        return None
    text = str(value).replace("_", "").replace(",", "")
    if variable := re.search(r"\$\{?(\w+)", str(value)):
        kind = "argument" if variable[1].isdigit() else "variable"
        problem = f"{field}: is the script's {kind} {variable[1]}, whose value is not in the file"
        raise InputError(f"{problem}; write the value in its place", where)
    if isinstance(value, bool) or not text.lstrip("-").isdigit() or len(text) > 18:
        raise InputError(f"{field}: a whole number is needed, found {shown(value)}", where)
    return int(text)
