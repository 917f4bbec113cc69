"""Steady states of cases whose shapes draft differently: one array call for each kind of drafts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.arrays import distinct
from simulator.models import Model
from simulator.serving.question.speculation import TEXT, Speculation, published_for
from simulator.serving.steps.costs import engine_of
from simulator.serving.steps.speculation_cases import SpeculativeCases
from simulator.serving.steps.step_arrays import StepArrays, StepCases

Ints = NDArray[np.int64]
Steps = StepCases | SpeculativeCases

MTP_TOKENS = (1, 2, 3)
"""Tokens that heads of multi-token prediction propose, as engines document them: vLLM recommends 1 or 2,
SGLang and TensorRT-LLM 3 (vllm-project/recipes GLM/GLM.md, Qwen/Qwen3-Next.md; sgl-project/sglang
docs/basic_usage/deepseek_v3.md; TensorRT-LLM examples/configs/database)."""


def usual_drafts(model: Model, engine: str) -> tuple[Speculation | None, ...]:
    """Drafts that a search tries: none, and the heads that the model has, with published acceptance.

    An engine whose kinds of speculation are not known may run all of them.
    """
    serving_engine = engine_of(engine, Path(), "engine")
    heads = (
        MTP_TOKENS
        if model.mtp_layers and (serving_engine.runs("mtp") or not serving_engine.drafts.value)
        else ()
    )
    return (None, *(sourced(Speculation(kind="mtp", tokens=tokens), model) for tokens in heads))


def published_heads(model: Model, engine: str) -> list[Speculation]:
    """Drafts of published heads beside the model's checkpoint, which the engine runs; acceptance assumed."""
    serving_engine = engine_of(engine, Path(), "engine")
    return [Speculation(kind=kind) for kind in model.draft_heads if serving_engine.runs(kind)]


def sourced(drafts: Speculation | None, model: Model) -> Speculation | None:
    """Drafts with the acceptance that a source states for the model; others stay assumed."""
    if drafts is None or not drafts.assumed:
        return drafts
    positions = _published(drafts, model)
    return drafts if positions is None else drafts.model_copy(update={"acceptance_by_position": positions})


def measured_on(drafts: Speculation, model: Model) -> str:
    """What the published acceptance of drafts was measured on, in words, where it is not text; else empty."""
    published = published_for(drafts.kind, model.name)
    if published is None or published.task == TEXT:
        return ""
    return f" on {published.task}" if drafts.acceptance_by_position == _published(drafts, model) else ""


def _published(drafts: Speculation, model: Model) -> list[float] | None:
    """Acceptance of the proposals that a source states for the model."""
    published = published_for(drafts.kind, model.name)
    return None if published is None else published.by_position.value[: drafts.tokens]


class DraftedSteps:
    """Step times of shapes by number, with what each drafts.

    Args:
        steps: joined tables of the shapes.
        drafts: speculation of each shape.
        layers: layers of the model.
    """

    def __init__(self, steps: StepArrays, drafts: Sequence[Speculation | None], layers: int) -> None:
        self.steps, self._layers = steps, layers
        self._kinds = tuple(dict.fromkeys(map(_key, drafts)))
        self._drafts = dict(zip(map(_key, drafts), drafts, strict=True))
        self._kind = np.array([self._kinds.index(key) for key in map(_key, drafts)], np.int64)
        self._queries = np.array([1 if kind is None else kind.queries for kind in drafts], np.int64)

    def queries(self, shape: Ints) -> Ints:
        """Tokens of a sequence that a decode step of each case computes."""
        return self._queries[shape]

    def evaluate(
        self, shape: Ints, call: Callable[[Ints | slice, Steps], Any], apart: NDArray[np.bool_] | None = None
    ) -> Any:
        """Arrays, or a dataclass of arrays, of all cases: a call for the cases of each kind of drafts.

        Args:
            shape: number of the shape of each case.
            call: takes numbers of cases and their step times.
            apart: cases that need another call than the rest, shape (cases,); by default none.
        """
        kind = self._kind[shape]
        if apart is not None:
            kind = kind + len(self._kinds) * apart
        present = distinct(kind)
        if len(present) <= 1:
            return call(slice(None), self._cases(int(present[0]) if len(present) else 0, shape))
        parts = [(np.flatnonzero(kind == number), int(number)) for number in present]
        results = [(index, call(index, self._cases(number, shape[index]))) for index, number in parts]
        first = results[0][1]
        if not is_dataclass(first):
            return _joined(results, len(shape))
        names = [field.name for field in fields(first)]
        return type(first)(
            **{
                name: _joined([(index, getattr(part, name)) for index, part in results], len(shape))
                for name in names
            }
        )

    def _cases(self, kind: int, shape: Ints) -> Steps:
        drafts = self._drafts[self._kinds[kind % len(self._kinds)]]
        cases = self.steps.cases(shape)
        return cases if drafts is None else SpeculativeCases(cases, drafts, self._layers)


def _key(drafts: Speculation | None) -> str:
    return "" if drafts is None else drafts.model_dump_json()


def _joined(parts: Sequence[tuple[Ints, NDArray[Any]]], count: int) -> NDArray[Any]:
    """Parts in the order of their cases, which the last axis counts."""
    first = parts[0][1]
    joined = np.empty((*first.shape[:-1], count), first.dtype)
    for index, values in parts:
        joined[..., index] = values
    return joined
