"""Training workload: sequences, batch, number format and optimizer."""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeVar

from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, TypeAdapter, model_serializer, model_validator

from core.loading import Strict
from simulator.lengths import AnyLengths, Lengths
from simulator.models.towers.images import AnyImages
from simulator.packing import PACKINGS
from simulator.packing.grouped_steps import GROUPED, GroupedSteps
from simulator.packing.steps import DrawnSteps
from simulator.state.adapter import Adapter

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]

Packing = Literal["none", "pad", "pack", "concat", "balance", "flexsp", "bytescale"]
"""A key of `PACKINGS`, or of `GROUPED`."""

Count = TypeVar("Count", int, NDArray)
"""A count of one plan, or of many, shape (plans,)."""

ACTIVATION_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "mxfp8": 2, "nvfp4": 2}
"""Bytes of one activation or working parameter; fp8 and fp4 exist only as inputs of matrix products."""


STEP_KEYS = ("seq_len", "global_batch", "precision")
"""Keys of a training workload that every question has."""


class Training(Strict):
    """A training workload.

    With ``lengths``, the documents of a step differ: a row of at most ``seq_len`` tokens holds one of them,
    or several (``packing``), and ``global_batch`` counts rows. ``tokens`` in a file stands for
    ``global_batch``.
    """

    seq_len: int = Field(gt=0, le=2**27, description="tokens in a sequence, or in a row of packed documents")
    global_batch: int = Field(gt=0, le=2**24, description="sequences, or rows, in an optimizer step")
    precision: Precision = Field("bf16", description="number format of the matrix products")
    causal: bool = Field(True, description="whether attention looks back only")
    expert_load: float = Field(
        1.0,
        ge=1,
        le=1000,
        description="routed tokens of the busiest expert-parallel rank over the mean; 1 in benchmarks that "
        "balance tokens by force, 1.06 with an auxiliary loss (Mixtral 8x22B, Megatron MoE ModelZoo), 1.3 to "
        "4.0 in runs without balancing (UltraEP, arXiv 2606.04101)",
    )
    dropout: bool | None = Field(
        None, description="dropout after attention and MLP; default: what the framework does"
    )

    adapter: Adapter | None = Field(
        None, description="low-rank adapters; the model's own parameters are then frozen"
    )

    lengths: AnyLengths | None = Field(
        None,
        description="lengths of documents, cut to `seq_len`; default: every sequence has `seq_len` tokens",
    )
    packing: Packing | None = Field(
        None,
        description="how documents lie in rows: none (one a row, not padded), pad (one a row, padded to the "
        "longest of a micro batch), pack (rows filled, their ends padded), concat (rows filled, not padded), "
        "balance (as pack, dealt by their cost), flexsp (groups of unequal context degree), bytescale "
        "(context degree by length); default with `lengths`: pack",
    )

    source_len: int | None = Field(
        None,
        gt=0,
        le=2**27,
        description="tokens that the encoder of a model with one reads of every sequence (T5, BART); "
        "`seq_len` counts those of the decoder; default: as many",
    )

    images: AnyImages = Field(
        default_factory=list,
        description="images of every sequence, as tokens of it (`4x1280x720`, `1280x720@16` for a video, a "
        "mapping, a list)",
    )
    tower: Literal["frozen", "trained"] = Field(
        "frozen", description="whether the vision tower of `images` is trained, with its projector"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_tokens(cls, data: object) -> object:
        """Rows of a step from its tokens."""
        if not isinstance(data, Mapping) or "tokens" not in data:
            return data
        rest = {key: value for key, value in data.items() if key != "tokens"}
        tokens = data["tokens"]
        if "lengths" not in data or "global_batch" in data:
            raise ValueError("tokens: needs `lengths`, and stands in place of `global_batch`")
        law: Lengths = TypeAdapter(AnyLengths).validate_python(data["lengths"])
        row = rest.setdefault("seq_len", law.longest())
        if not isinstance(row, int) or not isinstance(tokens, int) or tokens < row:
            raise ValueError(f"tokens ({tokens}) is below the longest sequence ({row})")
        packing = PACKINGS.get(str(data.get("packing") or "pack"))
        mean = row if packing is None or packing.fills else min(law.mean(), row)
        return {**rest, "global_batch": max(round(tokens / mean), 1)}

    @model_validator(mode="after")
    def _packs_lengths(self) -> "Training":
        if self.packing and self.lengths is None:
            raise ValueError(f"packing ({self.packing}) needs `lengths`")
        if self.tower == "trained" and not self.images:
            raise ValueError("tower (trained) needs `images`")
        if self.images and (self.adapter is not None or self.lengths is not None):
            raise ValueError("images beside `adapter` or `lengths` are not modelled")
        return self

    @model_serializer(mode="wrap")
    def _without_unused(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A workload without adapters, or with one length, is written as before others existed."""
        written, late = write(self), ("adapter", "lengths", "packing", "source_len")
        unused = () if self.images else ("images", "tower")
        written = {key: value for key, value in written.items() if key not in unused}
        return {key: value for key, value in written.items() if value is not None or key not in late}

    @property
    def words(self) -> str:
        """Sequences of a step, for titles."""
        read = f" and {self.source_len:,} of the encoder" if self.source_len else ""
        return f"{self.global_batch:,} sequences of {self.seq_len:,} tokens{read}"

    @property
    def source(self) -> int:
        """Tokens of a sequence that an encoder reads."""
        return self.source_len or self.seq_len

    @cached_property
    def drawn(self) -> DrawnSteps | GroupedSteps | None:
        """Drawn steps of documents; None where all sequences are equal."""
        if self.lengths is None:
            return None
        written = self.lengths.model_dump_json()
        return _drawn_steps(written, self.packing or "pack", self.seq_len, self.global_batch)

    @property
    def tokens(self) -> int:
        """Tokens in an optimizer step; without padding, in the mean, where documents differ."""
        return self.seq_len * self.global_batch if self.drawn is None else round(self.drawn.real)

    @property
    def attended(self) -> float:
        """Length of equal sequences with the squared lengths of a step's documents, tokens."""
        return self.seq_len if self.drawn is None else self.drawn.mean_square

    @property
    def longest(self) -> "Training":
        """The workload whose documents all have the longest length."""
        stated = {name: getattr(self, name) for name in type(self).model_fields}
        return Training.model_construct(**{**stated, "lengths": None, "packing": None})

    def over_layers(self, layers: int) -> "Training":
        """The workload with the load of the rank that is fullest over all layers with experts.

        The router of each is busiest on another rank: what the sum of independent loads exceeds its mean by
        grows with the root of the layers.
        """
        if self.expert_load == 1 or layers <= 1:
            return self
        return self.model_copy(update={"expert_load": 1 + (self.expert_load - 1) / layers**0.5})

    def micro_batches(self, data: Count, micro_batch: Count) -> Count:
        """Micro batches of one of ``data`` replicas in a step (gradient accumulation), rounded down.

        Rules refuse plans whose batch does not divide.
        """
        return self.global_batch // (data * micro_batch)

    @property
    def activation_bytes(self) -> int:
        """Bytes of one activation element."""
        return ACTIVATION_BYTES[self.precision]

    @property
    def mixed(self) -> bool:
        """Whether the optimizer holds a 32-bit master copy of the parameters."""
        return self.activation_bytes < 4


@lru_cache(maxsize=8)
def _drawn_steps(law: str, packing: str, seq_len: int, rows: int) -> DrawnSteps | GroupedSteps:
    """Drawn steps of lengths as JSON: a search of layouts makes many workloads of the same documents."""
    steps = GroupedSteps if packing in GROUPED else DrawnSteps
    lengths: Lengths = TypeAdapter(AnyLengths).validate_json(law)
    return steps(lengths, packing, seq_len, rows)
