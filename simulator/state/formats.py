"""Formats of the optimizer's state, and bytes of its moments."""

from __future__ import annotations

PAGED_STATES = ("paged-8-bit",)
"""Formats of the state whose moments lie in memory that driver and host share: a device needs no room for
them."""

MOMENT_BYTES = {"bf16": 4.0} | dict.fromkeys(("8-bit", *PAGED_STATES), 2.0 + 2 * 4 / 2048)
"""Bytes of Adam's two moments beside 16-bit parameters: of 16 bits, or of 8 bits with a 32-bit scale for a
block of 2,048 (Dettmers et al. 2021, 8-bit Optimizers, section 2.1)."""

COPIED_STATES = "mixed", "moments-16"
"""Formats of the state with parameters, or a copy of them, in 32 bits."""
