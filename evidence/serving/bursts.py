"""All requests at t = 0: a benchmark client at infinite rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evidence.serving.case import MeasuredRow, ReplicaQuestion, degrees
from evidence.serving.collection import Collection
from evidence.serving.served_run import ServedRun, client_defaults, scenario_of
from evidence.serving.stated import Stated, lengths, read_stated
from meshwright.validation.rows import SkippedRow


@dataclass(frozen=True)
class BurstRun(ReplicaQuestion):
    """The configuration of one row."""

    prompt: float
    output: float
    stated: Stated

    def run(self) -> ServedRun:
        """See `Question`."""
        low, stated = client_defaults()["unstated_from"], self.stated
        prompt, output = (lengths(mean, low, stated.varied) for mean in (self.prompt, self.output))
        kind = self.serving
        keys: dict[str, Any] = {"options": stated.options_of(kind.engine, kind.cluster.device)}
        if stated.speculation:
            keys["speculation"] = dict(stated.speculation)
        workload = {"requests": stated.requests, "arrivals": {"kind": "burst"}, "input": prompt}
        return ServedRun(scenario_of(self.serving, {**workload, "output": output}, **keys))


def question(row: MeasuredRow, collection: Collection) -> BurstRun:
    """The question of a row.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    tp, dp, ep, pp = (row.count(name) for name in ("tp", "dp", "ep", "pp"))
    gpus = row.count("n_gpus", tp * pp)
    serving = collection.replica(row, degrees(tp, dp, ep, pp, gpus))
    if gpus != serving.pool.devices:
        raise SkippedRow(f"degrees do not give {gpus} GPUs")
    row.need("num_prompts")
    return BurstRun(serving, stated=read_stated(row), **collection.values(row))
