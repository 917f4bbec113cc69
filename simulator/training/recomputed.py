"""What recomputation of a layer adds before its backward pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simulator.models import LayerKind
from simulator.ops import Collective, Op
from simulator.plan import FULL, SELECTIVE, Plans
from simulator.setting import Setting
from simulator.training.layer_parts import ORDER, LayerParts
from simulator.training.modules import repeats
from simulator.training.overlap import Transfer
from simulator.training.pass_costs import PassCosts
from simulator.training.tensor import products
from simulator.training.work import KernelTimes, Priced, sum_seconds


def recomputed(
    setting: Setting,
    plans: Plans,
    parts: LayerParts,
    core: KernelTimes,
    first: PassCosts,
    modules: KernelTimes,
    unneeded: list[Priced],
) -> PassCosts:
    """The framework sets the ops that selective recomputation repeats; full repeats the forward pass.

    Full recomputation leaves out the ``unneeded`` ops, but where tensor-parallel ranks reduce their results:
    compilers do not remove what a collective waits for (torch, distributed/_functional_collectives.py).
    """
    rule = selective_rule(setting)
    selective, full = plans.recompute == SELECTIVE, plans.recompute == FULL
    work = KernelTimes()
    if rule == "every-other-product":
        _every_other_product(setting, parts, first, selective, work)
    else:
        work.extend(modules if rule == "modules" else core, selective * 1.0)
    if rule == "all-but-projections":
        work.extend(KernelTimes.of(parts.forward("mlp", "routed")), selective * 1.0)
    work.extend(first.work, full * 1.0)
    left_out = KernelTimes.of(unneeded)
    alone = full & (plans.tensor == 1)
    work.extend(left_out if setting.graphs == "none" else KernelTimes(left_out.seconds), -1.0 * alone)
    if setting.framework.kernels.repeats_norms:
        norms = KernelTimes.of(each for each in parts.forward("around") if each.op.module == "norm")
        work.extend(norms, ~(full | selective) * 1.0)

    named = setting.choices.recompute_modules or ()
    attends, routes = "core_attn" in named, "moe" in named

    def repeated(transfer: Transfer, too: np.ndarray | bool) -> Transfer:
        return transfer.times(np.where(selective, too, full))

    return PassCosts(
        work,
        repeated(first.tensor, rule == "every-other-product" and _gathered(parts, first.tensor)),
        repeated(first.context, rule != "every-other-product" and (rule != "modules" or attends)),
        repeated(first.expert, rule == "all-but-projections" or routes),
        setting,
        first.after_read,
        first.reads & (full | selective & (rule == "all-but-projections" or routes)),
        first.blocked,
    )


def repeated_modules(
    setting: Setting, parts: LayerParts, kind: LayerKind, graphed: Callable[[Op], bool]
) -> KernelTimes:
    """Kernels of the modules that selective recomputation names; graphs of the backward pass hold theirs."""
    work = KernelTimes()
    for each in parts.forward(*ORDER):
        if repeats(each.op, setting.choices.recompute_modules or (), kind.experts):
            times = KernelTimes.of([each])
            work.extend(KernelTimes(times.seconds) if graphed(each.op) else times)
    return work


def selective_rule(setting: Setting) -> str:
    """What selective recomputation repeats: "modules" that are named, or the framework's rule."""
    return setting.framework.selective if setting.choices.recompute_modules is None else "modules"


def unneeded_ops(setting: Setting, parts: LayerParts, kind: LayerKind) -> list[Priced]:
    """The last product of a dense layer, where recomputation stops before it.

    Routed experts' outputs are weighted and scattered after the last product, norms after it read its output,
    and an adapter's second product follows the frozen one.
    """
    model = setting.model
    last = model.norms_per_layer <= (3 if model.encoder else 2) and not kind.experts
    if setting.framework.kernels.repeats_last_product or setting.training.adapter is not None or not last:
        return []
    return products(parts.named("mlp"), "row", "")


def _gathered(parts: LayerParts, tensor: Transfer) -> np.ndarray:
    """Share of a forward pass's tensor-parallel traffic that gathers inputs of products, shape (plans,).

    torchtitan's selective recomputation of operations keeps the results of reductions, and gathers again
    (activation_checkpoint.py: _save_list).
    """
    gathers = (
        entry
        for entry in parts.forward(*ORDER)
        if isinstance(entry.op, Collective)
        and entry.op.kind == "tensor"
        and entry.op.operation == "all_gather"
    )
    seconds, total = sum_seconds(gathers, np.shape(tensor.total)), tensor.total
    return np.divide(seconds, total, out=np.zeros(np.shape(total)), where=total > 0)


def _every_other_product(
    setting: Setting, parts: LayerParts, first: PassCosts, selective: np.ndarray, work: KernelTimes
) -> None:
    """Append what torchtitan's selective recomputation of operations repeats to ``work``.

    It keeps the results of attention and of every other product, in the order query, key, value, output,
    gate, up, down, and repeats the rest (torchtitan, activation_checkpoint.py: _save_list and mm_count).
    With 8-bit products it takes the same memory (its benchmarks of December 2024), so it keeps as many.
    """
    model = setting.model
    for kind, seconds in first.work.seconds.items():
        if kind not in ("attention", "gemm"):
            work.add(kind, seconds * selective, 0)
    work.extend(KernelTimes({}, first.work.launches, first.work.looped), selective)

    def seconds_of(part: str, role: str) -> np.ndarray:
        return sum_seconds(products(parts.named(part), role, ""), np.shape(selective))

    key = model.kv_heads / (model.heads + 2 * model.kv_heads)
    attention = key * seconds_of("projections", "column") + seconds_of("projections", "row")
    role, share = ("column", 0.5) if model.gated else ("row", 1.0)
    work.add("gemm", (attention + share * seconds_of("mlp", role)) * selective, 0)
