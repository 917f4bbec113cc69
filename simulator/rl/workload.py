"""The keys of a step of post-training."""

from typing import Any, Literal

from pydantic import Field, model_validator

from core.loading import Strict
from core.quantities import Tokens
from simulator.lengths import AnyLengths
from simulator.workload import Precision

KIND = "rl"


class RlWorkload(Strict):
    """What one step generates and trains on."""

    kind: Literal["rl"] = Field(description="says that the question is one of post-training")
    algorithm: str | dict[str, Any] = Field(
        "grpo", description="passes over the answers: name (`show algorithms`), path or mapping"
    )
    prompts: int = Field(ge=1, le=2**20, description="prompts of a step")
    samples: int = Field(1, ge=1, le=2**16, description="answers to a prompt")
    input: AnyLengths = Field(description="prompt tokens")
    output: AnyLengths = Field(description="answer tokens")
    mini_batch: int | None = Field(
        None, ge=1, le=2**26, description="answers of an optimizer step; default: all of a step"
    )
    epochs: int = Field(1, ge=1, le=64, description="times that the updates go over the answers")
    sampled: float = Field(
        1.0, ge=1, le=100, description="answers generated over those trained on (filters that sample again)"
    )
    seq_len: Tokens | None = Field(
        None, description="tokens of a row of packed answers; default: the longest prompt with its answer"
    )
    precision: Precision = Field("bf16", description="number format of the training's matrix products")

    @model_validator(mode="after")
    def _in_mini_batches(self) -> "RlWorkload":
        if self.mini_batch and self.answers % self.mini_batch:
            raise ValueError(
                f"{self.prompts} prompts x {self.samples} samples = {self.answers} answers are no multiple "
                f"of mini_batch ({self.mini_batch})"
            )
        if self.seq_len is not None and self.seq_len < self.longest:
            raise ValueError(f"seq_len ({self.seq_len}) is below the longest answer ({self.longest})")
        return self

    @property
    def answers(self) -> int:
        """Answers that a step trains on."""
        return self.prompts * self.samples

    @property
    def updates(self) -> int:
        """Optimizer steps of a step."""
        return self.epochs * (self.answers // (self.mini_batch or self.answers))

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its answer."""
        return self.input.longest() + self.output.longest()

    @property
    def mean(self) -> float:
        """Mean tokens of a prompt with its answer."""
        return self.input.mean() + self.output.mean()
