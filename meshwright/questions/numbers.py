"""Numbers and number formats as people write them: 8k tokens, 15T tokens, BF16."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from core.errors import InputError, shown
from core.written_numbers import decimal

POWERS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
"""Suffixes of a number of tokens or sequences; 8k is 8,192."""

FORMATS = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float8": "fp8"}


def whole_number(text: str, where: str) -> int:
    """Read a whole number as people write it: 8192, 8k, 4M, 1_000.

    Raises:
        InputError: not a whole number.
    """
    digits = re.fullmatch(r"([0-9][0-9_,]{0,30})([kKmMgG]?)", text.strip())
    if digits is None:
        raise InputError(f"must be a whole number, as 8192, 8k or 4M; found {shown(text)}", where)
    return int(digits[1].replace("_", "").replace(",", "")) * POWERS[digits[2].lower()]


def number(text: str, where: str) -> float:
    """Read a number as people write it: 15e12, 15T, 1.5B; the suffixes k, M, B (or G) and T are decimal.

    Raises:
        InputError: not a number.
    """
    try:
        return decimal(text)
    except ValueError:
        raise InputError(f"must be a number, as 15e12, 15T or 300B; found {shown(text)}", where) from None


def number_format(name: str) -> str:
    """The catalogue's name of a number format as people write it: bf16 for BF16 and bfloat16."""
    plain = name.strip().lower()
    return FORMATS.get(plain, plain)


FOUR_BITS = ("4bit", "q4", "4")
"""What people call nf4."""
OTHER_FOUR_BITS = ("int4", "fp4")
"""Formats of 4 bits that people name where libraries quantise frozen weights to NF4."""


def adapter_of(text: str) -> dict[str, Any]:
    """Keys of ``workload.adapter`` from a rank and the format of the frozen weights: 16, 16:nf4, 16:4bit.

    Raises:
        InputError: another form.
    """
    form = re.fullmatch(r"(\d{1,5})(?::(\w+))?", text.strip())
    if form is None:
        raise InputError(f"must be RANK or RANK:FORMAT, as 16 or 16:nf4; found {shown(text)}", "--adapter")
    base = "nf4" if form[2] in FOUR_BITS else form[2]
    if base in OTHER_FOUR_BITS:
        raise InputError(f"frozen weights of 4 bits are nf4: {form[1]}:nf4; found {shown(text)}", "--adapter")
    return {"rank": int(form[1]), **({"base": number_format(base)} if base else {})}


SIZES = ("gpus", "seq_len", "global_batch", "batch_tokens", "isl", "osl", "concurrency")
"""Arguments that are whole numbers, also as people write them (8k)."""


def as_numbers(arguments: Mapping[str, Any]) -> dict[str, int]:
    """Sizes given as text, as numbers.

    Raises:
        InputError: text that is no whole number.
    """
    return {
        name: whole_number(value, f"--{name.replace('_', '-')}")
        for name, value in arguments.items()
        if name in SIZES and isinstance(value, str)
    }


def day_rates(text: str) -> list[float]:
    """Rates of equal parts of a day, requests/s: 2,5,9,4.

    Raises:
        InputError: unreadable, or no rate above zero.
    """
    parts = [part.strip() for part in text.split(",")]
    if any(re.fullmatch(r"\d{1,6}(\.\d{1,6})?", part) is None for part in parts) or len(parts) > 1440:
        problem = "must be rates in requests/s, as 2,5,9,4 (1,440 at most)"
        raise InputError(f"{problem}, found {text[:60]!r}", "--rates")
    rates = [float(part) for part in parts]
    if not max(rates) > 0:
        raise InputError("must hold a rate above 0", "--rates")
    return rates
