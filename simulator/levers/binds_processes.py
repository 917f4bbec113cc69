"""Whether processes are bound to cores."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedBindsProcesses(Partial):
    """As a plan states it."""

    binds_processes: bool | None = Field(
        default=None, description="whether processes are bound to the cores beside their device"
    )


@chosen
class ChosenBindsProcesses:
    """As a release does it."""

    binds_processes: bool = True


LEVER = Lever("binds_processes")
