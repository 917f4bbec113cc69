"""The solver of mixed-integer programs: PuLP with HiGHS, both optional."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from core.errors import InputError

INSTALL = "PuLP and HiGHS; install them with: pip install '.[mix]'"


def solver_library(what: str) -> Any:
    """The module ``pulp``; asked for before work that takes minutes.

    Args:
        what: the question that needs it, for the error.

    Raises:
        InputError: PuLP is not installed.
    """
    try:
        import pulp
    except ImportError:
        raise InputError(f"{what} needs {INSTALL}") from None
    return pulp


def highs(what: str, time_limit_s: float, gap: float) -> Any:
    """HiGHS on one thread, silent.

    Args:
        what: as in `solver_library`.
        time_limit_s: seconds after which it stops.
        gap: relative gap between value and bound at which it stops.

    Raises:
        InputError: PuLP or HiGHS is not installed.
    """
    careful = {"presolve": "off"} if faulty_presolve() else {}
    solver = solver_library(what).HiGHS(msg=False, timeLimit=time_limit_s, gapRel=gap, threads=1, **careful)
    if not solver.available():
        raise InputError(f"{what} needs {INSTALL}")
    return solver


def faulty_presolve() -> bool:
    """Whether presolve of the installed HiGHS calls worse mixes optimal: 1.14 (ERGO-Code/HiGHS#3043)."""
    try:
        return version("highspy").startswith("1.14.")
    except PackageNotFoundError:
        return False
