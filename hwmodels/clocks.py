"""Clock frequency of multiprocessors: voltage and dynamic power at lower clocks.

The dynamic power of logic grows with f V^2. Below a knee the voltage is at its floor; above, it rises
linearly with the clock. The memory has its own clock: its power follows the traffic.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

VOLTAGE_FLOOR = 0.73
"""Voltage at and below the knee, over the voltage at the highest clock."""
VOLTAGE_KNEE = 0.57
"""Clock up to which the voltage stays at its floor, over the highest clock.

Both are fitted on the power of a prefill at 13 locked clocks between 0.19 and 0.96 of the highest
(Markliu225/powerchar@399094c, results_freq_prefill.csv, median error 1.6 %). With these values, idle power
plus f V^2 plus traffic gives the power of five other sweeps of that source, on H200, within 2.6 %."""
LEAST_SHARE = 0.3
"""Lowest modelled clock over the clock of the peaks: measured sweeps end there, and below it the
multiprocessors do not issue enough loads to saturate the memory."""


def dynamic_power(share: ArrayLike) -> NDArray[np.float64]:
    """Return the dynamic power of logic over that at the highest clock.

    Args:
        share: clock over the highest clock.
    """
    share = np.asarray(share, dtype=np.float64)
    above = np.maximum(share - VOLTAGE_KNEE, 0.0) / (1.0 - VOLTAGE_KNEE)
    voltage = VOLTAGE_FLOOR + (1.0 - VOLTAGE_FLOOR) * above
    return share * voltage**2
