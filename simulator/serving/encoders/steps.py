"""Step times of a replica that encodes the images of its prompts itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from core.errors import InputError
from hwmodels.cluster import Cluster
from simulator.models import Model
from simulator.models.towers import Shape
from simulator.models.towers.pictures import Pictures
from simulator.serving.encoders.times import EncoderTimes
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.costs import engine_of
from simulator.serving.steps.step_times import Array, Chunk, RankBatch, ReplicaCosts, StepTimes, Stretch


class EncodingSteps:
    """`StepTimes` of a replica whose steps encode the pictures that their chunks reach.

    A picture is encoded in the step whose chunk begins it, with all others of its shape in that step, before
    the language model runs (vLLM 0.19, scheduler.py, _try_schedule_encoder_inputs; SGLang 0.5.6,
    mm_utils.py). Tokens that a prefix cache holds skip it. Pictures stand between the system prompt and the
    text.

    Args:
        target: step times of the language model.
        pictures: of each request.
        times: of the tower.
        before: tokens in front of the first picture.
    """

    def __init__(self, target: StepTimes, pictures: Pictures, times: EncoderTimes, before: int) -> None:
        self.target, self.stages, self.times = target, target.stages, times
        self._starts: list[tuple[int, Shape]] = []
        place = before
        for count, shape in pictures.groups:
            for _ in range(count):
                self._starts.append((place, shape))
                place += shape.tokens
        self._end = place

    def encoder_s(self, prefills: Sequence[Chunk]) -> float:
        """Seconds of the tower in a step with these chunks."""
        reached: dict[Shape, int] = {}
        for queries, computed in prefills:
            if computed < self._end:
                for start, shape in self._starts:
                    if computed <= start < computed + queries:
                        reached[shape] = reached.get(shape, 0) + 1
        return sum(self.times.seconds(count, shape) for shape, count in reached.items())

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """See `StepTimes.step`."""
        seconds = self.target.step(prefills, decodes, kv_tokens, queries)
        return seconds + self.encoder_s(prefills) if prefills else seconds

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """See `StepTimes.stretch`; decodes see no new picture."""
        return self.target.stretch(decodes, kv_tokens, queries)

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """See `StepTimes.lockstep`; the slowest tower delays all ranks."""
        slowest = max((self.encoder_s(rank.prefills) for rank in ranks), default=0.0)
        return self.target.lockstep(ranks, queries) + slowest

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the language model's work in the step's own time."""
        return self.target.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The target's parts, and the encoder."""
        parts = self.target.parts(prefills, decodes, kv_tokens)
        return {**parts, "encoder": self.encoder_s(prefills)}


def encoding_costs(
    costs: ReplicaCosts,
    model: Model,
    cluster: Cluster,
    pool: Pool,
    first_rank: int,
    pictures: Pictures,
    before: int,
    folder: Path,
    where: str,
) -> ReplicaCosts:
    """Costs of a replica that encodes the pictures of its prompts itself.

    Decode pools see no images, and keep their costs. The tower's memory is the language model's own: engines
    build it with or without images (``simulator.serving.steps.tower_memory``).

    Args:
        costs: of the language model.
        model, cluster, pool, first_rank: of the replica.
        pictures: of each request.
        before: tokens in front of the first picture.
        folder, where: base of relative paths, and key path of the deployment for errors.

    Raises:
        InputError: a model without a tower, or steps that hold fine-tuning tokens.
    """
    if pool.role == "decode":
        return costs
    if model.tower is None or pool.finetuning is not None:
        problem = (
            "fine-tuning beside images is not modelled" if model.tower else f"{model.name} sees no images"
        )
        raise InputError(f"pool {pool.name or pool.role}: {problem}", where)
    used = cluster.resized(first_rank + pool.devices)
    engine = engine_of(pool.engine, folder, f"{where}.engine")
    times = EncoderTimes(pictures.tower, model, used, pool, engine)
    return replace(costs, steps=EncodingSteps(costs.steps, pictures, times, before))
