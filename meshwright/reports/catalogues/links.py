"""Links inside a domain and fabrics between nodes: the measured constants that cluster files name."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from hwmodels.collectives.calibration import (
    FAMILIES,
    FabricCalibration,
    LinkCalibration,
    Protocols,
    fabric_calibrations,
    link_calibrations,
)
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import table
from meshwright.reports.units import percent

Constants = LinkCalibration | FabricCalibration

LONGEST = 90
"""Characters of the source in the list."""


def _names() -> list[str]:
    return [*link_calibrations.names(), *fabric_calibrations.names()]


def _get(name: str) -> Constants:
    if fabric_calibrations.resolve(name):
        return fabric_calibrations.get(name)
    return link_calibrations.get(name)


def _parts(constants: Constants) -> dict[str, Protocols]:
    """Constants of each family of operations."""
    if isinstance(constants, FabricCalibration):
        return {"collective": constants.collective, "send_receive": constants.send_receive}
    return {family: getattr(constants, family) for family in dict.fromkeys(FAMILIES.values())}


def _brief(constants: Constants) -> dict[str, Any]:
    between_nodes = isinstance(constants, FabricCalibration)
    return {
        "name": constants.name,
        "kind": "fabric" if between_nodes else "link",
        "latency_s": constants.latency_s,
        "median_error": constants.median_error if between_nodes else None,
        "source": constants.provenance,
    }


def _more(constants: Constants) -> dict[str, Any]:
    parts = {name: protocols.model_dump(mode="json") for name, protocols in _parts(constants).items()}
    return {"protocols": parts, "errors": dict(getattr(constants, "errors", {}))}


def _where(constants: Constants) -> str:
    between_nodes = isinstance(constants, FabricCalibration)
    return "network.fabric or network.calibration" if between_nodes else "levels.calibration"


def _error(constants: Constants) -> str:
    error = _brief(constants)["median_error"]
    return "" if error is None else percent(error, 0)


def _shortened(text: str) -> str:
    first = text.partition(". ")[0]
    return first if len(first) <= LONGEST else f"{first[:LONGEST].rstrip()}..."


def _microseconds(value: float) -> str:
    return f"{value * 1e6:.2f} us"


def _parts_of(constants: Constants) -> list[Table]:
    rows = [
        [name, protocol, _microseconds(part.start_s), _microseconds(part.step_s), percent(part.efficiency)]
        for name, protocols in _parts(constants).items()
        for protocol, part in (("LL", protocols.ll), ("LL128", protocols.ll128), ("Simple", protocols.simple))
    ]
    errors = [[key, text] for key, text in getattr(constants, "errors", {}).items()]
    tables = [table(("operation", "protocol", "start", "hop", "of the wire"), rows, left=2)]
    if errors:
        tables.append(table(("errors left, median / 90th percentile", "%"), errors, left=1))
    return tables


KIND = Kind(
    names=_names,
    get=_get,
    brief=_brief,
    more=_more,
    cells={
        "links": lambda constants: constants.name,
        "named in": _where,
        "measured": lambda constants: _shortened(constants.provenance),
        "latency": lambda constants: _microseconds(constants.latency_s),
        "error": _error,
    },
    about=lambda constants: {
        "measured": constants.provenance,
        "latency": f"{_microseconds(constants.latency_s)} a hop",
    },
    parts=_parts_of,
    text_columns=3,
)
