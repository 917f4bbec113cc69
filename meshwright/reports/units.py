"""Numbers with units, for people."""

from __future__ import annotations

import math


def scaled(value: float, unit: str, digits: int = 3) -> str:
    """A number with a decimal prefix: ``3.35 TB/s``."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.{digits}g} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def counted(value: float) -> str:
    """A count as the field writes it: ``175B``, ``1.04T``."""
    for factor, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return (
                f"{value / factor:.3g}{suffix}" if value < 100 * factor else f"{value / factor:.4g}{suffix}"
            )
    return f"{value:.4g}"


def significant(value: float) -> str:
    """A figure in three digits, zeros at its end too: ``21.0``, ``0.590``, ``1,510``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:#.3g}".removesuffix(".")


def per_second(value: float) -> str:
    """A rate: ``22.4``, ``1,510``."""
    return significant(value)


def with_half_width(value: float, half: float) -> str:
    """A figure and half of its interval, to the same decimal: ``23.0 ± 0.6``."""
    figure = significant(value)
    decimals = len(figure.partition(".")[2])
    width = f"{half:,.{decimals}f}"
    return f"{figure} ± {width}" if float(width.replace(",", "")) else figure


def gibibytes(value: float) -> str:
    """Bytes of memory: ``79.1 GiB``."""
    return f"{value / 2**30:.1f} GiB"


def seconds(value: float) -> str:
    """A duration: ``16.3 s``, ``812 ms``, ``5 us``."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if abs(value) >= factor:
            digits = 2 if value / factor < 10 else 1 if value / factor < 100 else 0
            return f"{value / factor:,.{digits}f} {unit}"
    return "0" if value == 0 else f"{value:.2g} s"


def percent(share: float, digits: int = 1) -> str:
    """A share: ``12.3 %``."""
    return f"{100 * share:.{digits}f} %"


def signed_percent(share: float) -> str:
    """A deviation: ``+12.3 %``."""
    return f"{100 * share:+.1f} %"


CALIBRATED = {
    "measured": "measured there",
    "fitted-elsewhere": "fitted to published measurements",
    "estimated": "estimated from a device of its generation",
}
"""Where a calibration's constants come from, by its status."""


def kernels_words(name: str, status: str, borrowed: bool = False) -> str:
    """A calibration and where its constants come from; ``borrowed``: it is another device's."""
    return f"borrowed from {name} ({CALIBRATED[status]})" if borrowed else f"{name}: {CALIBRATED[status]}"


def cell(value: object) -> str:
    """A value of a table with any keys: numbers with four digits, from 1,000 to 1e9 with all of them."""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"
    return "" if value is None else str(value)
