"""What InferenceX's rows leave out of its servers: flags, prediction heads, and the slow start of runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from core.loading import Strict, build, read_mapping
from core.quantities import Positive
from evidence.serving.case import Setup
from simulator.serving.question.deployment import NO_GRAPHS

FILE = Path(__file__).with_name("inferencex.yaml")


class Flags(Strict):
    """Flags of a server; None and 0 stand for the engine's default."""

    token_budget: int | None = None
    budget_prompts: int = 0
    """Token budget in prompts of the nominal length, where the scripts size it so; 0 otherwise."""
    memory_share: Positive | None = None
    kv: Literal["fp8"] | None = None
    exchange: Literal["all-gather", "deepep"] | None = None
    expert_kernels: Literal["triton", "marlin"] | None = None
    product_kernels: Literal["flashinfer"] | None = None
    activations: Literal["fp8"] | None = None
    """Number format of the experts' inputs."""
    spreads_experts: bool = False
    """Whether experts lie on all ranks, whatever degree the row lists."""
    spreads_attention: bool = False
    """Whether every GPU of a worker is an attention rank, where the row has a tensor-parallel group."""
    eager: bool = False
    """Whether the server captures no graphs."""
    largest_graph: int = 0
    """Sequences of a rank in the largest captured graph."""
    poll_steps: int = 0
    """Decode steps between two looks at the queue of new requests."""
    poll_steps_from_16: int = 0
    """The same with 16 clients or more."""
    balance_timeout_steps: int = 0
    """Decode steps after which attention ranks take new prompts even if some rank has none; 0: at once."""
    balance_wait_steps: int = 0
    """Decode steps that they wait for further prompts once all have one."""
    drafts: int = 0
    """Tokens that prediction heads draft, in configurations whose rows do not state them."""
    start_s: float = 0.0
    """Seconds that a run's first burst waits for kernels to be compiled or tuned."""

    def server(self, serving: Setup) -> Setup:
        """A server under these flags, where its row leaves them out."""
        pool = serving.pool
        fields: dict[str, Any] = {
            "kv": pool.kv or self.kv,
            "exchange": self.exchange,
            "expert_kernels": self.expert_kernels,
            "product_kernels": self.product_kernels,
            "activations": pool.activations or self.activations,
        }
        if self.eager or self.largest_graph:
            fields["largest_graph"] = NO_GRAPHS if self.eager else self.largest_graph
        if self.spreads_experts and pool.expert == 1:
            fields["expert"] = pool.tensor * pool.data
        changed = {name: value for name, value in fields.items() if getattr(pool, name) != value}
        return serving.with_pool(**changed) if changed else serving

    def wait_steps(self, clients: float, ranks: int = 1, output: float = 0.0) -> int:
        """Decode steps between two looks at the queue.

        Attention ranks that balance their prompts look when all have one and some more steps went by, or when
        a count of steps ends (TensorRT-LLM, py_executor.py: ``_balance_adp_requests``). A client asks every
        ``output`` steps, and prompts come to a rank by chance. What is returned is the mean.

        Args:
            clients: of a replica.
            ranks: attention ranks.
            output: tokens of an answer.
        """
        if ranks > 1 and self.balance_timeout_steps:
            steps = np.arange(self.balance_timeout_steps + 1)
            all_have = (1.0 - np.exp(-steps * clients / (ranks * output))) ** ranks
            return round(float(np.sum(1.0 - all_have[:-1]) + self.balance_wait_steps * all_have[-1]))
        return self.poll_steps_from_16 if clients >= 16 else self.poll_steps


class ServerRule(Flags):
    """Flags of some servers, by the starts of their preset's version and device's name and by equal words."""

    engine: str
    version: str = ""
    gpu: str = ""
    weights: str = ""
    model: str = ""
    degrees: dict[str, int] = Field(default_factory=dict)
    source: str

    def fits(self, serving: Setup) -> bool:
        """Whether the rule is of a server."""
        engine, pool = serving.engine, serving.pool
        starts = (engine.version, self.version), (serving.cluster.device.name, self.gpu)
        words = (engine.engine, self.engine), (pool.stored, self.weights), (serving.model.name, self.model)
        return (
            all(text.startswith(start) for text, start in starts)
            and all(word in ("", text) for text, word in words)
            and all(getattr(pool, name) == degree for name, degree in self.degrees.items())
        )


class DecodeSlots(Strict):
    """Sequences of a decode rank in some runs of two pools, by engine, device, format, workers, clients."""

    engine: str = "tensorrt-llm"
    gpu: str
    weights: str
    workers: int
    tensor: int
    data: int
    clients: list[int]
    prompts_from: int = 0
    """Tokens of a prompt from which the rule counts."""
    slots: int
    source: str

    def fits(self, decode: Setup, workers: float, clients: float, prompt: float) -> bool:
        """Whether the rule is of a run; see `decode_slots`."""
        pool, engine = decode.pool, decode.engine.engine
        run = engine, decode.cluster.device.name, pool.stored, int(workers), pool.tensor, pool.data
        same = run == (self.engine, self.gpu, self.weights, self.workers, self.tensor, self.data)
        return same and int(clients) in self.clients and prompt >= self.prompts_from


DEFAULTS = Flags()


@cache
def _rules(section: str) -> list[ServerRule]:
    return [build(ServerRule, rule, f"{FILE}: {section}") for rule in read_mapping(FILE)[section]]


@cache
def _slots() -> list[DecodeSlots]:
    return [build(DecodeSlots, rule, f"{FILE}: decode_slots") for rule in read_mapping(FILE)["decode_slots"]]


def decode_slots(decode: Setup, workers: float, clients: float, prompt: float) -> int:
    """Sequences of a decode rank that the recipe of a run states; 0 where none is known.

    Args:
        decode: the replicas that decode.
        workers: their number.
        clients: of the whole run.
        prompt: tokens of a prompt.
    """
    return next((rule.slots for rule in _slots() if rule.fits(decode, workers, clients, prompt)), 0)


Section = Literal["rules", "speculating", "prefill_ranks", "decode_ranks", "starts"]


def flags_of(serving: Setup, section: Section = "rules") -> Flags:
    """What the first rule of a section that fits a server says of it."""
    return next((rule for rule in _rules(section) if rule.fits(serving)), DEFAULTS)
