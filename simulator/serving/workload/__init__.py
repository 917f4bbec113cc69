"""Load of a deployment: arrivals, lengths, programs, shared prefixes, latency targets."""

from simulator.serving.workload.serving import Prefix, Serving, Slo, TraceFile

__all__ = ["Prefix", "Serving", "Slo", "TraceFile"]
