"""The kernel of the loss."""

from typing import Literal

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen

Value = Literal[
    "fused", "fused-32", "native", "eager", "torch", "torch-held", "torch-16", "chunked", "log-probabilities"
]


class StatedCrossEntropy(Partial):
    """As a plan states it."""

    cross_entropy: Value | None = Field(
        default=None,
        description="loss kernel; fused-32 reads logits cast to 32 bits, eager is Megatron-LM's over the "
        "ranks' shards of the vocabulary, native the same in compiled pieces, torch is log-softmax and "
        "negative log-likelihood, torch-held the same where the caller keeps the logits during the backward "
        "pass, torch-16 the same over 16-bit logits, chunked the same over pieces of the sequence with the "
        "output layer inside, log-probabilities those of the tokens and the entropy piece by piece in torch "
        "kernels, which compute the logits again in the backward pass",
    )


@chosen
class ChosenCrossEntropy:
    """As a release does it."""

    cross_entropy: Value = "eager"


LEVER = Lever("cross_entropy", words=lambda value: f"{value} loss")
