"""KV that is not all in device memory, or not all read, as a pool states it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from core.loading import Strict


class KvState(Strict):
    """Where KV of decodes lives, and how much of it attention reads."""

    kind: str = Field(description="how KV is kept or placed (`show states`)")
    options: dict[str, Any] = Field(default_factory=dict, description="parameters of the kind")
