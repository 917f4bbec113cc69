"""Step times of a decoder that attends to the output of its encoder (T5, BART, Whisper).

A prompt is encoded whole in one step, where the keys and values of all cross layers are projected, and the
decoder's first token follows. Its KV is that of the decoder's own tokens and of the encoder's output, as many
bytes a token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.errors import InputError
from hwmodels.cluster import Cluster
from simulator.models import Model
from simulator.ops import Batch
from simulator.ops.cross import encoded_keys
from simulator.serving.engines import Engine, engines
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.case_mechanism import Array, CaseBatch
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.step_arrays import StepArrays
from simulator.serving.steps.step_times import Chunk, RankBatch, StepTimes, Stretch
from simulator.serving.steps.table import IterationTable


class EncoderPrice(StepPrice):
    """Price of an encoder's pass, with the keys and values of the layers of its decoder.

    Args:
        decoder: the model.
        cluster, pool, engine: as of `StepPrice`.
    """

    def __init__(self, decoder: Model, cluster: Cluster, pool: Pool, engine: Engine) -> None:
        # The decoder's token of the same step has the host's time.
        engine = engine.model_copy(update={"step_s": engine.step_s.model_copy(update={"value": 0.0})})
        super().__init__(decoder.encoder_alone, cluster, pool.of(decoder), engine)
        self.decoder = decoder

    def inside_stages(self, tokens: ArrayLike, attention: bool = False) -> Array:
        """See `StepPrice.inside_stages`; keys and values are attention's too."""
        count = np.asarray(tokens, dtype=np.float64)
        rank = replace(self._rank(Batch.prefill(1.0, count)), model=self.decoder)
        keys = self.decoder.layers * self._seconds(encoded_keys(rank, count))
        return super().inside_stages(tokens, attention) + self.site.factor("products") * keys


def encoder_table(model: Model, cluster: Cluster, pool: Pool, engine: Engine, budget: int) -> IterationTable:
    """Step times of a model's encoder.

    Args:
        model: the decoder.
        cluster, pool, engine: of the replica.
        budget: tokens of a step at most.
    """
    price, longest = EncoderPrice(model, cluster, pool, engine), model.encoder_alone.max_sequence
    return IterationTable(price, budget, 1, min(budget, longest), longest_chunk=min(budget, longest))


class PromptSteps:
    """`StepTimes` of a decoder whose prompts are encoded in the step that admits them.

    Args:
        decoder: step times of the decoder.
        encoder: step times of the encoder.
    """

    def __init__(self, decoder: StepTimes, encoder: IterationTable) -> None:
        self.decoder, self.encoder, self.stages = decoder, encoder, decoder.stages

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """See `StepTimes.step`."""
        if not prefills:
            return self.decoder.step((), decodes, kv_tokens, queries)
        sequences, keys = decodes + len(prefills), kv_tokens + sum(map(sum, prefills)) + len(prefills)
        return self.encoder.step(prefills, 0, 0) + self.decoder.step((), sequences, keys, queries)

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """See `StepTimes.stretch`."""
        return self.decoder.stretch(decodes, kv_tokens, queries)

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """See `StepTimes.lockstep`; no model with experts has an encoder."""
        return max(self.step(*rank, queries) for rank in ranks)

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """See `StepTimes.watts`."""
        return self.decoder.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The decoder's parts, and the encoder."""
        new = len(prefills)
        parts = self.decoder.parts((), decodes + new, kv_tokens + sum(map(sum, prefills)) + new)
        return {**parts, "encoder": self.encoder.step(prefills, 0, 0)}


class PromptArrays:
    """`PromptSteps` in the array lookups of joined tables, for steady states.

    Args:
        encoders: step times of the encoder of each table's replica.
    """

    def __init__(self, encoders: Sequence[IterationTable]) -> None:
        self.encoders = StepArrays(encoders)

    def on(self, which: NDArray[np.int64]) -> PromptsOfCases:
        """See `ArrayMechanism.on`."""
        return PromptsOfCases(self.encoders, which)


class PromptsOfCases:
    """Encoded prompts of an array of cases."""

    def __init__(self, encoders: StepArrays, which: NDArray[np.int64]) -> None:
        self._encoder = encoders.cases(which)

    def seconds(self, times: Callable[[Any], Array], batch: CaseBatch, cases: Any) -> Array:
        """Seconds of steps; see `CaseMechanism.seconds`. The decoder's tokens of prompts are decodes."""
        queries, before, sequences, keys = (
            np.asarray(size, dtype=np.float64)
            for size in (batch.queries, batch.before, batch.sequences, batch.keys)
        )
        if not queries.any():
            return times(cases)
        chunks = np.asarray(batch.chunks, dtype=np.float64)
        running = sequences + chunks
        mean = (sequences * keys + queries + chunks * before) / np.maximum(running, 1e-9)
        encoded = self._encoder.mixed_seconds(queries, before, 0.0, 1.0, chunks)
        return encoded + cases.decode_seconds(running, np.maximum(mean, 1.0))


def check_encoder(model: Model, pool: Pool, engine: Engine, where: str) -> None:
    """Refuse a decoder with an encoder on an engine that lacks it, and layouts that are not modelled.

    Args:
        model: of the pool.
        pool: of the deployment.
        engine: its engine.
        where: key path of the pool.

    Raises:
        InputError: the reason, and engines that run the model.
    """
    if model.encoder is None:
        return
    if not engine.has_encoder(model.family):
        others = [name for name in engines.names() if engines.get(name).has_encoder(model.family)]
        raise InputError(
            f"{engine.name} runs no decoder with an encoder of kind {model.family}; {', '.join(others)} do",
            f"{where}.engine",
        )
    unlike = {"pipeline": pool.pipeline > 1, "speculation": pool.speculation, "overlap": pool.overlap}
    unlike |= {"state": pool.state, "stream": pool.stream, "finetuning": pool.finetuning}
    unlike |= {"role": pool.role != "mixed"}
    for key, stated in unlike.items():
        if stated:
            raise InputError(
                f"{model.name}: a decoder with an encoder is modelled in one pool without {key}",
                f"{where}.{key}",
            )
