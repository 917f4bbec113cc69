"""What takes a question about a cluster of groups."""

from __future__ import annotations

from typing import NoReturn

from core.errors import InputError


def refuse_groups(where: str) -> NoReturn:
    """Refuse a cluster of groups where a question needs nodes of one kind.

    Raises:
        InputError: always.
    """
    advice = "`meshwright plan` ranks plans of it by throughput, `simulate` and `whatif` take one of them"
    raise InputError(
        f"has groups of nodes, which this question does not range over; {advice}", f"{where}: cluster"
    )
