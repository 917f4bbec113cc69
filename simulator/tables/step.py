"""Seconds, memory and exchanged bytes of one batch of a recommendation model.

Look-ups come first; pooled vectors travel beside the bottom MLP; the interaction and the top MLP follow,
forward and backward; gradients of vectors travel back, then rows are updated, while gradients of the MLPs are
summed. Both kinds of exchange share the wire. Keys of the next batch hide beside the products where the
library overlaps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from core.errors import InfeasibleError
from core.records import record
from hwmodels.device import LIBRARY_BYTES
from hwmodels.kernels.chip import ELEMENT_BYTES
from simulator.ops.op import Collective, Op, backward
from simulator.pricing import Prices, price
from simulator.tables.ops import (
    KEY_LAUNCHES,
    dense_ops,
    dense_parameters,
    dense_update,
    key_ops,
    lookup_bytes,
    lookup_ops,
    reads_of,
    reads_of_copies,
    reduce_ops,
    update_ops,
    vector_ops,
)
from simulator.tables.setting import TablesSetting
from simulator.tables.shards import Pieces, TablePlacement, cut_pieces, place

FINER = (1.0, 2.0, 4.0, 8.0)
"""Pieces of a table per device's share of the work that ``auto`` tries."""


@record()
class PricedOps:
    """A list of ops on one device.

    Attributes:
        device_s: of kernels.
        wire_s: of collectives.
        launches: kernels and collectives.
        sent: bytes that collectives bring to the device.
    """

    device_s: float
    wire_s: float
    launches: float
    sent: float


@record()
class TablesStep:
    """A predicted batch.

    Attributes:
        setting: the question.
        sharding: of the tables.
        parts: by name: lookup, keys, vectors, bottom, top, top_wgrad (products of weights' gradients),
            bottom_backward, gradients (of vectors), update, reduce, dense.
        device_s: of the batch, as devices and wires take it.
        host_s: launches.
        memory_bytes: of the fullest device, by part.
    """

    setting: TablesSetting
    sharding: TablePlacement
    parts: Mapping[str, PricedOps]
    device_s: float
    host_s: float
    memory_bytes: Mapping[str, float]

    @property
    def step_s(self) -> float:
        """Seconds of the batch: the longer of devices and host."""
        return max(self.device_s, self.host_s)

    @property
    def rate(self) -> float:
        """Samples a second of all devices."""
        return self.setting.workload.batch / self.step_s

    @property
    def sent_bytes(self) -> float:
        """Bytes that a step brings to the busiest device."""
        return sum(part.sent for part in self.parts.values())

    @property
    def balance(self) -> float:
        """Work of the busiest device over the mean."""
        mean = float(self.sharding.work_s.mean())
        return float(self.sharding.work_s.max()) / mean if mean else 1.0


def part_of(ops: Iterable[Op], prices: Prices) -> PricedOps:
    """Price a list of ops."""
    listed = list(ops)
    device = wire = launches = sent = 0.0
    for op, time in zip(listed, price(listed, prices), strict=True):
        launches += float(op.launches)
        if isinstance(op, Collective):
            wire += float(np.sum(time))
            size = float(np.max(op.size))
            sent += float(np.sum(op.bytes)) * (size - 1.0) / size
        else:
            device += float(np.sum(time))
    return PricedOps(device, wire, launches, sent)


def shardings(setting: TablesSetting) -> Iterator[TablePlacement]:
    """Candidates of the question's kind of shards; ``auto`` has several, from coarse to fine.

    Raises:
        InfeasibleError: none fits.
    """
    model, shards, devices = setting.model, setting.shards, setting.devices
    stored = setting.row_bytes + setting.state_bytes
    copied = (model.table_rows * stored <= shards.replicated) & (devices > 1)
    cut = np.flatnonzero(~copied)
    if shards.kind in ("row", "column"):
        yield _sharding(setting, copied, np.full(len(cut), shards.pieces or devices), 1)
        return
    if shards.kind == "table":
        yield _sharding(setting, copied, np.ones(len(cut), dtype=np.int64), 1)
        return
    uncut = _pieces(setting, cut, np.ones(len(cut), dtype=np.int64))
    alone = piece_seconds(setting, uncut)
    problem: InfeasibleError | None = None
    fits = False
    for group in sorted({1, setting.node_devices}):
        places = devices // group
        fair = float(alone.sum()) / places
        needed = np.ceil(uncut.bytes / _room(setting, copied) / group)
        for finer in FINER:
            pieces = np.ceil(finer * alone / fair) if fair else np.ones(len(alone))
            counts = np.clip(np.maximum(pieces, needed), 1, places).astype(np.int64)
            try:
                yield _sharding(setting, copied, counts, group)
                fits = True
            except InfeasibleError as error:
                problem = error
    if problem is not None and not fits:
        raise problem


def _room(setting: TablesSetting, copied: np.ndarray) -> float:
    """Bytes of a device for pieces."""
    stored = setting.row_bytes + setting.state_bytes
    copies = stored * float(np.sum(setting.model.table_rows[copied]))
    return setting.shards.room * setting.cluster.device.memory_bytes - copies


def _by(setting: TablesSetting) -> str:
    """Whether tables are cut by rows or columns."""
    return {"row": "rows", "column": "columns"}.get(setting.shards.kind, setting.library.split)


def _pieces(setting: TablesSetting, tables: np.ndarray, counts: np.ndarray) -> Pieces:
    rows, lookups = setting.model.table_rows[tables], setting.model.table_lookups[tables]
    stored = setting.row_bytes + setting.state_bytes
    return cut_pieces(rows, lookups, stored, counts, _by(setting), tables)


def _sharding(setting: TablesSetting, copied: np.ndarray, counts: np.ndarray, group: int) -> TablePlacement:
    """Tables in pieces on groups of devices; the devices of a group divide each of its pieces."""
    coarse = _pieces(setting, np.flatnonzero(~copied), counts)
    room = _room(setting, copied)
    where = place(piece_seconds(setting, coarse), coarse.bytes, setting.devices // group, group * room)
    pieces = _pieces(setting, np.flatnonzero(~copied), group * counts)
    device = (where[:, None] * group + np.arange(group)).ravel()
    seconds = piece_seconds(setting, pieces)
    work = np.bincount(device, seconds, minlength=setting.devices).astype(np.float64)
    bound = max(float(seconds.sum()) / setting.devices, float(seconds.max(initial=0.0)))
    return TablePlacement(pieces, device, np.flatnonzero(copied), work, bound)


def piece_seconds(setting: TablesSetting, pieces: Pieces) -> np.ndarray:
    """Work of each piece for a batch, s: its reads at the memory's bandwidth and its vectors on the wire."""
    reads, cluster = reads_of(setting, pieces), setting.cluster
    seconds = lookup_bytes(setting, reads) / cluster.device.memory_bandwidth
    if setting.devices > 1:
        buffer = setting.vector_bytes * setting.samples * len(setting.model.rows)
        pace = float(cluster.collective("all_to_all", buffer, setting.devices)) / buffer
        seconds = seconds + pace * setting.vector_bytes * setting.workload.batch * pieces.vectors
    return seconds


def predict_step(setting: TablesSetting) -> TablesStep:
    """Predict one batch, with the fastest of the candidate shards.

    Raises:
        InfeasibleError: the tables do not fit the devices.
    """
    steps: list[TablesStep] = []
    problem: InfeasibleError | None = None
    for sharding in shardings(setting):
        try:
            steps.append(_step(setting, sharding))
        except InfeasibleError as error:
            problem = error
    if not steps and problem is not None:
        raise problem
    return min(steps, key=lambda step: step.step_s)


def _step(setting: TablesSetting, sharding: TablePlacement) -> TablesStep:
    """Predict a batch on given shards.

    Raises:
        InfeasibleError: the fullest device lacks memory.
    """
    memory = memory_of(setting, sharding)
    if (needed := sum(memory.values())) > (there := setting.cluster.device.memory_bytes):
        listed = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in memory.items())
        raise InfeasibleError(
            f"the fullest device needs {needed / 1e9:.1f} GB ({listed}); {setting.cluster.device.name} has "
            f"{there / 1e9:.1f}; more devices or a smaller batch would help"
        )
    parts = _parts(setting, sharding)
    host = setting.library.launch_s * sum(part.launches for part in parts.values())
    return TablesStep(setting, sharding, parts, timeline(setting, parts), host, memory)


def _parts(setting: TablesSetting, sharding: TablePlacement) -> dict[str, PricedOps]:
    """Parts of the batch, each on the device that has the most of it."""
    prices = Prices(setting.cluster.device.kernels, setting.cluster)
    pieces = sharding.pieces
    traffic = sharding.summed(lookup_bytes(setting, reads_of(setting, pieces)))
    mine = reads_of(setting, pieces.where(sharding.device == int(np.argmax(traffic))))
    both = mine.with_copies(reads_of_copies(setting, sharding.copied))
    bottom, top = dense_ops(setting)
    sent = setting.workload.batch * float(sharding.summed(pieces.vectors).max(initial=0.0))
    vectors = vector_ops(setting, sent, node_vectors(setting, sharding))
    lists: dict[str, list[Op]] = {
        "lookup": lookup_ops(setting, both),
        "keys": key_ops(setting, mine),
        "vectors": vectors,
        "bottom": bottom,
        "top": top,
    }
    if setting.trains:
        back = backward(top)
        lists |= {
            "top": [*top, *(op for op in back if op.gradient != "weight")],
            "top_wgrad": [op for op in back if op.gradient == "weight"],
            "bottom_backward": backward(bottom),
            "gradients": vectors,
            "update": update_ops(setting, both),
            "reduce": reduce_ops(setting, sharding.copied),
            "dense": dense_update(setting),
        }
    parts = {name: part_of(ops, prices) for name, ops in lists.items()}
    keys, library = parts["keys"], setting.library
    each_s = (setting.devices > 1) * library.dealt_key_s + setting.trains * library.sorted_key_s
    keys_s, launches = each_s * float(np.sum(mine.total)), keys.launches + KEY_LAUNCHES
    return parts | {"keys": PricedOps(keys.device_s + keys_s, keys.wire_s, launches, keys.sent)}


def node_vectors(setting: TablesSetting, sharding: TablePlacement) -> float:
    """Vectors that a device of the busiest node sends to other nodes, once sums of the node are made.

    A node sends a sample's vector of a table once, however many of its devices have pieces: the chance that
    some row of the sample lies in the node, or the width of the node's columns.
    """
    size = setting.node_devices
    pieces, node = sharding.pieces, sharding.device // size
    tables, nodes = len(setting.model.rows), -(-setting.devices // size)
    cell = node * tables + pieces.table
    reads = np.bincount(cell, pieces.lookups, minlength=nodes * tables).reshape(nodes, tables)
    widths = np.bincount(cell, pieces.width, minlength=nodes * tables).reshape(nodes, tables)
    shares = np.minimum(reads / setting.model.table_lookups, 1.0)
    some = 1.0 - (1.0 - shares) ** setting.model.table_lookups
    by_node = np.sum(np.minimum(some, widths), axis=1)
    return float(by_node.max(initial=0.0)) * setting.workload.batch / size


def timeline(setting: TablesSetting, parts: Mapping[str, PricedOps]) -> float:
    """Seconds of the batch from those of its parts.

    Overlapped, the bottom MLP hides vectors; gradients of vectors go first on the wire, beside the products
    of weights' gradients where these have a stream of their own, then those of MLPs beside the update of
    rows; keys of the next batch hide beside the top MLP.
    """

    def of(name: str) -> PricedOps:
        return parts.get(name, PricedOps(0.0, 0.0, 0.0, 0.0))

    keys = of("keys")
    before = of("lookup").device_s
    if not setting.library.overlapped:
        return sum(part.device_s + part.wire_s for part in parts.values())
    inward = max(of("vectors").wire_s, of("bottom").device_s)
    middle = max(of("top").device_s + keys.device_s, keys.wire_s)
    back, wgrad = of("gradients").wire_s, of("top_wgrad").device_s
    back = max(back, wgrad) if setting.library.async_wgrad else back + wgrad
    rows = back + max(of("update").device_s, of("reduce").wire_s)
    after = max(rows, of("bottom_backward").device_s + of("reduce").wire_s) + of("dense").device_s
    return before + inward + middle + after


def memory_of(setting: TablesSetting, sharding: TablePlacement) -> dict[str, float]:
    """Bytes of the fullest device by part."""
    model, size = setting.model, ELEMENT_BYTES[setting.workload.mlp]
    stored = setting.row_bytes + setting.state_bytes
    dense = dense_parameters(setting)
    crosses = model.interaction.layers * (2 * model.joined + model.interaction.rank)
    widths = model.joined * 2 + crosses + sum(model.bottom) + sum(model.top)
    return {
        "tables": float(sharding.summed(sharding.pieces.bytes).max(initial=0.0)),
        "copies": stored * float(np.sum(model.table_rows[sharding.copied])),
        "dense": dense * (size + (12.0 if setting.trains else 0.0)),
        "activations": size * setting.samples * widths,
        "vectors": 2.0
        * setting.vector_bytes
        * setting.workload.batch
        * float(sharding.summed(sharding.pieces.vectors).max(initial=0.0)),
        "workspace": LIBRARY_BYTES,
    }
