"""The training of the closed loop in plain torch: the model, its layouts, and the profiler's table."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.validation.live_config import LiveConfig
from profiles.measure.bench import TORCH_NAMES
from profiles.measure.machine import Machine, find, require_torch

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class MeasuredSteps:
    """Measured training: times on rank 0, operators on the busiest rank.

    Attributes:
        config: the trained model and its layout.
        device: the device's name.
        seconds: wall time of each timed step.
        operators: seconds a step, by kind of operator, from torch.profiler over steps of their own: on a
            GPU the time of its kernels, on a CPU the time inside the operator. Kinds: gemm, attention,
            norm, activation, embedding, cross_entropy, elementwise, copy, optimizer, collective, other.
        profiled_seconds: wall time of a step under the profiler, which slows small operators down.
        peak_memory_bytes: peak of the allocator on a GPU, else 0.
        loss: of the last step; a non-finite loss means a failed training.
    """

    config: LiveConfig
    device: str
    seconds: tuple[float, ...]
    operators: dict[str, float]
    profiled_seconds: float
    peak_memory_bytes: int
    loss: float

    @property
    def step_seconds(self) -> float:
        """The median step."""
        return float(np.median(self.seconds))

    @property
    def spread(self) -> float:
        """Interquartile range of the steps over their median."""
        low, high = np.percentile(self.seconds, (25, 75))
        return float((high - low) / self.step_seconds)


Step = Callable[[], float]
"""Run one training step; returns the loss, or nan on ranks without it."""

PROFILED_STEPS = 3

OPERATORS = (
    ("collective", ("nccl", "c10d::", "gloo", "record_param_comms", "fsdp::")),
    ("gemm", ("aten::addmm", "aten::mm", "aten::bmm", "aten::linear", "aten::matmul", "mkldnn")),
    ("attention", ("attention",)),
    ("norm", ("layer_norm", "rms_norm")),
    ("activation", ("gelu", "silu")),
    ("embedding", ("embedding", "index_put", "aten::index")),
    ("cross_entropy", ("log_softmax", "nll_loss")),
    ("optimizer", ("adamw", "adam_", "Optimizer.step")),
    ("copy", ("aten::copy_", "aten::_to_copy", "Memcpy", "aten::clone", "aten::contiguous")),
    ("elementwise", ("aten::add", "aten::mul", "aten::sum", "aten::fill_", "aten::zero", "aten::div")),
)
"""Kinds of operators, and substrings of the profiler's names; the first match counts."""


def run(config: LiveConfig, steps: int, warm_up: int) -> MeasuredSteps:
    """Train on this rank; every rank of the process group calls it.

    Args:
        config: the model and how it is laid out.
        steps: timed steps.
        warm_up: steps before them.
    """
    torch = require_torch()
    distributed = config.devices > 1
    rank = torch.distributed.get_rank() if distributed else 0
    machine = find(f"cuda:{rank}" if distributed and config.device != "cpu" else config.device)
    if machine.kind == "cuda":
        torch.cuda.set_device(machine.index)
    torch.manual_seed(0)
    step = LAYOUTS[config.parallelism](config, machine)
    for _ in range(warm_up):
        step()
    if machine.kind == "cuda":
        torch.cuda.reset_peak_memory_stats()
    timed = [_timed(step, machine, distributed) for _ in range(steps)]
    peak = torch.cuda.max_memory_allocated() if machine.kind == "cuda" else 0
    seconds = tuple(taken for taken, _ in timed)
    operators, profiled = _busiest(_profiled(step, machine, distributed), distributed)
    return MeasuredSteps(config, machine.name, seconds, operators, profiled, peak, timed[-1][1])


def _timed(step: Step, machine: Machine, distributed: bool) -> tuple[float, float]:
    torch = require_torch()
    if distributed:
        torch.distributed.barrier()
    _synchronize(machine)
    start = time.perf_counter()
    loss = step()
    _synchronize(machine)
    return time.perf_counter() - start, loss


def _synchronize(machine: Machine) -> None:
    if machine.kind == "cuda":
        require_torch().cuda.synchronize()


def _profiled(step: Step, machine: Machine, distributed: bool) -> tuple[dict[str, float], float]:
    """Seconds a step by kind of operator, and wall seconds of a step while profiled."""
    torch = require_torch()
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CPU, kinds.CUDA] if machine.kind == "cuda" else [kinds.CPU]
    taken = []
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(PROFILED_STEPS):
            taken.append(_timed(step, machine, distributed)[0])
    operators = operator_seconds(profiler.key_averages(), machine.kind == "cuda")
    a_step = {kind: seconds / PROFILED_STEPS for kind, seconds in operators.items()}
    return a_step, sum(taken) / PROFILED_STEPS


def operator_seconds(events: Iterable[Any], on_gpu: bool) -> dict[str, float]:
    """Seconds by kind of operator, from the profiler's averages.

    On a GPU an operator's time is that of the kernels that it launched. The profiler lists these kernels, and
    annotations on the device, once more under their own names: they are passed over.
    """
    spent: dict[str, float] = defaultdict(float)
    for event in events:
        if on_gpu:
            microseconds = event.self_device_time_total if event.device_type.name == "CPU" else 0.0
        else:
            named = "::" in event.key or "Optimizer" in event.key
            microseconds = event.self_cpu_time_total if named else 0.0
        if microseconds > 0:
            spent[operator_kind(event.key)] += microseconds * 1e-6
    return dict(sorted(spent.items()))


def _busiest(measured: tuple[dict[str, float], float], distributed: bool) -> tuple[dict[str, float], float]:
    """Measurements of the rank that works most and waits least."""
    if not distributed:
        return measured
    torch = require_torch()
    seen: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(seen, measured)
    return max(seen, key=lambda rank: sum(rank[0].values()) - rank[0].get("collective", 0.0))


def operator_kind(name: str) -> str:
    """The kind of operator that a name of the profiler stands for."""
    for kind, parts in OPERATORS:
        if any(part in name for part in parts):
            return kind
    return "other"


def build(config: LiveConfig, layers: int, first: bool = True, last: bool = True) -> nn.Module:
    """The model, or a stage of it: embeddings if first, final norm and output layer if last."""
    from torch import nn

    stages: list[nn.Module] = []
    if first:
        stages.append(_embedding(config))
    stages += [_block(config) for _ in range(layers)]
    if last:
        stages.append(nn.LayerNorm(config.hidden))
        stages.append(nn.Linear(config.hidden, config.vocabulary, bias=False))
    return nn.Sequential(*stages)


def _embedding(config: LiveConfig) -> nn.Module:
    import torch
    from torch import nn

    class Embedding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(config.vocabulary, config.hidden)
            self.positions = nn.Parameter(0.02 * torch.randn(config.sequence, config.hidden))

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.tokens(tokens) + self.positions

    return Embedding()


def _block(config: LiveConfig) -> nn.Module:
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            hidden = config.hidden
            self.before_attention, self.before_feed_forward = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, sequence, hidden = x.shape
            qkv = self.qkv(self.before_attention(x)).view(batch, sequence, 3, config.heads, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).reshape(batch, sequence, hidden))
            inner = functional.gelu(self.up(self.before_feed_forward(x)), approximate="tanh")
            return x + self.down(inner)

    return Block()


def _batch(config: LiveConfig, machine: Machine, micro_batches: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and targets, (micro_batches x micro_batch, sequence)."""
    torch = require_torch()
    shape = (micro_batches * config.micro_batch, config.sequence)
    tokens = torch.randint(config.vocabulary, shape, device=machine.torch_device)
    return tokens, torch.roll(tokens, -1, dims=1)


def _loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def _placed(model: nn.Module, config: LiveConfig, machine: Machine) -> nn.Module:
    dtype = getattr(require_torch(), TORCH_NAMES[config.dtype])
    return model.to(device=machine.torch_device, dtype=dtype)


def _optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return require_torch().optim.AdamW(parameters, lr=1e-4, fused=True)


def _data_parallel_step(config: LiveConfig, machine: Machine, model: nn.Module) -> Step:
    optimizer = _optimizer(model.parameters())
    tokens, targets = _batch(config, machine, config.micro_batches)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        losses: list[torch.Tensor] = []
        for ids, labels in zip(
            tokens.split(config.micro_batch), targets.split(config.micro_batch), strict=True
        ):
            loss = _loss(model(ids), labels) / config.micro_batches
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
        return float(sum(losses))

    return step


def _single(config: LiveConfig, machine: Machine) -> Step:
    return _data_parallel_step(config, machine, _placed(build(config, config.layers), config, machine))


def _ddp(config: LiveConfig, machine: Machine) -> Step:
    from torch.nn.parallel import DistributedDataParallel

    model = _placed(build(config, config.layers), config, machine)
    devices = [machine.index] if machine.kind == "cuda" else None
    return _data_parallel_step(config, machine, DistributedDataParallel(model, device_ids=devices))


def _fsdp(config: LiveConfig, machine: Machine) -> Step:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = _placed(build(config, config.layers), config, machine)
    mesh = init_device_mesh(machine.kind, (config.devices,))
    for layer in model.children():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _data_parallel_step(config, machine, model)


def _pipeline(config: LiveConfig, machine: Machine) -> Step:
    torch = require_torch()
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, stages = torch.distributed.get_rank(), config.devices
    first, last = rank == 0, rank == stages - 1
    model = _placed(build(config, config.layers // stages, first, last), config, machine)
    optimizer = _optimizer(model.parameters())
    stage = PipelineStage(model, rank, stages, torch.device(machine.torch_device))
    schedule = Schedule1F1B(stage, config.micro_batches, loss_fn=_loss)
    tokens, targets = _batch(config, machine, config.micro_batches)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        losses: list[torch.Tensor] = []
        inputs = (tokens,) if first else ()
        schedule.step(*inputs, target=targets if last else None, losses=losses if last else None)
        optimizer.step()
        loss = torch.stack(losses).mean().detach().cpu() if last else torch.zeros(())
        shared = [float(loss)]
        torch.distributed.broadcast_object_list(shared, src=stages - 1)
        return shared[0]

    return step


LAYOUTS: dict[str, Callable[[LiveConfig, Machine], Step]] = {
    "single": _single,
    "ddp": _ddp,
    "fsdp": _fsdp,
    "pipeline": _pipeline,
}
