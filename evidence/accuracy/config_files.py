"""``config.json`` files as read here: parameters, format, bytes of KV a token and of weights, or the refusal.

    python -m benchmarks.config_files FOLDER

FOLDER may be the ``model_configs`` of the package aiconfigurator-core (0.12.0: 89 files beside sidecars).
Quantised checkpoints whose published size is in ``checkpoint_sizes.yaml`` are set beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import InputError
from core.loading import read_mapping
from evidence.accuracy.kv_by_hand import kv_bytes
from evidence.command import command
from simulator.models.huggingface import read_config
from simulator.models.model import Model
from simulator.models.parts import LayerKind
from simulator.ops.counts import encoder_parameters, layer_counts, model_parameters
from simulator.ops.tower import tower_parameters
from simulator.serving.steps.memory import KV_BYTES, kv_token_bytes
from simulator.serving.steps.weight_only import ENDS_BYTES, NARROW, stored_bytes

SIZES = Path(__file__).with_name("checkpoint_sizes.yaml")
LIMIT = 0.02
"""Difference from the published size that counts as right, beyond what its rounding hides."""
Size = Callable[[str], float]
"""Bytes, or numbers in the file, of one weight of a format."""


class Part(NamedTuple):
    """Weights of one part of a checkpoint."""

    weights: float
    shares: Mapping[Any, float]
    """By format."""

    def size(self, of: Size) -> float:
        """Bytes or numbers of the part."""
        return self.weights * sum(share * of(name) for name, share in self.shares.items())


def checkpoint_parts(model: Model, mtp: str | None = None) -> list[Part]:
    """The weights of a checkpoint by part and format.

    Args:
        model: as read from its ``config.json``.
        mtp: format of the layers of multi-token prediction; None: the files have none.
    """
    stated = model.parts
    only: Mapping[Any, float] = {model.checkpoint: 1.0}
    wide: Mapping[Any, float] = {"bf16": 1.0}
    groups, counts = model.layer_groups, layer_counts(model)
    parts = []
    for kind, count in counts.items():
        layers = len(groups[kind])
        others = count.parameters - count.attention - count.experts
        weights = {"attention": count.attention, "dense": others, "experts": count.experts}
        for name, dtype in weights.items():
            shares = dict(getattr(stated, name)) if stated else only
            parts.append(Part(layers * dtype, shares or wide))
    head = dict(stated.head) if stated else {}
    parts.append(Part(model.output_parameters, head or wide))
    ends = model.embedding_parameters + model.other_parameters + encoder_parameters(model)
    parts.append(Part(ends, wide))
    if model.tower:
        parts.append(Part(tower_parameters(model.tower), wide))
    if mtp:
        cached = [kind for kind in counts if kind.mixer != "linear"]
        last = max(cached, key=lambda kind: counts[kind].parameters, default=LayerKind())
        # The copies of embedding and output layer are those of DeepSeek-V3; others share the model's.
        copies = 2 * model.embedding_parameters if model.family == "deepseek_v3" else 0
        parts += [Part(counts[last].parameters * model.mtp_layers, {mtp: 1.0}), Part(copies, wide)]
    return parts


def weight_gigabytes(model: Model, mtp: str | None = None) -> float:
    """GB of a checkpoint's weights, scales included."""
    of: Size = lambda name: stored_bytes(model, name) if name in NARROW else ENDS_BYTES  # noqa: E731
    return 1e-9 * sum(part.size(of) for part in checkpoint_parts(model, mtp))


def published_error(model: Model, row: dict[str, Any]) -> tuple[str, float, float]:
    """Our size beside a published one in words, the relative difference, and that which rounding hides."""
    mtp = row.get("mtp")
    if "bytes" in row:
        ours, published, unit = weight_gigabytes(model, mtp), row["bytes"], "GB"
    else:
        block = 32 if model.fp4 == "mxfp4" else 16
        narrow = 0.5 + (1 / block if row["scales"] else 0.0)
        of: Size = lambda name: narrow if name in ("fp4", "int4") else 1.0  # noqa: E731
        ours = 1e-9 * sum(part.size(of) for part in checkpoint_parts(model, mtp))
        published, unit = row["elements"], "B numbers"
    rounding = 0.05 if isinstance(published, float) else 0.5
    return f"{ours:.1f} for {published} {unit}", ours / published - 1, rounding / published


@command
def main(folder: Path) -> int:
    """Print a line a file; exit 1 where one is refused."""
    refused = right = rows = exact = 0
    sizes: list[dict[str, Any]] = read_mapping(SIZES)["rows"]
    files = [path for path in sorted(folder.rglob("*config.json")) if "quant" not in path.name]
    for path in files:
        name = path.parent.name if path.name == "config.json" else path.name.removesuffix("_config.json")
        try:
            model = read_config(path)
        except InputError as error:
            refused += 1
            print(f"{name:56} refused: {str(error)[-160:]}")
            continue
        kv = kv_token_bytes(model, 1, 1, model.checkpoint_kv)
        by_hand = kv_bytes(read_mapping(path, bounded=False), KV_BYTES.get(model.checkpoint_kv or "", 2.0))
        exact += math.isclose(kv, by_hand)
        without = f" without {model.left_out}" if model.left_out else ""
        without = f" format not read: {model.checkpoint_problem}" if model.checkpoint_problem else without
        if not math.isclose(kv, by_hand):
            without = f" BY HAND {by_hand:,.0f} B;{without}"
        print(
            f"{name:56} {1e-9 * model_parameters(model):9.2f}B {model.checkpoint:5} {kv:9,.0f} B "
            f"{weight_gigabytes(model):8.1f} GB{without[:90]}"
        )
        for row in sizes:
            if name.endswith(f"nvidia--{row['name']}"):
                words, error, rounding = published_error(model, row)
                inside = abs(error) <= LIMIT + rounding
                rows, right = rows + 1, right + inside
                print(f"{'':57}{words}: {100 * error:+.1f} %{'' if inside else ', misses'}")
    print(f"{len(files) - refused} of {len(files)} read, {exact} with KV bytes of a token as by hand")
    if rows:
        print(f"{right} of {rows} published sizes within {LIMIT:.0%} beyond their rounding")
    return 1 if refused else 0
