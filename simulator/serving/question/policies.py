"""Policies and mechanisms by name with their parameters: schedulers, routers, overlaps, states of KV, ..."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from core.errors import named
from core.loading import Strict, build

Policy = TypeVar("Policy", bound=Strict)


def make_policy(
    kind: str,
    by_name: Mapping[str, type[Policy]],
    name: str,
    options: Mapping[str, Any],
    where: str = "",
    options_where: str = "",
) -> Policy:
    """The policy of that name with its parameters.

    Args:
        kind: scheduler, router, scaler, ...
        by_name: the policies of that kind by name.
        name, options: of the policy.
        where: of the name, for errors.
        options_where: of the options; by default the key beside the name.

    Raises:
        UnknownNameError: no such policy (the nearest name is offered).
        InputError: an unknown parameter, or a wrong value.
    """
    beside = f"{where}_options" if where else f"{kind} {name}"
    return build(named(kind, name, by_name, where), options, options_where or beside)
