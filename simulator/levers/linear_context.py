"""How context-parallel ranks exchange linear attention: slices of heads, or states."""

from typing import Literal

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen

Value = Literal["heads", "lasp", "lasp-2", "zeco"]


class StatedLinearContext(Partial):
    """As a plan states it."""

    linear_context: Value | None = Field(
        default=None,
        description="context parallelism of linear attention; heads swaps slices of the sequence for "
        "slices of heads, lasp sends states from rank to rank, lasp-2 gathers the states of all ranks, zeco "
        "sends states in blocks from rank to rank",
    )


@chosen
class ChosenLinearContext:
    """As a release does it."""

    linear_context: Value = "heads"


LEVER = Lever(
    "linear_context",
    relevant=lambda plan: plan.context > 1,
    words=lambda value: f"{value} of linear layers",
)
