"""Fault processes, one a file, found by name in ``PROCESSES``; published systems in ``presets``."""

from __future__ import annotations

from simulator.faults.law import Law
from simulator.faults.preset import FaultPreset, presets
from simulator.faults.process import NOTICES, Exposed, FaultKind, FaultList, FaultProcess, Notice
from simulator.faults.registry import PROCESSES
from simulator.faults.superposed import Faults, read_faults
from simulator.faults.trace import FaultTrace, read_trace

__all__ = [
    "NOTICES",
    "PROCESSES",
    "Exposed",
    "FaultKind",
    "FaultList",
    "FaultPreset",
    "FaultProcess",
    "FaultTrace",
    "Faults",
    "Law",
    "Notice",
    "presets",
    "read_faults",
    "read_trace",
]
