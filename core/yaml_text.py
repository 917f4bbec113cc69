"""YAML text of plain data that ``core.parsing`` reads back unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from core.yaml_loader import IMPLICIT_RESOLVERS

WIDTH = 110


class _Dumper(yaml.SafeDumper):
    """Safe YAML that quotes all strings that YAML 1.1 or our loader reads as numbers or booleans."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own protocol
        first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, []), *IMPLICIT_RESOLVERS.get(first, [])]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *IMPLICIT_RESOLVERS}
    }

    def ignore_aliases(self, data: Any) -> bool:
        """Write shared values out in full."""
        return True


def yaml_text(data: Mapping[str, Any]) -> str:
    """A mapping of JSON types as YAML; numbers keep every digit, the order of keys is kept."""
    return yaml.dump(
        dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH, default_flow_style=None
    )
