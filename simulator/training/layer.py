"""One transformer layer: kernels and communication of its forward, backward and recomputed passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace
from functools import cached_property, partial

import numpy as np

from core.records import record
from simulator.layout.model_ops import layer_lists
from simulator.models import LayerKind
from simulator.ops import Collective, Op, Product
from simulator.ops import elementwise as passes
from simulator.ops.experts import ROUTING
from simulator.plan import FULL, SELECTIVE, Plans
from simulator.setting import Setting
from simulator.training.combined import Work, alone_share, beside_partner, waits_together
from simulator.training.modules import repeats
from simulator.training.overlap import NO_TRANSFER, Transfer, exchange_slowdown
from simulator.training.tensor import products, tensor_traffic
from simulator.training.work import KernelTimes, Priced, price_passes, sum_costs, sum_seconds

ORDER = "projections", "core", "mlp", "routed", "around"
"""Parts of a layer in the order in which they run."""

GRAPH_LAUNCHES = 1
"""Launches of a pass whose other kernels a graph replays."""


@record()
class PassCosts:
    """One pass through a layer: kernels, and each kind of communication inside it.

    ``after_read`` are those of the kernels that the host launches after it has read how many tokens each
    expert has, where it does; ``reads`` says for which plans. ``blocked``: for which plans the host launches
    nothing while tokens are exchanged with experts. ``waits``: share of its waits for the host that a pass
    has beside those it is combined with, shape (plans,). ``unproven``: seconds of waiting that a gain which
    no run near measured is expected to leave (``simulator.training.expected``), shape (plans,).
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
        free = device + self.waits * np.maximum(self.lag, 0.0) + self.unproven
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
    def lag(self) -> np.ndarray:
        """Seconds by which launching the kernels takes longer than they and what is exposed beside them."""
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
        return np.where(self.blocked, self.expert.exposed - self.expert.total, self.expert.paired)

    def _host(self, work: KernelTimes) -> np.ndarray | float:
        setting = self.setting
        python, loops = setting.host_seconds_per_kernel, setting.host_seconds_per_looped_kernel
        return work.launches * python + work.looped * loops

    @cached_property
    def exposed(self) -> np.ndarray:
        """Exposed seconds of communication."""
        return self.tensor.exposed + self.context.exposed + self.expert.exposed


@record()
class Layer:
    """What one layer costs for one micro batch on one device; arrays of shape (plans,).

    ``backward_weight`` holds no communication, so a schedule may move it. ``recompute`` is the work that the
    plan's recomputation adds before the backward pass. ``experts`` are those kernels of the other passes that
    run between dispatch to experts and combination.
    """

    forward: PassCosts
    backward_input: PassCosts
    backward_weight: PassCosts
    recompute: PassCosts
    experts: Work


def layer(setting: Setting, plans: Plans, kind: LayerKind) -> Layer:
    """Cost of one layer of a kind."""
    return layer_passes(setting, plans, price_passes(setting, layer_ops(setting, plans, kind))[0], kind)


def layer_ops(setting: Setting, plans: Plans, kind: LayerKind) -> list[Op]:
    """Forward ops of one layer."""
    return layer_lists(setting, plans, [kind])[0]


def layer_passes(setting: Setting, plans: Plans, prices: list[Priced], kind: LayerKind) -> Layer:
    """The passes that priced ops of one layer make."""
    model, parts = setting.model, _Parts(prices)
    forward = KernelTimes.of(parts.forward(*ORDER))
    backward_input = KernelTimes.of(parts.backward("input"))
    backward_weight = KernelTimes.of(parts.backward("weight"))
    if setting.framework.kernels.stacks_activations:
        _stack(setting, plans, parts, forward, backward_input)

    communicates = not kind.experts or (model.moe and model.moe.shared_experts)
    mixer, mlp = parts.named("projections"), parts.named("mlp")
    blocks = [mixer + mlp] if model.parallel_block else [mixer, mlp] if communicates else [mixer]
    blocks = [block for block in blocks if block]
    tensor = tensor_traffic(setting, plans, blocks, (forward.device, backward_input.device))
    forward.add("gemm", tensor.slicing_forward, 0)
    backward_input.add("gemm", tensor.slicing_backward, 0)
    graphed = partial(in_graph, setting.graphs, kind.experts)
    works = (forward, ("",), ("",)), (backward_input, ("input",), ("input", "weight"))
    for work, gradients, sent in (*works, (backward_weight, ("weight",), ())):
        sends = (op for op, _ in prices if op.kind == "tensor" and op.gradient in sent and not graphed(op))
        work.launches = work.launches + sum((op.launches for op in sends), 0.0)
        if setting.graphs != "none":
            replayed = [entry for entry in prices if entry.op.gradient in gradients and graphed(entry.op)]
            inside = KernelTimes.of(replayed)
            work.launches = work.launches - inside.launches + GRAPH_LAUNCHES
            work.looped = work.looped - inside.looped
    core = KernelTimes.of(parts.forward("core"))
    if any(graphed(entry.op) for entry in parts.named("core")):
        # The graph of the backward pass repeats the core too.
        core = KernelTimes(core.seconds)
    context = context_traffic(setting, plans, parts.named("core"))
    expert = [parts.sent(setting, "expert", gradient, len(plans)) for gradient in ("", "input")]
    routed = KernelTimes.of(parts.between_exchanges(""))
    counted = setting.framework.host.reads_token_counts and not setting.choices.fixed_capacity
    uncounted = not counted or setting.graphs == "step"
    counts = kind.experts and not uncounted
    reads = ~plans.overlap_expert.astype(bool) & counts
    blocked = kind.experts and _blocked(setting, plans)
    first = PassCosts(forward, tensor.forward, context[0], expert[0], setting, routed, reads, blocked)
    back = PassCosts(backward_input, tensor.backward, context[1], expert[1], setting, blocked=blocked)
    weight = PassCosts(backward_weight, NO_TRANSFER, NO_TRANSFER, NO_TRANSFER, setting)
    _alternate(back, weight)
    exposed = Layer(
        forward=first,
        backward_input=back,
        backward_weight=weight,
        recompute=_recompute(setting, plans, parts, core, first, _modules(setting, parts, kind, graphed)),
        experts=Work(*(parts.experts(gradient) for gradient in ("", "input", "weight"))),
    )
    return overlapped(plans, exposed, alone_share(setting, plans)) if plans.overlap_expert.any() else exposed


class _Parts:
    """Priced ops of a layer by the part that they belong to: linear layers first, part by part."""

    def __init__(self, prices: list[Priced]) -> None:
        self.prices = _linear_first(prices)

    def named(self, *parts: str) -> list[Priced]:
        """All ops of some parts, forward and backward."""
        return [entry for entry in self.prices if entry.op.part in parts]

    def forward(self, *parts: str) -> list[Priced]:
        """Forward ops of some parts."""
        return [entry for entry in self.named(*parts) if not entry.op.gradient]

    def backward(self, gradient: str) -> list[Priced]:
        """Backward ops for the gradients of inputs or of weights."""
        return [entry for entry in self.prices if entry.op.gradient == gradient]

    def between_exchanges(self, gradient: str) -> list[Priced]:
        """Ops of one pass between dispatch to experts and combination."""
        return [
            entry
            for entry in self.prices
            if entry.op.part == "routed" and entry.op.gradient == gradient and entry.op.module != ROUTING
        ]

    def experts(self, gradient: str) -> np.ndarray:
        """Device seconds of the kernels of one pass between dispatch and combination, shape (plans,)."""
        return KernelTimes.of(self.between_exchanges(gradient)).device

    def sent(self, setting: Setting, kind: str, gradient: str, plans: int) -> Transfer:
        """One kind of communication, with no kernels to run beside; seconds of shape (plans,)."""
        sends = [entry for entry in self.prices if entry.op.kind == kind and entry.op.gradient == gradient]
        return Transfer(sum_costs(setting, sends, (plans,))) if sends else NO_TRANSFER


def _linear_first(prices: Iterable[Priced]) -> list[Priced]:
    def place(each: Priced) -> tuple[int, int, bool]:
        return (0 if each.op.role or each.op.beside else 1), ORDER.index(each.op.part), each.op.beside

    return sorted(prices, key=place)


def in_graph(graphs: str, experts: bool, op: Op) -> bool:
    """Whether a CUDA graph replays an op; graphs of a layer hold no routed experts, whose tokens differ."""
    if graphs in ("none", "step"):
        return graphs == "step"
    if not experts:
        return graphs == "layer" or (graphs == "attention" and op.part in ("projections", "core"))
    if op.part == "routed":
        return op.module == ROUTING
    return op.part == "mlp" or graphs != "router"


def overlapped(plans: Plans, layer: Layer, alone: np.ndarray | float = 0.0) -> Layer:
    """A layer of plans that expose the exchange with experts, as plans that overlap it have it.

    ``alone`` is the share of passes without a partner, shape (plans,).
    """
    ahead, back = layer.forward, layer.backward_input
    if ahead.expert is NO_TRANSFER:
        return layer
    setting, overlaps = ahead.setting, plans.overlap_expert.astype(bool)
    passes = ahead, back, layer.backward_weight
    attention = Work(
        *(costs.device - expert_s for costs, expert_s in zip(passes, layer.experts, strict=True))
    )
    size = plans.expert * plans.expert_tensor
    slows = (
        exchange_slowdown(setting, size, ahead.expert.cost),
        exchange_slowdown(setting, size, back.expert.cost),
    )
    sent = ahead.expert.total, back.expert.total
    beside = beside_partner(*sent, attention, layer.experts, slows)
    first, second = (
        Transfer(costs.expert.cost, np.where(overlaps, seconds, 0.0), lost, alone)
        for costs, seconds, lost in zip((ahead, back), beside, slows, strict=True)
    )
    forward = replace(ahead, expert=first, reads=ahead.reads & ~overlaps)
    backward = replace(back, expert=second)
    combined = overlaps & (ahead.expert.total > 0)
    waits = np.where(combined, waits_together(forward.lag, backward.lag, layer.backward_weight.lag), 1.0)
    forward, backward, weight = (
        replace(costs, waits=waits) for costs in (forward, backward, layer.backward_weight)
    )
    return replace(layer, forward=forward, backward_input=backward, backward_weight=weight)


def _blocked(setting: Setting, plans: Plans) -> np.ndarray:
    """Whether CPU proxies of the dispatcher keep the host from launching during an exchange between nodes."""
    choices, cluster = setting.choices, setting.cluster
    posts = choices.dispatcher != "all-to-all"
    posts = posts and cluster.network.dispatcher(choices.dispatcher_library).blocks_host
    return posts & (plans.expert * plans.expert_tensor > max(cluster.domain, cluster.devices_per_node))


def _alternate(inputs: PassCosts, weights: PassCosts) -> None:
    """Spread the launches of both backward passes over the time that the device needs for them.

    Autograd runs them linear layer by linear layer, so long kernels of one, and communication that is exposed
    beside them, let the host catch up with short ones of the other: both take the time of the device or of
    all launches.
    """
    needed = [np.maximum(costs.needed, 0.0) for costs in (inputs, weights)]
    both = needed[0] + needed[1]
    share = np.divide(needed[0], both, out=np.full(np.shape(both), 0.5), where=both > 0)
    launches = inputs.work.launches + weights.work.launches
    looped = inputs.work.looped + weights.work.looped
    for work, part in ((inputs.work, share), (weights.work, 1 - share)):
        work.launches, work.looped = launches * part, looped * part


def context_traffic(setting: Setting, plans: Plans, core: list[Priced]) -> tuple[Transfer, Transfer]:
    """Context-parallel traffic forward and backward, and how much of it runs beside attention.

    Ring attention computes a block while the next one's keys and values travel; gathers and all-to-alls are
    not hidden (Llama 3, section 3.3.2). Each op states its window, so those of a linear layer follow its own
    algorithm. Sends take few channels: they slow nothing.
    """
    if (plans.context == 1).all():
        return NO_TRANSFER, NO_TRANSFER
    transfers = []
    for gradient in ("", "input"):
        direction = [entry for entry in core if entry.op.gradient == gradient]
        sends = [entry for entry in direction if entry.op.kind == "context"]
        cost = sum_costs(setting, sends, (len(plans),))
        windows = [(entry, window) for entry in sends if np.any(window := getattr(entry.op, "window", 0.0))]
        beside = np.zeros(len(plans))
        if windows:  # the sends of one plan share its window
            sent = sum(np.where(window > 0, entry.seconds, 0.0) for entry, window in windows)
            widest = np.maximum.reduce([np.broadcast_to(window, beside.shape) for _, window in windows])
            beside = np.minimum(sent, widest * KernelTimes.of(direction).device)
        transfers.append(Transfer(cost, beside))
    return transfers[0], transfers[1]


def _stack(
    setting: Setting, plans: Plans, parts: _Parts, forward: KernelTimes, backward: KernelTimes
) -> None:
    """Copies of the kept activations into the stack that XLA's loop over the layers carries, and out of it.

    The layer's input is always kept; outputs of its products are kept unless they are recomputed.
    """

    def outputs(part: str) -> np.ndarray:
        written = (
            each.op.n
            for each in parts.named(part)
            if isinstance(each.op, Product) and not each.op.gradient and each.op.module != "router"
        )
        return np.zeros(len(plans)) + sum(written)

    repeats_mlp = (plans.recompute == SELECTIVE) & (_selective(setting) == "all-but-projections")
    written = outputs("projections") + np.where(repeats_mlp, 0.0, outputs("mlp"))
    written = np.where(plans.recompute == FULL, 0.0, written)
    bytes_moved = passes.COPY * setting.width * setting.tokens(plans) * (setting.model.hidden + written)
    for work in (forward, backward):
        work.add("copy", setting.kernels.memory_bound(bytes_moved, "copy"))


def _selective(setting: Setting) -> str:
    """What selective recomputation repeats: "modules" that are named, or the framework's rule."""
    return setting.framework.selective if setting.choices.recompute_modules is None else "modules"


def _modules(setting: Setting, parts: _Parts, kind: LayerKind, graphed: Callable[[Op], bool]) -> KernelTimes:
    """Kernels of the modules that selective recomputation names; graphs of the backward pass hold theirs."""
    work = KernelTimes()
    for each in parts.forward(*ORDER):
        if repeats(each.op, setting.choices.recompute_modules or (), kind.experts):
            times = KernelTimes.of([each])
            work.extend(KernelTimes(times.seconds) if graphed(each.op) else times)
    return work


def _recompute(
    setting: Setting,
    plans: Plans,
    parts: _Parts,
    core: KernelTimes,
    first: PassCosts,
    modules: KernelTimes,
) -> PassCosts:
    """The framework sets the ops that selective recomputation repeats; full repeats the forward pass."""
    rule = _selective(setting)
    selective, full = plans.recompute == SELECTIVE, plans.recompute == FULL
    work = KernelTimes()
    if rule == "every-other-product":
        _every_other_product(setting, parts, first, selective, work)
    else:
        work.extend(modules if rule == "modules" else core, selective * 1.0)
    if rule == "all-but-projections":
        work.extend(KernelTimes.of(parts.forward("mlp", "routed")), selective * 1.0)
    work.extend(first.work, full * 1.0)
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


def _gathered(parts: _Parts, tensor: Transfer) -> np.ndarray:
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
    setting: Setting, parts: _Parts, first: PassCosts, selective: np.ndarray, work: KernelTimes
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
