"""Published gains that their mechanism decides: ``python -m benchmarks.decided``.

A run without its mechanism is its baseline and gains 1 (a claim of another kind names the runs without it). A
gain is decided where its verdict is then another one. Prints the counts of each collection of claims, then
those that are not decided; they are printed as such, never as inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from evidence.claims import papers, serving_papers, tiers
from evidence.claims.gain_papers import GAIN_CLAIMS, predicted, runs_of
from evidence.command import command


class Gain(NamedTuple):
    """A published gain."""

    collection: str
    scenario: str
    what: str
    published: float
    is_decided: bool
    """Whether the claim fails where the run gains nothing."""


def serving_gains() -> Iterator[Gain]:
    """Gains of serving systems and policies."""
    for claim in serving_papers.SERVING_CLAIMS:
        published = serving_papers.gained(claim)
        if published is not None:
            fails = serving_papers.verdict((1.0,), claim.band, published) != "not decided"
            yield Gain("serving", claim.scenario, claim.what, published, fails)


def schedule_gains() -> Iterator[Gain]:
    """Gains of pipeline schedules and of context algorithms."""
    for claim in papers.CLAIMS:
        fails = papers.verdict(claim, [1.0]) != "reached"
        yield Gain("schedules", claim.scenario, claim.what, claim.published[1], fails)


def tier_gains() -> Iterator[Gain]:
    """Gains of state off the device, of coded wires and of rare exchanges that have a band."""
    for point in tiers.POINTS:
        if point.unit == "times" and point.band:
            what = " over ".join(reversed(point.run))
            yield Gain("tiers", point.scenario, what, point.published, not point.inside(1.0))


def other_gains() -> Iterator[Gain]:
    """Gains of diffusion and of graphs; each is predicted again by its runs without the mechanism."""
    runs = {name: runs_of(name) for name in dict.fromkeys(claim.scenario for claim in GAIN_CLAIMS)}
    for claim in GAIN_CLAIMS:
        named = runs[claim.scenario]
        off = predicted(claim, named | {on: named[without] for on, without in claim.without.items()})
        fails = not claim.band[0] <= off <= claim.band[1]
        yield Gain(claim.scenario.partition("-")[0], claim.scenario, claim.what, claim.published, fails)


def gains() -> list[Gain]:
    """All published gains that a band or a tolerance judges."""
    return [*serving_gains(), *schedule_gains(), *tier_gains(), *other_gains()]


def rows(published: Iterable[Gain]) -> Iterator[str]:
    """Lines of the table, in Markdown, and the gains that are not decided."""
    listed = list(published)
    yield "| claims | gains | decided | not decided |"
    yield "|---|---|---|---|"
    for name in (*dict.fromkeys(gain.collection for gain in listed), ""):
        some = [gain for gain in listed if name in ("", gain.collection)]
        decided = sum(gain.is_decided for gain in some)
        yield f"| {name or 'all'} | {len(some)} | {decided} | {len(some) - decided} |"
    yield ""
    for gain in listed:
        if not gain.is_decided:
            yield f"not decided: {gain.scenario}, {gain.what} ({gain.published:g})"


@command
def main() -> None:
    """Print the table."""
    print("\n".join(rows(gains())))
