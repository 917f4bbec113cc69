"""Whether gradients are added up unsharded."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedUnshardedGradients(Partial):
    """As a plan states it."""

    unsharded_gradients: bool | None = Field(
        default=None,
        description="where gradients are sharded, those of all micro batches but the last are added up "
        "unsharded, as they are reduced, and reduced once a step (FSDP2: set_requires_gradient_sync)",
    )


@chosen
class ChosenUnshardedGradients:
    """As a release does it."""

    unsharded_gradients: bool = False


LEVER = Lever("unsharded_gradients")
