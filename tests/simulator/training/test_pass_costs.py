"""What one pass through a layer costs."""

from dataclasses import replace

import numpy as np
import pytest

from hwmodels.collectives.cost import Cost
from simulator.training.overlap import NO_TRANSFER, Transfer
from simulator.training.pass_costs import PassCosts
from simulator.training.work import KernelTimes


def test_a_pass_alone_exchanges_while_the_host_launches(make_setting):
    """It takes what the host or the device needs: no launches on top of what it exposes."""
    setting = make_setting()
    launched, device, beside = 10e-3, 4e-3, 2e-3
    for slows in (0.5, 0.1):
        sent = Transfer(Cost(np.array([5e-3]), Cost.none((1,)).links), np.array([beside]), slows)
        costs = PassCosts(KernelTimes(), NO_TRANSFER, NO_TRANSFER, sent, setting)
        costs.work.add("gemm", np.array([device / setting.pace]), launched / setting.host_seconds_per_kernel)
        mixed = replace(costs, expert=replace(sent, alone=0.5), alone=0.5)
        assert costs.seconds == pytest.approx([launched])
        assert mixed.seconds == pytest.approx([launched])
        assert costs.unpaired == pytest.approx([0.0], abs=1e-12)
