"""Who follows the requests that end: a progress bar, or a question that they may have answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.serving.replica.records import Records

Progress = Callable[[float], None]
Enough = Callable[[Records, int], bool]
"""Of the requests that ended, and the number of those that no replica takes."""
REPORT_EVERY, ASK_EVERY = 500, 50
"""Number of ended requests between two progress reports, and between two questions whether they suffice; the
first is a multiple of the second."""


class EnoughError(Exception):
    """Ends a run whose finished requests suffice."""


@dataclass(frozen=True)
class Watch:
    """Followers of a run.

    Attributes:
        requests: of the workload.
        progress: called with the share of requests that were handled.
        enough: whether the requests that ended say what the run is for.
    """

    requests: int
    progress: Progress | None
    enough: Enough | None

    def ended(self, records: Records, refused: int) -> None:
        """Tell of the requests that ended so far, and the number of those that no replica takes.

        Raises:
            EnoughError: they suffice.
        """
        ended = len(records)
        if ended % ASK_EVERY:
            return
        if self.progress is not None and ended % REPORT_EVERY == 0:
            self.progress(min(ended / self.requests, 1.0))
        if self.enough is not None and self.enough(records, refused):
            raise EnoughError
