"""Speculative decoding of a pool: how drafts are proposed, verified and accepted.

A draft proposes ``tokens`` tokens; the target verifies all of them and adds one token in a single step
(Leviathan et al., arXiv 2211.17192). Kinds differ in the cost of a proposal: a draft model, heads behind the
target's last layer (EAGLE, Medusa, multi-token prediction), or tokens looked up (n-grams, lookahead).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field, model_validator

from core.cache import read_shipped
from core.errors import InputError, UnknownNameError
from core.loading import Strict, build
from core.quantities import Duration
from simulator.serving.engines.figure import Figure
from simulator.serving.question.draft_budget import Verified, verified
from simulator.serving.question.token_tree import grown

FILE = Path(__file__).with_name("speculation.yaml")

Kind = Literal[
    "draft-model",
    "eagle",
    "eagle3",
    "medusa",
    "hidden-transfer",
    "mtp",
    "ngram",
    "copied",
    "jacobi",
    "lookahead",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
DRAFT_MODEL: Kind = "draft-model"
LONGEST_CHAIN = 64
"""Most proposals in a row that asynchronous drafts may have accepted."""


class PublishedAcceptance(Strict):
    """Acceptance by position that was measured on some models."""

    models: list[str]
    """Names in the catalogue."""
    task: str
    """What was generated: text, code, or answers to random tokens."""
    by_position: Figure[list[float]]
    """Probability that proposal 1, 2, ... is accepted after those before it; the last for later ones."""
    spread: Annotated[float, Field(ge=0, lt=0.5)]
    """Standard deviation of these probabilities between runs."""


class DraftingDefaults(Strict):
    """Defaults of one kind, each with its source."""

    tokens: Figure[int]
    acceptance: Figure[float]
    passes: Literal["per-token", "per-step", "none"]
    layers: Figure[float]
    host_s: Figure[float]
    pass_s: Figure[float] | None = None
    verified: Figure[int] | None = None
    published: tuple[PublishedAcceptance, ...] = Field((), strict=False)


@cache
def drafting_defaults() -> Mapping[str, DraftingDefaults]:
    """Defaults by kind."""
    return {
        name: build(DraftingDefaults, values, f"{FILE}: {name}")
        for name, values in read_shipped(FILE).items()
    }


TEXT, CODE, RANDOM = "text", "code", "random tokens"
"""Tasks of published acceptances."""
STANDS_FOR = {TEXT: (TEXT, CODE), CODE: (CODE, TEXT), RANDOM: (RANDOM,)}
"""Tasks whose published acceptance a task takes, the first that a source states."""


def published_for(kind: Kind, model: str, task: str = TEXT) -> PublishedAcceptance | None:
    """What a source states for a kind on a model of the catalogue and a task, or one that stands for it."""
    by_task = {entry.task: entry for entry in drafting_defaults()[kind].published if model in entry.models}
    return next((by_task[name] for name in STANDS_FOR[task] if name in by_task), None)


def published_acceptance(kind: Kind, model: str, task: str = TEXT) -> list[float] | None:
    """Acceptance by position that a source states for a kind on a model of the catalogue and a task."""
    published = published_for(kind, model, task)
    return None if published is None else published.by_position.value


class Speculation(Strict):
    """Speculation of a pool."""

    kind: Kind = Field(
        default=DRAFT_MODEL, description=f"how tokens are proposed: {', '.join(KINDS[:-1])} or {KINDS[-1]}"
    )
    draft: str | dict[str, Any] | None = Field(
        default=None,
        description="draft model: catalogue name, path or mapping; needed by `draft-model` alone",
    )
    tokens: int = Field(
        default=0,
        ge=0,
        le=64,
        description="tokens proposed in a step, one after the other; 0: the kind's default",
    )
    acceptance: Annotated[float, Field(ge=0, lt=1)] | list[Annotated[float, Field(ge=0)]] | None = Field(
        default=None,
        description="probability that a proposal is accepted after those before it; or a list of how often "
        "0, 1, ... `tokens` of them are; default: the kind's, an assumption",
    )
    acceptance_by_position: list[Annotated[float, Field(ge=0, le=1)]] | None = Field(
        default=None,
        description="probability that proposal 1, 2, ... is accepted after those before it, instead of "
        "`acceptance`; the last one holds for later positions",
    )
    verified: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="tokens of a sequence that the target computes in a step: nodes of a tree; default: "
        "`tokens` + 1, or the kind's",
    )
    passes: int | None = Field(
        default=None, ge=0, le=64, description="passes of the draft in a step; default: by kind"
    )
    layers: float | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="cost of a pass of draft heads, in layers of the target; default: by kind",
    )
    expanded: bool = Field(
        default=False,
        description="verify each proposal as a sequence that reads its KV again (vLLM before 0.6.3)",
    )
    asynchronous: bool = Field(
        default=False,
        description="a draft on devices of its own keeps a pipeline full of runs of `tokens` proposals, "
        "and a rejection cancels the runs behind it (PipeInfer)",
    )
    budget: int | None = Field(
        default=None,
        ge=1,
        le=2**20,
        description="tokens of a step that verify proposals of all sequences; likeliest first (TETRIS)",
    )
    spread: float = Field(
        default=0.0,
        ge=0,
        lt=0.5,
        description="standard deviation of the acceptance between proposals, with `budget`; 0: all alike",
    )
    branches: int = Field(
        default=1,
        ge=1,
        le=32,
        description="choices of a token that trees of a `budget` may hold, `tokens` deep (DySpec); 1: chains",
    )
    sibling: float = Field(
        default=0.3,
        ge=0,
        lt=1,
        description="probability that a next choice is accepted where those before it are not, with "
        "`branches` (assumed)",
    )
    host: Duration | None = Field(
        default=None, description="host time of a step for drafts and verification; default: by kind"
    )

    @property
    def defaults(self) -> DraftingDefaults:
        """Defaults of the kind."""
        return drafting_defaults()[self.kind]

    @property
    def assumed(self) -> bool:
        """Whether the acceptance is the kind's default."""
        return self.acceptance is None and self.acceptance_by_position is None

    @property
    def queries(self) -> int:
        """Tokens of a sequence that the target computes in a step."""
        if self.verified is not None:
            return self.verified
        kind = self.defaults.verified
        return kind.value if kind is not None else self.tokens + 1

    @property
    def draft_passes(self) -> int:
        """Passes of the draft in a step."""
        if self.passes is not None:
            return self.passes
        return {"per-token": self.tokens, "per-step": 1, "none": 0}[self.defaults.passes]

    @property
    def draft_layers(self) -> float:
        """Cost of a pass of draft heads, in layers of the target."""
        return self.defaults.layers.value if self.layers is None else self.layers

    @property
    def pass_s(self) -> float:
        """Time of a pass of draft heads beside its layers, s."""
        return 0.0 if self.defaults.pass_s is None else self.defaults.pass_s.value

    @property
    def host_s(self) -> float:
        """Host time of a step beside the engine's own, s."""
        return self.defaults.host_s.value if self.host is None else self.host

    @property
    def chain(self) -> int:
        """Most proposals that are accepted in a row."""
        return LONGEST_CHAIN if self.asynchronous else self.tokens

    def shares(self) -> np.ndarray:
        """Probability of 0 to ``chain`` accepted proposals, shape (chain + 1,)."""
        if self.acceptance_by_position is not None:
            last = self.acceptance_by_position[-1:] * self.chain
            positions = [*self.acceptance_by_position, *last][: self.chain]
            reached = np.cumprod([1.0, *positions])
            return reached - np.append(reached[1:], 0.0)
        acceptance = self.defaults.acceptance.value if self.acceptance is None else self.acceptance
        if isinstance(acceptance, list):
            weights = np.zeros(self.chain + 1)
            weights[: len(acceptance)] = acceptance[: self.chain + 1]
            return weights / weights.sum()
        reached = acceptance ** np.arange(self.chain + 1)
        return reached - np.append(reached[1:], 0.0)

    def in_batch(self, sequences: int) -> Verified:
        """Proposals that a batch of this size verifies, and how many of them are accepted."""
        if self.budget is None:
            return Verified(float(self.queries), self.shares())
        acceptances = self.defaults.acceptance.value if self.acceptance is None else self.acceptance
        acceptance = float(np.mean(acceptances))
        if self.branches > 1:
            tree = self.sibling, self.tokens, self.branches
            return grown(acceptance, self.spread, *tree, self.budget, sequences)
        return verified(acceptance, self.spread, self.tokens, self.budget, sequences)

    def mean(self) -> float:
        """Tokens that a step yields on average."""
        return float(self.shares() @ np.arange(1, self.chain + 2))

    @model_validator(mode="before")
    @classmethod
    def _tokens_by_kind(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        kind = values.get("kind", DRAFT_MODEL)
        if not values.get("tokens") and kind in KINDS:
            return {**values, "tokens": drafting_defaults()[kind].tokens.value}
        return values

    @model_validator(mode="after")
    def _draft_fits_the_kind(self) -> Speculation:
        if (self.draft is None) == (self.kind == DRAFT_MODEL):
            raise ValueError(
                "`draft` names the draft model of kind draft-model"
                if self.draft is None
                else f"`draft` belongs to kind draft-model, found kind {self.kind}"
            )
        if self.asynchronous and (self.kind != DRAFT_MODEL or self.expanded or self.verified is not None):
            raise ValueError("`asynchronous` needs kind draft-model, without `expanded` and `verified`")
        if self.asynchronous and isinstance(self.acceptance, list):
            raise ValueError(
                "`asynchronous` drafts go on after `tokens`; give `acceptance` as one number, or by position"
            )
        if self.budget is not None and (self.asynchronous or self.expanded or self.verified is not None):
            raise ValueError("`budget` divides chains; it excludes `asynchronous`, `expanded` and `verified`")
        if self.budget is not None and (isinstance(self.acceptance, list) or self.acceptance_by_position):
            raise ValueError("`budget` needs `acceptance` as one number")
        if self.spread and self.budget is None:
            raise ValueError("`spread` tells proposals of a `budget` apart; give one")
        if self.branches > 1 and self.budget is None:
            raise ValueError(
                "`branches` grow trees under a `budget`; give one, or `verified` for a fixed tree"
            )
        mean = self.acceptance if isinstance(self.acceptance, float) else self.defaults.acceptance.value
        if self.spread**2 >= mean * (1.0 - mean) and self.spread:
            widest = (mean * (1.0 - mean)) ** 0.5
            raise ValueError(f"`spread` must be below {widest:.3g} with an acceptance of {mean:g}")
        if self.acceptance is not None and self.acceptance_by_position is not None:
            raise ValueError("`acceptance` and `acceptance_by_position` exclude each other")
        for name in ("acceptance", "acceptance_by_position"):
            values = getattr(self, name)
            if isinstance(values, list) and not (sum(values) > 0 if name == "acceptance" else values):
                raise ValueError(f"`{name}` is empty or all zero")
        positions = len(self.acceptance_by_position or ())
        if positions > self.chain:
            raise ValueError(f"`acceptance_by_position` has {positions} positions for {self.tokens} drafts")
        if self.queries <= self.tokens and self.verified is not None:
            raise ValueError(f"`verified` ({self.verified}) must exceed `tokens` ({self.tokens})")
        return self


def read_speculation(text: str) -> dict[str, Any]:
    """The keys of ``KIND[:TOKENS]`` (`mtp`, `eagle3:3`); any other word names a draft model.

    Raises:
        UnknownNameError: tokens of something that is no kind.
        InputError: tokens are not a number.
    """
    name, colon, tokens = text.partition(":")
    keys: dict[str, Any] = {"kind": name} if name in KINDS else {"draft": name}
    if not name:
        raise UnknownNameError("speculation", name, KINDS, "--speculate")
    if colon:
        if not tokens.isdigit() or not int(tokens):
            raise InputError(f"KIND:TOKENS needs a number of tokens, found {tokens!r}", "--speculate")
        keys["tokens"] = int(tokens)
    return keys


def check_heads(speculation: Speculation, mtp_layers: float, model: str, where: str) -> None:
    """Refuse multi-token prediction on a model without heads.

    Raises:
        InputError: the model has no heads.
    """
    if speculation.kind == "mtp" and not mtp_layers:
        raise InputError(
            f"{model} has no heads of multi-token prediction (`mtp_layers`); eagle3 trains its own", where
        )
