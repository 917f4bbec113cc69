"""The whole closed loop: calibrate this machine, predict a small GPT's steps, train them, compare."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hwmodels.cluster import Cluster
from hwmodels.device import devices
from hwmodels.errors import InputError, UnknownNameError
from meshwright.validation.live import PredictedStep, train
from meshwright.validation.live_config import SIZES, LiveConfig
from meshwright.validation.live_prediction import predict_step
from meshwright.validation.live_training import MeasuredSteps
from meshwright.validation.local_machine import local_cluster, measured_device, measured_links

LAYOUTS = ("ddp", "fsdp", "pipeline")
MICRO_BATCHES_A_STAGE = 4
"""Micro batches of a pipeline, over its stages: enough to see its bubble."""


@dataclass(frozen=True)
class Asked:
    """Models to train, and the devices to train on.

    Attributes:
        device: "cpu", "cuda" or "cuda:N".
        devices: processes, one per GPU.
        layout: parallelism of several processes, one of ``LAYOUTS``.
        size: one of the sizes in ``SIZES``, or "all".
        steps: steps to time.
        points: folder of this machine's points; they are measured first where there are none.
        calibration: the device's name or YAML file, to take instead of points of its kernels.
    """

    device: str = "cuda:0"
    devices: int = 1
    layout: str = "ddp"
    size: str = "small"
    steps: int = 10
    points: Path = Path("points")
    calibration: str = ""


@dataclass(frozen=True)
class Loop:
    """One model: its predicted and its measured steps."""

    size: str
    predicted: PredictedStep
    measured: MeasuredSteps


def live_loops(asked: Asked, say: Callable[[str], None]) -> Iterator[Loop]:
    """Predict and train every requested model.

    Raises:
        InputError: no such device, size or layout, or fewer devices than asked for.
        MeshwrightError: a process failed.
    """
    configurations = _configurations(asked)
    cluster = _cluster(asked, configurations[0][1], say)
    for size, laid_out in configurations:
        threads = cluster.device.multiprocessors if asked.device == "cpu" else 0
        config = replace(laid_out, threads=threads)
        predicted = predict_step(config, cluster)
        say(f"training the {size} model")
        yield Loop(size, predicted, train(config, asked.steps))


def _cluster(asked: Asked, config: LiveConfig, say: Callable[[str], None]) -> Cluster:
    """This machine, with as many devices as asked for."""
    points = asked.points / f"{config.devices}-processes" if config.devices > 1 else asked.points
    if asked.calibration:
        device = devices.get(asked.calibration, "--calibration")
    else:
        device = measured_device(asked.device, config.dtype, points, config.threads, say)
    links = measured_links(asked.device, config.devices, points, say) if config.devices > 1 else None
    return local_cluster(device, config.devices, links)


def _configurations(asked: Asked) -> list[tuple[str, LiveConfig]]:
    kind = "cpu" if asked.device == "cpu" else "cuda"
    sizes = SIZES[kind]
    if asked.size not in (*sizes, "all"):
        raise UnknownNameError("size", asked.size, (*sizes, "all"), "--size")
    if asked.layout not in LAYOUTS:
        raise UnknownNameError("parallelism", asked.layout, LAYOUTS, "--parallelism")
    chosen = sizes if asked.size == "all" else {asked.size: sizes[asked.size]}
    return [(name, _laid_out(config, asked, kind)) for name, config in chosen.items()]


def _laid_out(config: LiveConfig, asked: Asked, kind: str) -> LiveConfig:
    if asked.devices == 1:
        return replace(config, device=asked.device)
    threads = 0
    if kind == "cpu":
        threads = (os.cpu_count() or 1) // asked.devices
        if threads == 0:
            raise InputError(f"{asked.devices} processes need as many cores", "--devices")
    stages = MICRO_BATCHES_A_STAGE * asked.devices if asked.layout == "pipeline" else config.micro_batches
    return replace(
        config,
        device=kind,
        devices=asked.devices,
        parallelism=asked.layout,
        micro_batches=stages,
        threads=threads,
    )
