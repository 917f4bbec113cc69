"""Start of a replica in stages, as a pool states it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from core.loading import Strict
from core.quantities import Duration

ENGINE_START_S = 30.0
"""Start of the process, compilation, graph capture and warm-up of vLLM 0.11, s: the load times of two
models on A100 less their bytes at one rate (vLLM blog, Sleep Mode, October 2025; rows that may be read)."""


class StagedStart(Strict):
    """Stages of a start, in seconds; those of the weights follow from their source."""

    from_: str = Field("disk", alias="from", description="where weights come from (`show starts`)")
    options: dict[str, Any] = Field(default_factory=dict, description="parameters of the source")
    allocate: Duration = Field(0.0, description="seconds to find devices and place the container")
    engine: Duration = Field(ENGINE_START_S, description="seconds to start the engine's processes")
    compile: Duration = Field(0.0, description="seconds to compile kernels and capture graphs, where apart")
    warm: Duration = Field(0.0, description="seconds to warm up and publish the replica, where apart")
