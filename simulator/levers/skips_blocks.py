"""Whether windowed attention leaves out masked blocks."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedSkipsBlocks(Partial):
    """As a plan states it."""

    skips_blocks: bool | None = Field(
        default=None, description="the attention kernel of a sliding window leaves out blocks that are masked"
    )


@chosen
class ChosenSkipsBlocks:
    """As a release does it."""

    skips_blocks: bool = True


LEVER = Lever("skips_blocks")
