"""Claims of papers as data: a YAML file a collection, in which scenarios of ``scenarios/papers`` list theirs.

A claim is a mapping; unknown keys, and figures that nothing predicts, are refused with the nearest name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field

from core.errors import InputError, UnknownNameError, shown
from core.loading import Strict, build
from core.parsing import read_mapping
from meshwright.questions.scenarios import shipped_scenarios
from meshwright.variations.question import ScenarioRun, WhatIfQuestion

FOLDER = Path(__file__).parent

Band = Annotated[tuple[float, float], Field(strict=False)]
"""Least and most that counts as agreement, set before looking."""
RunNames = Annotated[tuple[str, ...], Field(strict=False)]
"""Names of runs of a scenario."""
Pairs = Annotated[tuple[Annotated[tuple[str, str], Field(strict=False)], ...], Field(strict=False)]
"""Names of runs, each with the one that it is compared with."""


class ScenarioClaim(Strict):
    """A published figure of a scenario in ``scenarios/papers``."""

    model_config = ConfigDict(allow_inf_nan=True)

    scenario: str
    """The scenario's name."""


class PaperClaim(ScenarioClaim):
    """A claim in words."""

    what: str
    """What gains over what, or the figure."""


class FigureClaim(PaperClaim):
    """A claim whose prediction is a named figure of the scenario's runs."""

    figure: str
    """Name of the function that predicts it from the runs."""
    given: dict[str, Any] = Field(default_factory=dict)
    """Its other arguments."""


def named_runs(question: WhatIfQuestion) -> dict[str, ScenarioRun]:
    """Base and variations of a scenario by name; the base is ``base``."""
    return {run.name: run for run in (question.base, *question.runs())}


def paper(scenario: str) -> WhatIfQuestion:
    """The scenario of a paper."""
    return WhatIfQuestion.read(shipped_scenarios()[f"papers/{scenario}"])


ClaimT = TypeVar("ClaimT", bound=ScenarioClaim)


def read_claims(collection: str, kind: type[ClaimT]) -> tuple[ClaimT, ...]:
    """The claims of a collection, in the order of its file.

    Args:
        collection: name of the file, without its suffix.
        kind: of the claims.

    Raises:
        InputError: a claim lacks a key or has one that is not known.
    """
    return claims_of(read_mapping(FOLDER / f"{collection}.yaml"), kind, f"{collection}.yaml")


def read_figures(
    collection: str, kind: type[FigureClaimT], figures: Mapping[str, Callable[..., Any]]
) -> tuple[FigureClaimT, ...]:
    """The claims of a collection, whose figures are those of a table.

    Raises:
        InputError: also where a figure does not take what it is given.
        UnknownNameError: a figure is not in the table.
    """
    claims = read_claims(collection, kind)
    for claim in claims:
        check_figure(claim, figures, f"{collection}.yaml: {claim.scenario}: {claim.what}")
    return claims


FigureClaimT = TypeVar("FigureClaimT", bound=FigureClaim)


def claims_of(data: Mapping[str, Any], kind: type[ClaimT], where: str) -> tuple[ClaimT, ...]:
    """Claims from lists by scenario.

    Raises:
        InputError: as `read_claims`.
    """
    claims: list[ClaimT] = []
    for scenario, listed in data.items():
        if not isinstance(listed, list):
            raise InputError(f"a list of claims is needed, found {shown(listed)}", f"{where}: {scenario}")
        for place, claim in enumerate(listed):
            at = f"{where}: {scenario}[{place}]"
            data = {**claim, "scenario": scenario} if isinstance(claim, dict) else claim
            claims.append(build(kind, data, at))
    return tuple(claims)


def check_figure(claim: FigureClaim, figures: Mapping[str, Callable[..., Any]], where: str) -> None:
    """Refuse a name that no figure has, and arguments that its figure does not take.

    Raises:
        InputError: an argument is missing or not known.
        UnknownNameError: the figure is not in the table.
    """
    if claim.figure not in figures:
        raise UnknownNameError("figure", claim.figure, figures, where)
    try:
        inspect.signature(figures[claim.figure]).bind(None, **claim.given)
    except TypeError as error:
        raise InputError(f"{claim.figure}: {error}", where) from None
