"""Programs by kind: one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from simulator.serving.workload.programs.agent import Agent
from simulator.serving.workload.programs.base import SPAN, Call, Program
from simulator.serving.workload.programs.certainty import Certainty
from simulator.serving.workload.programs.conversation import Conversation
from simulator.serving.workload.programs.samples import Samples
from simulator.serving.workload.programs.single import Single
from simulator.serving.workload.programs.text2sql import Text2Sql
from simulator.serving.workload.programs.tree_search import TreeSearch
from simulator.serving.workload.programs.verified import VerifiedAnswers

KINDS: tuple[type[Program], ...] = (
    Single,
    Conversation,
    Samples,
    Agent,
    Text2Sql,
    Certainty,
    TreeSearch,
    VerifiedAnswers,
)
programs = {kind.model_fields["kind"].default: kind for kind in KINDS}

if TYPE_CHECKING:
    AnyProgram = Program
else:
    AnyProgram = Annotated[Union[KINDS], Field(discriminator="kind")]  # noqa: UP007

__all__ = ["SPAN", "AnyProgram", "Call", "Program", "programs"]
