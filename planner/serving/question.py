"""Input of a search for a serving deployment: model, devices, load, targets and free fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, log
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from core.errors import InputError, UnknownNameError
from core.loading import build
from hwmodels.cluster import Cluster
from planner.serving.offers import Offer, check_types, of_cluster
from planner.serving.request_sample import Sample, has_programs, sample
from simulator.models import Model
from simulator.models.towers.pictures import Pictures, pictures_of
from simulator.serving.adapters import make_kernel
from simulator.serving.question.adapters import Adapters
from simulator.serving.question.deployment import Pool
from simulator.serving.workload import Serving
from simulator.site import ServerSite

OBJECTIVES = ("goodput", "cost", "energy", "latency")
FIELDS = (
    "tensor",
    "data",
    "pipeline",
    "expert",
    "replicas",
    "weights",
    "kv",
    "speculation",
    "exchange",
    "overlap",
    "largest_graph",
    "clock_mhz",
    "power_cap_w",
    "token_budget",
    "max_sequences",
    "attention_ratio",
    "micro_batches",
)
"""Fields that may be fixed or limited."""
FORMATS = ("weights", "kv")
KINDS = {"speculation": "a kind of drafts", "exchange": "a kind of exchange", "overlap": "a kind of overlap"}
KINDS |= {"attention_ratio": "a ratio"}
APART = ("attention_ratio", "micro_batches")
"""Fields of attention on devices of its own."""
UNORDERED = (*FORMATS, *KINDS)
"""Fields that have no order."""


@dataclass(frozen=True)
class ServingQuestion:
    """One search.

    Attributes:
        model, cluster: what is served, on the devices in use; of several types, the first.
        workload: lengths, arrivals and targets; its mean rate is the load.
        engine: preset by name.
        objective: one of ``OBJECTIVES``.
        unasked: whether the objective is the default of a stated rate.
        fix: fields held at a value.
        limit: highest values of fields.
        split: whether prefill and decode pools are tried too.
        seed: seed of drawn lengths and arrivals.
        folder: base of the trace's relative path.
        offers: GPU types to choose from, sized to what is available; by default ``cluster`` alone.
        most_devices: devices of all types at most.
        watts: power of all devices at most, W.
        concurrency: requests in flight at any time, instead of a rate.
        named: whether replicas are described with their GPU type.
        policies: keys of the scenario's deployment that the steady state does not price, and runs keep.
        site: factors of a server that ``learn`` found, for replicas on its device.
        pools: roles of pools that are tried beside those that serve: attention.
    """

    model: Model
    cluster: Cluster
    workload: Serving
    engine: str
    objective: str = "goodput"
    unasked: bool = False
    fix: Mapping[str, Any] = field(default_factory=dict)
    limit: Mapping[str, Any] = field(default_factory=dict)
    split: bool = True
    seed: int = 0
    folder: Path = field(default_factory=Path)
    offers: tuple[Offer, ...] = ()
    most_devices: int | None = None
    watts: float | None = None
    concurrency: int | None = None
    named: bool = False
    policies: Mapping[str, Any] = field(default_factory=dict)
    site: ServerSite | None = None
    pools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise UnknownNameError("objective", self.objective, OBJECTIVES)
        for option in (self.fix, self.limit):
            for name in option:
                if name not in FIELDS:
                    raise UnknownNameError("field of a serving plan", name, FIELDS)
        for name in UNORDERED:
            if name in self.limit:
                what = KINDS.get(name, "a number format")
                raise InputError(f"is {what}, which has no order; fix it instead", f"limit.{name}")
        if self.rate is None and self.concurrency is None and self.objective != "goodput":
            raise InputError(f"objective {self.objective} needs a rate of arrivals", "workload.arrivals")
        if not self.workload.slo.has_targets and self.objective == "goodput":
            raise InputError(
                "objective goodput needs a target: ttft, tpot or e2e (--ttft 1s); with a rate, cost counts",
                "workload.slo",
            )
        self._check_trace()
        # The output token of an encoder is its answer's, at no position.
        full_length = self.prompt + (self.output if self.model.causal else 0)
        lengths = [("requests", full_length, self.model)]
        if encoder := self.model.encoder:
            lengths = [("prompts", self.prompt, encoder), ("outputs", self.output, self.model)]
        for part, tokens, taker in lengths:
            if tokens > taker.max_sequence:
                raise InputError(
                    f"{part} of {tokens:,.0f} tokens are longer than the "
                    f"{taker.max_sequence:,} that {self.model.name} takes",
                    "workload",
                )
        check_types(self.offers, "cluster")
        free = [offer.name for offer in self.types if not offer.usd_per_hour]
        if self.objective == "cost" and free:
            ways = "price_per_hour_usd" if not self.offers else f"write {free[0]}=COUNT@PRICE"
            raise InputError(
                f"objective cost needs a price; {', '.join(free)} has none ({ways})", "objective"
            )

    def _check_trace(self) -> None:
        """Refuse a trace too short for the share of requests that must meet the targets."""
        if self.workload.trace is None:
            return
        requests, share = len(self.sample.prompts), self.workload.slo.share
        if requests * (1.0 - share) < 1.0 and share < 1.0:
            needed = ceil(1.0 / (1.0 - share) - 1e-9)
            raise InputError(
                f"has {requests:,} requests; {100 * share:g} % of them rest on at least {needed:,}",
                "workload.trace",
            )

    @property
    def devices(self) -> int:
        """Devices that a deployment may use."""
        available = sum(offer.devices for offer in self.offers) or self.cluster.devices
        return available if self.most_devices is None else min(available, self.most_devices)

    @property
    def types(self) -> tuple[Offer, ...]:
        """GPU types to choose from."""
        return self.offers or (of_cluster(self.cluster),)

    @property
    def holds_attention(self) -> bool:
        """Whether decodes are held to attention on devices of its own."""
        return any(name in self.fix for name in APART)

    def at(self, offer: Offer) -> ServingQuestion:
        """The question on one GPU type."""
        named = self.named or len(self.types) > 1
        question = replace(self, cluster=offer.cluster, offers=(offer,), named=named)
        if "sample" in self.__dict__:
            question.__dict__["sample"] = self.sample
        return question

    @cached_property
    def adapters(self) -> Adapters | None:
        """Adapters of the requests that batches mix; others are left to the event engine."""
        stated = self.policies.get("adapters")
        if stated is None:
            return None
        adapters = build(Adapters, stated, "deployment.adapters")
        return adapters if make_kernel(adapters, "deployment.adapters").mixes else None

    @cached_property
    def sample(self) -> Sample:
        """Requests of the workload.

        Raises:
            InputError: they cannot be read, or are programs.
        """
        images = self.pictures.tokens if self.pictures else 0
        return sample(self.workload, self.seed, self.folder, self.model.longest_request, images)

    @cached_property
    def pictures(self) -> Pictures | None:
        """The pictures of a request; None without any.

        Raises:
            InputError: the model has no tower for them.
        """
        kind = "audio" if self.workload.audio else "images"
        return pictures_of(self.model, self.workload.audio or self.workload.images, f"workload.{kind}")

    @property
    def prompt(self) -> float:
        """Mean prompt tokens, the shared prefix and images counted."""
        if self.workload.input is None or self.programs:
            return float(self.sample.prompts.mean())
        prefix = self.workload.prefix.tokens if self.workload.prefix else 0
        images = self.pictures.tokens if self.pictures else 0
        return prefix + images + self.workload.input.mean()

    @property
    def output(self) -> float:
        """Mean output tokens."""
        return (
            float(self.sample.outputs.mean())
            if self.workload.output is None or self.programs
            else self.workload.output.mean()
        )

    @cached_property
    def repeated(self) -> float:
        """Mean prompt tokens that a prefix cache without limit holds."""
        return float(np.mean(self.sample.repeated)) if self.shares_prefixes else 0.0

    @property
    def splits(self) -> bool:
        """Whether prefill and decode pools are tried: outputs have further tokens, prompts no encoder."""
        return self.split and self.output >= 2 and self.model.encoder is None

    @property
    def shares_prefixes(self) -> bool:
        """Whether prompts may share prefixes: system prompts, or a trace."""
        return self.workload.prefix is not None or self.workload.trace is not None or self.programs

    @cached_property
    def programs(self) -> bool:
        """Whether requests are turns of agents' programs."""
        return has_programs(self.workload)

    @cached_property
    def prompt_variation(self) -> float:
        """Variance of the prompt tokens over the square of their mean."""
        return float((self.sample.prompts.std() / self.prompt) ** 2)

    @cached_property
    def new_variation(self) -> float:
        """The same of prompt tokens that no prefix cache holds."""
        new = self.sample.prompts - self.sample.repeated
        return float((new.std() / new.mean()) ** 2)

    @cached_property
    def output_variation(self) -> float:
        """Variance of the output tokens over the square of their mean."""
        return float((self.sample.outputs.std() / self.output) ** 2)

    @cached_property
    def long_prompt(self) -> float:
        """Prompt at the quantile of the targets' share, above the mean, over the mean; of new tokens."""
        prompts = self.sample.prompts
        if self.repeated:
            prompts = prompts - self.sample.repeated
        return float(
            max(np.quantile(prompts, self.workload.slo.share) - prompts.mean(), 0.0) / prompts.mean()
        )

    @property
    def rate(self) -> float | None:
        """Requests a second; by default the rate of the trace; None for a closed loop."""
        if self.workload.arrivals is None:
            return self.sample.rate
        return self.workload.arrivals.mean_rate()

    @property
    def tail(self) -> float:
        """Quantile over mean of an exponential wait, for the share of requests that must meet the targets."""
        return -log(max(1 - self.workload.slo.share, 1e-4))

    @property
    def deviations(self) -> float:
        """Standard deviations above the mean that hold the share of requests that must meet targets."""
        return NormalDist().inv_cdf(min(self.workload.slo.share, 0.9999))

    def pool(self, **fields: Any) -> Pool:
        """A pool with the question's engine.

        Raises:
            InputError: a fixed field has a value that no pool takes.
        """
        if self.site is not None and self.site.device == self.cluster.device.name:
            fields = {"site": self.site, **fields}
        return build(Pool, {"engine": self.engine, **fields}, "--fix")
