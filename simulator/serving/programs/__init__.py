"""Programs by kind: one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from simulator.serving.programs.agent import Agent
from simulator.serving.programs.base import SPAN, Call, Program
from simulator.serving.programs.conversation import Conversation
from simulator.serving.programs.samples import Samples
from simulator.serving.programs.single import Single

KINDS: tuple[type[Program], ...] = (Single, Conversation, Samples, Agent)
programs = {kind.model_fields["kind"].default: kind for kind in KINDS}

if TYPE_CHECKING:
    AnyProgram = Program
else:
    AnyProgram = Annotated[Union[KINDS], Field(discriminator="kind")]  # noqa: UP007

__all__ = ["SPAN", "AnyProgram", "Call", "Program", "programs"]
