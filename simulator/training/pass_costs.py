"""What one pass through a layer costs."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

import numpy as np

from core.records import record
from simulator.setting import Setting
from simulator.training.overlap import Transfer
from simulator.training.work import KernelTimes


@record()
class PassCosts:
    """One pass through a layer: kernels, and each kind of communication inside it.

    ``after_read`` are those of the kernels that the host launches after it has read how many tokens each
    expert has, where it does; ``reads`` says for which plans. ``blocked``: for which plans the host launches
    nothing while tokens are exchanged with experts. ``waits``: share of its waits for the host that a pass
    has beside those it is combined with, shape (plans,). ``alone``: share of the passes that have no such
    partner, shape (plans,). ``unproven``: seconds of waiting that a gain which no run near measured is
    expected to leave (``simulator.training.expected``), shape (plans,).
    """

    work: KernelTimes
    tensor: Transfer
    context: Transfer
    expert: Transfer
    setting: Setting
    after_read: KernelTimes = field(default_factory=KernelTimes)
    reads: np.ndarray | bool = False
    blocked: np.ndarray | bool = False
    waits: np.ndarray | float = 1.0
    alone: np.ndarray | float = 0.0
    unproven: np.ndarray | float = 0.0

    @cached_property
    def seconds(self) -> np.ndarray:
        """Elapsed seconds on the slowest device, shape (plans,)."""
        return self.kernels + self.exposed

    @cached_property
    def device(self) -> np.ndarray:
        """Seconds of kernels on the average device, shape (plans,)."""
        return self.work.device

    @cached_property
    def kernels(self) -> np.ndarray:
        """Seconds of kernels and of waiting for them to be launched, where that is slower.

        The host keeps launching while collectives run. Where it reads the experts' token counts, it waits for
        the device once per layer; then come the experts' kernels, combination, and all kernels up to the next
        dispatch. A host that launches these late catches up only during the wait for the next read.
        """
        setting = self.setting
        host, device = self._host(self.work), self.device * setting.pace
        if not setting.launches_ahead:
            return device + host + self.unproven
        together, apart = self._waiting
        free = device + together + self.alone * (apart - together) + self.unproven
        if not np.any(self.reads):
            return free
        beside = self.tensor.exposed + self.context.exposed
        exchanged = self._exchanged
        first = self._host(self.after_read)
        late = np.maximum(first - self.after_read.device * setting.pace, 0.0)
        # The host waits for the dispatch, and launches while tokens are combined.
        hidden = beside + exchanged / 2
        return np.where(self.reads, np.maximum(device + late, host - hidden) + self.unproven, free)

    @cached_property
    def unpaired(self) -> np.ndarray:
        """Seconds that a pass without a partner takes beyond one that has it, shape (plans,)."""
        together, apart = self._waiting if self.setting.launches_ahead else (0.0, 0.0)
        return np.zeros(np.shape(self.device)) + (self.expert.gained + apart - together)

    @property
    def _waiting(self) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of waiting for the host, of a pass with a partner and of one without.

        The host launches while a pass alone exchanges, which takes it longer than beside kernels.
        """
        return self.waits * np.maximum(self.lag, 0.0), np.maximum(self.lag - self.expert.gained, 0.0)

    @cached_property
    def lag(self) -> np.ndarray:
        """Seconds by which launching the kernels takes longer than they and what is exposed beside them.

        Beside a partner, where there is one.
        """
        return self._host(self.work) - self.needed

    @property
    def needed(self) -> np.ndarray:
        """Seconds of the kernels and of what is exposed beside them while the host launches."""
        beside = self.tensor.exposed + self.context.exposed + self._exchanged
        return beside + self.device * self.setting.pace

    @property
    def _exchanged(self) -> np.ndarray:
        """Seconds that the exchange with experts adds to the device less those that the host waits for it.

        A blocked host launches nothing while an exchange runs, beside kernels or not: its launches and all
        exchanges follow each other. Kernels beside an exchange shorten no pass that waits for the host.
        """
        return np.where(self.blocked, -self.expert.gained, self.expert.paired)

    def _host(self, work: KernelTimes) -> np.ndarray | float:
        setting = self.setting
        python, loops = setting.host_seconds_per_kernel, setting.host_seconds_per_looped_kernel
        return work.launches * python + work.looped * loops

    @cached_property
    def exposed(self) -> np.ndarray:
        """Exposed seconds of communication."""
        return self.tensor.exposed + self.context.exposed + self.expert.exposed
