"""The whole closed loop: calibrate this machine, predict a small GPT's steps, train them, compare."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import InputError, UnknownNameError
from hwmodels.cluster import Cluster
from hwmodels.device import devices
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


def live_loops(options: Asked, say: Callable[[str], None]) -> Iterator[Loop]:
    """Predict and train every requested model.

    Raises:
        InputError: no such device, size or layout, or fewer devices than asked for.
        MeshwrightError: a process failed.
    """
    configurations = _configurations(options)
    cluster = _cluster(options, configurations[0][1], say)
    for size, laid_out in configurations:
        threads = cluster.device.multiprocessors if options.device == "cpu" else 0
        config = replace(laid_out, threads=threads)
        predicted = predict_step(config, cluster)
        say(f"training the {size} model")
        yield Loop(size, predicted, train(config, options.steps))


def _cluster(options: Asked, config: LiveConfig, say: Callable[[str], None]) -> Cluster:
    """This machine, with as many devices as asked for."""
    points = options.points / f"{config.devices}-processes" if config.devices > 1 else options.points
    if options.calibration:
        device = devices.get(options.calibration, "--calibration")
    else:
        device = measured_device(options.device, config.dtype, points, config.threads, say)
    links = measured_links(options.device, config.devices, points, say) if config.devices > 1 else None
    return local_cluster(device, config.devices, links)


def _configurations(options: Asked) -> list[tuple[str, LiveConfig]]:
    kind = "cpu" if options.device == "cpu" else "cuda"
    sizes = SIZES[kind]
    if options.size not in (*sizes, "all"):
        raise UnknownNameError("size", options.size, (*sizes, "all"), "--size")
    if options.layout not in LAYOUTS:
        raise UnknownNameError("parallelism", options.layout, LAYOUTS, "--parallelism")
    selected = sizes if options.size == "all" else {options.size: sizes[options.size]}
    return [(name, _laid_out(config, options, kind)) for name, config in selected.items()]


def _laid_out(config: LiveConfig, options: Asked, kind: str) -> LiveConfig:
    if options.devices == 1:
        return replace(config, device=options.device)
    threads = 0
    if kind == "cpu":
        threads = (os.cpu_count() or 1) // options.devices
        if threads == 0:
            raise InputError(f"{options.devices} processes need as many cores", "--devices")
    stages = MICRO_BATCHES_A_STAGE * options.devices if options.layout == "pipeline" else config.micro_batches
    return replace(
        config,
        device=kind,
        devices=options.devices,
        parallelism=options.layout,
        micro_batches=stages,
        threads=threads,
    )
