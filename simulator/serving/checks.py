"""Senseless combinations of policies in a serving question, refused with the reason."""

from __future__ import annotations

from hwmodels.errors import InputError
from simulator.serving.question.deployment import Deployment
from simulator.serving.workload import Serving
from simulator.serving.workload.programs import SPAN


def check_tiers(
    serving: Serving, deployment: Deployment, engine: str, token_bytes: float, block_tokens: int, where: str
) -> None:
    """Refuse tiers that cannot hold what they are for, and documents that nothing finds.

    Args:
        serving, deployment: of the question.
        engine: name of the first pool's preset, for the message.
        token_bytes: KV of one token of a replica, B.
        block_tokens: tokens of a KV block.
        where: name of the source in errors.

    Raises:
        InputError: a tier below one unit; documents without tiers that state `recompute`.
    """
    chunks = serving.chunks
    if chunks is not None and not deployment.shares_links:
        raise InputError(
            f"{engine} finds prefixes only, not documents anywhere in a prompt; state `recompute` in "
            "deployment.tiers (CacheBlend: 0.15, APE: 0; 1 computes all)",
            f"{where}: workload.chunks",
        )
    if not deployment.shares_links:
        return
    unit = SPAN if chunks is None else chunks.tokens
    unit = max(unit, block_tokens)
    for number, tier in enumerate(deployment.tiers):
        if tier.gigabytes * 1e9 < unit * token_bytes:
            raise InputError(
                f"a tier of {tier.gigabytes:g} GB holds no unit of {unit:,} tokens "
                f"({unit * token_bytes / 1e9:.3g} GB)",
                f"{where}: deployment.tiers.{number}.gigabytes",
            )
