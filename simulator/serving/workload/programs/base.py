"""Interface of programs: requests of one client, some of which wait for others to end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from core.loading import Strict


class Call(NamedTuple):
    """A request that a program sends: seconds from now, lengths, and ids of the leading spans.

    Ids may go on over the output, where a later request repeats it."""

    after_s: float
    prompt: int
    output: int
    prefix: tuple[int, ...] = ()
    share: float = 1.0
    """Part of the time left to the program's deadline in which it should end."""
    then: Calls | None = None
    """Requests that follow it, beside those sent with it (a sub-agent's); the join waits for them, too."""


Draw = Callable[[], tuple[int, int]]
"""Draws the prompt and output tokens of a program's next request."""
Fresh = Callable[[int], tuple[int, ...]]
"""Returns the given number of unused prefix ids."""
Calls = Generator[list[Call], None, None]
"""Yields requests to send at once; goes on when all of them have ended."""

SPAN = 64
"""Tokens that a prefix id stands for in generated workloads."""


class Program(Strict):
    """One kind of program.

    ``calls`` is a generator: the requests of a yielded list are sent together (fork); the generator resumes
    when all of them have ended (join).
    """

    kind: Any
    deadline: float | None = Field(
        default=None, gt=0, le=1e6, description="seconds from a program's begin to its last answer, at most"
    )

    @property
    def depth(self) -> int:
        """Requests of a program that follow each other, at least."""
        return 1

    @abstractmethod
    def calls(self, draw: Draw, fresh: Fresh, prefix: tuple[int, ...], random: np.random.Generator) -> Calls:
        """The requests of one program.

        Args:
            draw: draws the lengths of a request, system prompt included, tokens.
            fresh: makes prefix ids.
            prefix: ids of the system prompt.
            random: generator of the program's own draws.
        """
