"""Runs of a serving setting, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from core.errors import InfeasibleError, InputError
from hwmodels.grids import PowerGrid, grids
from simulator.ops.tower import tower_parameters
from simulator.serving.bytes_moved import moves_figures
from simulator.serving.engines import stands_for
from simulator.serving.fleet.elastic import resizes
from simulator.serving.fleet.fleet import Fleet
from simulator.serving.fleet.moving import Moving
from simulator.serving.fleet.outages import drains, outages
from simulator.serving.fleet.row_power import RowSupervisor
from simulator.serving.fleet.scaling import scale, seconds_up
from simulator.serving.fleet.watch import Enough, Progress, Watch
from simulator.serving.metrics import Hardware, ServingMetrics, serving_metrics
from simulator.serving.replica.records import Records
from simulator.serving.routers.by_quality import ByQuality
from simulator.serving.scalers.fixed import FixedReplicas
from simulator.serving.setting import ServingSetting


@dataclass(frozen=True)
class ServingResult:
    """One run: its setting, every request's record, and the figures."""

    setting: ServingSetting
    fleet: Fleet
    metrics: ServingMetrics
    row: RowSupervisor | None = None
    """Supervisor of the replicas' power, where a policy is named."""

    @property
    def records(self) -> Records:
        """One row per request."""
        return self.fleet.records

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run early."""
        return self.fleet.interrupted

    def to_dict(self) -> dict[str, Any]:
        """Keys and values for JSON."""
        setting = self.setting
        return {
            "title": setting.title,
            "model": setting.model.name,
            "cluster": setting.cluster.name,
            "device": setting.cluster.device.name,
            "gpus": setting.gpus,
            "seed": setting.seed,
            **({"site": ", ".join(setting.sites)} if setting.sites else {}),
            "pools": [
                {
                    "name": pool.name,
                    "role": pool.pool.role,
                    "device": pool.cluster.device.name,
                    "replicas": pool.pool.replicas,
                    "tensor": pool.pool.tensor,
                    "data": pool.pool.data,
                    "pipeline": pool.pool.pipeline,
                    "expert": pool.pool.expert,
                    "engine": pool.pool.engine if isinstance(pool.pool.engine, str) else "inline",
                    **({"stands_for": words} if (words := stands_for(pool.pool.engine)) else {}),
                    "scheduler": pool.scheduler.name,
                    "kv_blocks": pool.costs.kv_blocks,
                    "kv_tokens": pool.costs.kv_blocks * pool.options.block_tokens,
                }
                for pool in setting.pools
            ],
            **self._images(),
            "router": setting.router.name,
            "scaler": setting.scaler.name,
            "replicas_started": len(self.fleet.members),
            "failures": sum(member.failures for member in self.fleet.members),
            "retries": self.fleet.retries,
            "failed": self.fleet.failed,
            **self.metrics.to_dict(),
            **self._carbon(),
            **self._starts(),
            **self._adapters(),
            **self._quality(),
            **({} if self.row is None else {"row_power": vars(self.row.figures())}),
            **moves_figures(self.fleet),
            "interrupted": self.interrupted,
        }

    @property
    def grid(self) -> PowerGrid | None:
        """The grid that supplies the energy; None where no region is stated."""
        region = self.setting.deployment.region
        return None if region is None else grids().get(region)

    def _carbon(self) -> dict[str, Any]:
        """CO2 of the energy; empty where no region is stated."""
        if (grid := self.grid) is None:
            return {}
        per_million = grid.grams(self.metrics.joules_per_million)
        return {"region": self.setting.deployment.region, "co2_grams_per_million": per_million}

    def _adapters(self) -> dict[str, Any]:
        """Loads of adapters over the host links; empty where requests have none."""
        adapters = next((resident for pool in self.setting.pools if (resident := pool.costs.adapters)), None)
        if adapters is None:
            return {}
        stores = [member.adapters for member in self.fleet.members if member.adapters is not None]
        misses = sum(store.misses for store in stores)
        return {
            "adapters": {
                "bytes": adapters.bytes,
                "room": adapters.room,
                "load_s": adapters.load_s,
                "hits": sum(store.hits for store in stores),
                "misses": misses,
                "copied_bytes": misses * adapters.bytes,
            }
        }

    def _images(self) -> dict[str, Any]:
        """The tower and what a request's images are to it; empty without images."""
        setting, encoder = self.setting, self.fleet.encoder
        pictures = setting.pictures
        if pictures is None:
            return {}
        apart: dict[str, Any] = {}
        if encoder is not None:
            pool, span = encoder.pool, float(self.records.columns()["last_s"].max(initial=0.0))
            apart = {
                "encoder": {
                    "name": pool.name,
                    "device": pool.cluster.device.name,
                    "replicas": pool.pool.replicas,
                    "tensor": pool.pool.tensor,
                    "request_s": encoder.host_s + encoder.seconds,
                    "busy": encoder.busy_s / (pool.pool.replicas * span) if span else None,
                    "embedding_bytes": pictures.embedding_bytes,
                }
            }
        tower = {"name": pictures.tower.name, "parameters": tower_parameters(pictures.tower)}
        return {
            "audio" if pictures.tower.hears else "images": {
                "count": pictures.count,
                "tokens": pictures.tokens,
                "patches": sum(count * shape.patches for count, shape in pictures.groups),
                "tower": tower,
                **apart,
            }
        }

    def _quality(self) -> dict[str, Any]:
        """Mean quality of the answers, and their share by pool, where the router knows it."""
        router, members = self.setting.router, self.fleet.members
        if not isinstance(router, ByQuality):
            return {}
        columns = self.records.columns()
        qualities = np.array([router.quality[member.group] for member in members])
        replica = columns["replica"].astype(int)
        answers = qualities[replica, router.class_of(columns["serial"])]
        groups = np.array([member.group for member in members])[replica]
        shares = {name: float(np.mean(groups == name)) for name in router.quality}
        return {"quality": {"mean": float(answers.mean()), "shares": shares}}

    def _starts(self) -> dict[str, Any]:
        """Starts of pools that state their stages, in seconds; empty where none does."""
        pools = (*self.setting.pools, *self.setting.resized)
        staged = [pool for pool in pools if pool.pool.start is not None]
        starts = {pool.name: self.fleet.starts.get(pool.name, []) for pool in staged}
        return {"starts": starts} if staged else {}


def serve(
    setting: ServingSetting,
    progress: Progress | None = None,
    traced: bool = False,
    partial: bool = False,
    enough: Enough | None = None,
) -> ServingResult:
    """Run a setting.

    Args:
        setting: the serving setting.
        progress: called with the share of requests that were handled.
        traced: keep every step for a trace.
        partial: return the finished requests if Ctrl-C ends the run.
        enough: asked now and then whether the finished requests suffice; the run then ends.

    Raises:
        InputError: the trace or a request in it is wrong, or there is none.
        InfeasibleError: a replica holds the KV of no request.
        KeyboardInterrupt: Ctrl-C ended the run, and ``partial`` is false.
    """
    fleet = Fleet(setting, traced)
    for pool in setting.pools:
        if not isinstance(pool.scaler, FixedReplicas):
            fleet.clock.process(scale(fleet, pool))
    if setting.migration is not None:
        fleet.moves = Moving(fleet, setting.migration)
        for pool in setting.pools:
            if pool.pool.role != "prefill":
                fleet.clock.process(fleet.moves.run(pool))
    outages(fleet)
    drains(fleet)
    resizes(fleet)
    row = None
    if setting.deployment.power_policy is not None:
        row = RowSupervisor(fleet)
        fleet.clock.process(row.run())
    watched = progress is not None or enough is not None
    fleet.run(Watch(setting.serving.requests, progress, enough) if watched else None)
    if fleet.interrupted and not partial:
        raise KeyboardInterrupt
    if not len(fleet.records) and not fleet.interrupted and not fleet.failed:
        _explain_nothing(setting, fleet)
    return ServingResult(setting, fleet, metrics_of(setting, fleet), row)


def _explain_nothing(setting: ServingSetting, fleet: Fleet) -> None:
    if not fleet.refused:
        raise InputError("no request: the trace is empty, or `start` lies after its last request", "workload")
    room = min(pool.costs.kv_blocks * pool.options.block_tokens for pool in setting.pools)
    raise InfeasibleError(
        f"all {fleet.refused:,} requests are longer than the {room:,} tokens whose KV a replica holds; more "
        "memory for KV (options.memory_share), narrower KV (kv: fp8) or more devices a replica would help"
    )


def metrics_of(setting: ServingSetting, fleet: Fleet) -> ServingMetrics:
    """Figures of a run so far."""
    columns = fleet.records.columns()
    span = float(columns["last_s"].max(initial=0.0))
    # Replicas work on after the last completion where failures end requests.
    worked = (
        max((member.meter.totals.last_s for member in fleet.members), default=0.0) if fleet.failed else 0.0
    )
    up = [seconds_up(member, max(span, worked)) for member in fleet.members]
    gpu_seconds = sum(member.pool.pool.devices * time for member, time in zip(fleet.members, up, strict=True))
    gpu_seconds += sum(member.waited for member in fleet.members)
    price = sum(
        pool.cluster.device.price_per_hour_usd * pool.pool.devices * pool.pool.replicas
        for pool in setting.pools
    )
    attention = (*setting.attention, *setting.encoders)
    price += sum(pool.cluster.device.price_per_hour_usd * pool.devices for pool in attention)
    gpu_seconds += sum(pool.devices for pool in attention) * max(up, default=0.0)
    idle_j = sum(
        max(time - member.meter.totals.busy_s, 0.0) * member.pool.costs.idle_watts
        for member, time in zip(fleet.members, up, strict=True)
    )
    idle_j += max(up, default=0.0) * sum(pool.devices * pool.cluster.device.idle_watts for pool in attention)
    hardware = Hardware(setting.gpus, price, sum(up), gpu_seconds, idle_j)
    serving = setting.serving
    arrivals = serving.arrivals
    return serving_metrics(
        columns,
        [member.meter for member in fleet.members],
        serving.slo,
        serving.skipped,
        fleet.refused,
        hardware,
        open_loop=arrivals is None or not arrivals.closed,
    )
