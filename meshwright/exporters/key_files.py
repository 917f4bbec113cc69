"""Files of keys that hold one configuration: for each launcher a YAML file of its keys, beside this module.

A value that begins with ``=`` is a fact of the question, another one stands as it is. Groups are written in
their order, those whose conditions hold; a later value of a key takes the place of an earlier one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from core.cache import read_shipped
from core.loading import Strict, build
from meshwright.exporters.base import Export, ExportQuestion, array, commented, flags, header
from meshwright.exporters.table import Facts, Options

SCRIPT = "launch.sh"
KeyText = Callable[[Options], str]
"""Keys and values as the text of a file."""


class KeyGroup(Strict):
    """Keys, or a gap, under some conditions."""

    when: list[str] = Field(default_factory=list)
    """Facts that hold, or do not (``not split``)."""
    keys: Options = Field(default_factory=dict)
    part: str = ""
    """Array of a script that has the keys as options."""
    gap: str = ""
    """What the launcher does not express; ``%(name)s`` is a fact."""

    def holds(self, facts: Facts) -> bool:
        """Whether all conditions hold."""
        return all(
            bool(facts[condition.removeprefix("not ")]) != condition.startswith("not ")
            for condition in self.when
        )

    def may_hold(self, facts: Facts) -> bool:
        """Whether no condition on one of these facts fails; others are not known."""
        names = [(condition.removeprefix("not "), condition) for condition in self.when]
        return all(bool(facts[name]) == (name == condition) for name, condition in names if name in facts)


class KeyFile(Strict):
    """The keys of one launcher at one version."""

    version: str
    groups: list[KeyGroup]
    script: str
    """Last lines of the script that starts the launcher; ``%(name)s`` is a fact."""
    file: str = ""
    """Name of the file of keys; empty: the script has them."""
    top: str = ""
    """First lines of that file."""
    notes: list[str] = Field(default_factory=list)
    """What the user adds, beyond what every launcher of the kind needs."""
    unwritten_notes: list[str] = Field(default_factory=list)
    """The same, where the files do not say it."""
    schedules: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Schedules of post-training that the launcher has, by kind, with its words for them."""
    estimators: dict[str, str] = Field(default_factory=dict)
    """Algorithms of post-training that the launcher has, with its words for them."""
    engines: list[str] = Field(default_factory=lambda: ["vllm", "sglang"])
    """Families of rollout engines that it starts."""
    trainers: list[str] = Field(default_factory=lambda: ["megatron", "fsdp"])
    """Kinds of trainer that it has."""
    defaults: Options = Field(default_factory=dict)
    """What the launcher assumes of a fact whose key is not stated."""

    @property
    def launcher(self) -> str:
        """The launcher's name, without its version."""
        return self.version.rpartition(" ")[0]

    def key_of(self, fact: str, conditions: Facts) -> str | None:
        """The first key that states a fact, in groups that these conditions allow; None if there is none."""
        for group in self.groups:
            for key, value in group.keys.items():
                if value == f"={fact}" and group.may_hold(conditions):
                    return key
        return None

    def parts(self, facts: Facts) -> dict[str, Options]:
        """Keys and values by part."""
        parts: dict[str, Options] = defaultdict(dict)
        for group in self.groups:
            if group.holds(facts):
                parts[group.part] |= {key: _value(value, facts) for key, value in group.keys.items()}
        return dict(parts)

    def launch(
        self, question: ExportQuestion, facts: Facts, gaps: Sequence[str], notes: Sequence[str], text: KeyText
    ) -> Export:
        """The file of keys, and the script that starts the launcher.

        Args:
            question: for the header.
            facts: of the question.
            gaps, notes: of every launcher of the kind.
            text: of keys and values in the file.
        """
        said = *gaps, *(group.gap % facts for group in self.groups if group.gap and group.holds(facts))
        notes, parts = (*notes, *self.notes), self.parts(facts)
        head = commented(header(question, self.version, said, notes))
        arrays = "".join(array(name, flags(options)) for name, options in parts.items() if name)
        script = f"#!/usr/bin/env bash\n{head}set -euo pipefail\n\n{arrays}{self.script % facts}"
        files = {self.file: head + self.top % facts + text(parts[""])} if self.file else {}
        return Export({**files, SCRIPT: script}, said, (*notes, *self.unwritten_notes), f"bash {SCRIPT}")


def _value(value: Any, facts: Facts) -> Any:
    return facts[value[1:]] if isinstance(value, str) and value.startswith("=") else value


@cache
def key_file(target: str) -> KeyFile:
    """The keys of a target."""
    path = Path(__file__).parent / f"{target}.yaml"
    return build(KeyFile, read_shipped(path), str(path))
