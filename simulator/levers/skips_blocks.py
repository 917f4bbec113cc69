"""Whether windowed attention leaves out masked blocks."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class Stated(Partial):
    """As a plan states it."""

    skips_blocks: bool | None = Field(
        default=None, description="the attention kernel of a sliding window leaves out blocks that are masked"
    )


@chosen
class Chosen:
    """As a release does it."""

    skips_blocks: bool = True


LEVER = Lever("skips_blocks")
