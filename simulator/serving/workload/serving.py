"""The keys of a serving workload."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.errors import InputError
from core.loading import Strict
from core.quantities import Duration, NotNegative, Tokens
from simulator.lengths import AnyLengths
from simulator.models.towers.images import AnyClips, AnyImages
from simulator.serving.workload.arrivals import AnyArrivals
from simulator.serving.workload.programs import AnyProgram
from simulator.serving.workload.programs.single import Single
from simulator.serving.workload.traces import get_format

WARM_UP = 0.1
"""Default share of an open loop's first requests that statistics leave out."""


MOST_REQUESTS = 5_000_000
"""Of a run; each is kept with 100 bytes until the end."""
Target = Annotated[float, Field(ge=1e-6, le=1e6)]
"""s."""


class Slo(Strict):
    """Latency targets of one request; a request meets them all or misses."""

    ttft: Target | None = Field(None, description="time to first token, s")
    tpot: Target | None = Field(None, description="mean time per output token after the first, s")
    e2e: Target | None = Field(None, description="whole request, s")
    share: float = Field(0.9, gt=0, le=1, description="share of requests that must meet them")

    @property
    def has_targets(self) -> bool:
        """Whether there are targets."""
        return not (self.ttft is None and self.tpot is None and self.e2e is None)


class Prefix(Strict):
    """A system prompt in front of every prompt."""

    tokens: Tokens = Field(description="tokens that the prompts of a group share")
    groups: int = Field(1, ge=1, le=2**18, description="different system prompts, drawn equally often")


class Chunks(Strict):
    """Documents that retrieval puts into every prompt, before the question."""

    documents: int = Field(ge=1, le=2**20, description="documents of the collection")
    per_prompt: int = Field(ge=1, le=1024, description="documents in a prompt, drawn independently")
    tokens: Tokens = Field(description="tokens of a document")
    zipf: float = Field(
        default=1.0, ge=0, le=10, description="exponent of the documents' popularity; 0: all alike"
    )


class TraceFile(Strict):
    """Requests of a log."""

    format: str = Field(description="trace format (`show traces`)")
    path: str = Field(description="file, gzipped or not; relative to the scenario's")
    rate_scale: float = Field(1.0, ge=1e-6, le=1e6, description="arrival rate over the trace's own")
    start: Duration = Field(0.0, description="seconds of the trace to skip")
    longest_wait: Duration | None = Field(
        None, description="longest wait of a recorded session's client between an answer and its next call, s"
    )

    @model_validator(mode="after")
    def _known(self) -> TraceFile:
        try:
            get_format(self.format)
        except InputError as error:
            raise ValueError(error.problem) from None
        if get_format(self.format).sessions is None:
            if self.longest_wait is not None:
                raise ValueError(f"a {self.format} trace has no sessions; leave out longest_wait")
        elif self.rate_scale != 1.0 or self.start:
            raise ValueError(f"sessions of a {self.format} trace begin by `arrivals`; no rate_scale or start")
        return self


class Serving(Strict):
    """A serving workload: lengths are drawn or from a trace; arrivals follow a process or the trace."""

    kind: Literal["serving"] = Field(description="says that the question is one of serving")
    requests: int = Field(1000, ge=1, le=MOST_REQUESTS, description="requests to simulate")
    arrivals: AnyArrivals | None = Field(
        None, description="when requests (or programs) begin; default: the trace's times"
    )
    input: AnyLengths | None = Field(None, description="prompt tokens, a system prompt not counted")
    output: AnyLengths | None = Field(None, description="output tokens")
    trace: TraceFile | None = Field(None, description="log that gives lengths, and times without `arrivals`")
    users: int | None = Field(
        None,
        ge=1,
        le=2**20,
        description="users among whom the requests of an open loop are dealt in turn; a user's next request "
        "waits for its last answer",
    )
    user_gap: Duration = Field(0.0, description="seconds from an answer to the user's next request")
    program: AnyProgram = Field(default_factory=Single, description="what a client does from arrival to end")
    prefix: Prefix | None = Field(None, description="system prompts")
    images: AnyImages = Field(
        default_factory=list,
        description="images of every request, between its system prompt and its text (`2x1280x720`, "
        "`1280x720@16` for a video of 16 frames, mappings, or a list); `input` does not count their tokens, "
        "a trace does",
    )
    audio: AnyClips = Field(
        default_factory=list,
        description="clips of sound of every request, in place of images (`2x30`: two of 30 s); `input` does "
        "not count their tokens, a trace does",
    )
    chunks: Chunks | None = Field(
        default=None, description="retrieved documents, found in tiers wherever they stand in a prompt"
    )
    priorities: list[NotNegative] = Field(
        default_factory=list,
        max_length=64,
        description="shares of requests of priority 0 (the most urgent), 1, ...; default: all 0",
    )
    slo: Slo = Field(default_factory=lambda: Slo.model_validate({}), description="latency targets")
    warmup: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="share of the first requests that statistics leave out; "
        f"default: {WARM_UP} where requests arrive at a rate, else 0",
    )

    @model_validator(mode="after")
    def _complete(self) -> Serving:
        closed = self.arrivals is not None and self.arrivals.closed
        if self.users is not None and (closed or not isinstance(self.program, Single)):
            raise ValueError("`users` share the requests of an open loop without programs")
        if self.chunks is not None and (self.trace is not None or not isinstance(self.program, Single)):
            raise ValueError("`chunks` are drawn for single requests; leave out trace and program")
        if self.images and self.audio:
            raise ValueError("a request has images or audio, not both")
        for name in ("images", "audio"):
            if getattr(self, name) and (self.chunks is not None or not isinstance(self.program, Single)):
                raise ValueError(f"`{name}` are those of single requests; leave out chunks and program")
        if self.trace is None:
            missing = [name for name in ("arrivals", "input", "output") if getattr(self, name) is None]
            if missing:
                raise ValueError(f"key {missing[0]!r} is missing; without a trace it is needed")
        else:
            if get_format(self.trace.format).sessions and (
                self.users is not None or self.prefix is not None or not isinstance(self.program, Single)
            ):
                raise ValueError("recorded sessions are programs; leave out program, prefix and users")
            if self.input is not None or self.output is not None:
                raise ValueError("lengths come from the trace; leave out input and output")
            if self.arrivals is None and not get_format(self.trace.format).timed:
                raise ValueError(
                    f"a {self.trace.format} trace has no arrival times; key 'arrivals' is missing"
                )
        return self

    @property
    def skipped(self) -> float:
        """Share of the first requests that statistics leave out."""
        if self.warmup is not None:
            return self.warmup
        return WARM_UP if self.arrivals is not None and self.arrivals.mean_rate() is not None else 0.0
