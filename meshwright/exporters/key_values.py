"""What a launcher's configuration states, asked by the facts of its file of keys (`key_files`)."""

from __future__ import annotations

import re
from typing import Any

from core.errors import InputError
from meshwright.exporters.dotted_keys import Flat
from meshwright.exporters.key_files import KeyFile
from meshwright.exporters.table import Facts
from simulator.models import models

MODEL_SIZES = re.compile(r"-(instruct|base|chat|it|hf|sft|fp8)$")


class KeyValues:
    """Typed values of dotted keys; those read are remembered.

    A name without a dot is a fact of the file of keys, whose default is what the launcher assumes; any other
    name is a key.
    """

    def __init__(self, flat: Flat, where: str, keys: KeyFile) -> None:
        self.flat, self.where, self.keys = flat, where, keys
        self.read: set[str] = set()
        self.conditions: Facts = {}
        """Conditions that the configuration decides, such as ``megatron``."""

    def _key(self, name: str) -> str:
        return name if "." in name else self.keys.key_of(name, self.conditions) or name

    def _stated(self, name: str, default: Any) -> tuple[str, Any]:
        """The key of a name and its value, or else the default."""
        key = self._key(name)
        self.read.add(key)
        value = self.flat.get(key)
        return key, self.keys.defaults.get(name, default) if value is None else value

    def states(self, name: str) -> bool:
        """Whether the configuration has it."""
        return self._key(name) in self.flat

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number.

        Raises:
            InputError: another value, or none and no default.
        """
        key, value = self._stated(name, default)
        try:
            if value is None or isinstance(value, bool) or int(value) != float(value):
                raise ValueError
            return int(value)
        except (TypeError, ValueError):
            raise InputError(f"a whole number is needed, found {value!r}", f"{self.where}: {key}") from None

    def share(self, name: str, default: float | None = None) -> float:
        """A number.

        Raises:
            InputError: another value, or none and no default.
        """
        key, value = self._stated(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"a number is needed, found {value!r}", f"{self.where}: {key}")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false; false where neither the configuration nor the launcher says it."""
        return str(self._stated(name, False)[1]).lower() == "true"

    def word(self, name: str) -> str:
        """A text."""
        return str(self._stated(name, "")[1])

    def model(self) -> str:
        """A catalogue name of the model by its checkpoint."""
        name = self.word("model").rstrip("/").rpartition("/")[2].lower()
        while name not in models.names() and MODEL_SIZES.search(name):
            name = MODEL_SIZES.sub("", name)
        return name
