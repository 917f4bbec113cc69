"""What tensor-parallel ranks gather, how attention and the output layer are priced, in 8 and 4 bits."""

import numpy as np
import pytest

from core.errors import InputError
from simulator.layout.model_ops import slices_products
from simulator.models import LayerKind, models
from simulator.ops import Batch, Collective, Product, head
from simulator.ops.build import linear
from simulator.ops.rank import Formats, Implementation, Rank
from simulator.plan import Plan, Plans
from simulator.training.layer import layer, layer_ops

DENSE = LayerKind("full", False)


def plans(**degrees):
    return Plans.of(Plan.model_validate(degrees))


SHARDED = plans(tensor=4, data=2, sequence_parallel=True, overlap_tensor="full")
WHOLE = plans(data=8)
BLACKWELL = {"model": "llama3-70b", "devices": 8, "framework": "megatron-bridge", "seq_len": 8192}


def made(make_setting, precision="mxfp8", cluster="gb300-nvl72", **changes):
    return make_setting(cluster=cluster, precision=precision, **BLACKWELL, **changes)


@pytest.mark.parametrize(
    ("precision", "element", "both"),
    [("bf16", 2.0, 2.0), ("fp8", 1.0, 1.0), ("mxfp8", 33 / 32, 33 / 16), ("nvfp4", 9 / 16, 9 / 8)],
)
def test_operands_are_gathered_as_they_were_cast(make_setting, precision, element, both):
    """Scales of blocks travel with the elements; an output's gradient travels by rows and by columns."""
    size = 8192 * 8192
    ops = layer_ops(made(make_setting, precision), SHARDED, DENSE)
    parts = [part for op in ops for part in (op, *op.only_backward)]
    sent = [op for op in parts if isinstance(op, Collective) and op.operation == "all_gather"]
    gathered = {end: {np.max(op.bytes) for op in sent if op.end == end} for end in ("input", "output")}
    assert gathered == {"input": {element * size}, "output": {both * size}}


TOKENS, WIDE, DEEP = 128.0, 512, 256


def linear_ops(**how):
    rank = Rank(
        models.get("llama3-8b"),
        Batch.training(1, int(TOKENS)),
        formats=Formats(linear="fp8"),
        how=Implementation(cast_passes=4.0, **how),
    )
    return linear(rank, "up", "column", WIDE, DEEP, part="mlp")


def test_weights_that_every_pass_quantises_take_half_of_the_passes_in_each():
    """By rows for the forward product, by columns for the gradient of its input: 2 of 4 passes of 2 bytes."""
    cast, _ = linear_ops(casts_weights=True)
    once, _ = linear_ops()
    assert cast.bytes - once.bytes == cast.backward_bytes - once.backward_bytes == 2 * 2 * WIDE * DEEP


def test_backward_products_with_a_scale_a_row_are_scaled_by_kernels_of_their_own():
    """Read and write, of 2 bytes, of the gradients of the input and of the weights; nothing forward."""
    _, product = linear_ops(rescale_passes=2.0)
    scaled = {op.gradient: float(op.bytes) for op in product.only_backward}
    assert scaled == {"input": 2 * 2 * TOKENS * DEEP, "weight": 2 * 2 * WIDE * DEEP}
    _, plain = linear_ops()
    assert not plain.only_backward


def test_user_buffers_have_no_form_for_nvfp4(make_setting):
    assert slices_products(made(make_setting), SHARDED).tolist() == [True]
    assert slices_products(made(make_setting, "nvfp4"), SHARDED).tolist() == [False]


def kernels(setting, part):
    costs = layer(setting, WHOLE, DENSE)
    return [getattr(costs, name).work.seconds[part][0] for name in ("forward", "backward_input")]


def test_attention_in_8_bits_runs_faster_kernels_after_casts(make_setting):
    wide, narrow = (made(make_setting, attention=kernel) for kernel in ("flash", "flash-mx8"))
    forward, backward = (
        a / b for a, b in zip(*(kernels(s, "attention") for s in (wide, narrow)), strict=True)
    )
    assert (forward, backward) == pytest.approx((1.49, 1.38))
    casts = [b - a for a, b in zip(kernels(wide, "elementwise"), kernels(narrow, "elementwise"), strict=True)]
    assert 0 < casts[1] < casts[0]


def test_attention_in_8_bits_is_refused_where_nobody_measured_it(make_setting):
    setting = made(make_setting, "fp8", "dgx-h100", attention="flash-mx8")
    with pytest.raises(InputError, match=r"not measured on 'h100-sxm'; measured on: gb200, gb300"):
        layer(setting, WHOLE, DENSE)


@pytest.mark.parametrize(("narrow", "dtype"), [(False, "bf16"), (True, "mxfp8")])
def test_the_output_layer_runs_in_the_format_of_linear_layers_where_a_launch_says_so(
    make_setting, narrow, dtype
):
    setting = made(make_setting, narrow_output=narrow)
    ops = head(setting.rank(WHOLE))
    assert [op.dtype for op in ops if isinstance(op, Product)] == [dtype]
    assert ("output_layer.cast" in [op.name for op in ops]) == narrow


def test_a_gated_activation_that_keeps_its_inputs_in_8_bits_casts_them_there_and_back(make_setting):
    wide, narrow = (
        next(
            op
            for op in layer_ops(made(make_setting, narrow_activation=kept), WHOLE, DENSE)
            if op.kind == "activation"
        )
        for kept in (False, True)
    )
    inputs = 2 * 8192 * 28672
    assert (wide.saved, narrow.saved) == (2 * inputs, inputs)
    assert (narrow.bytes - wide.bytes, narrow.backward_bytes - wide.backward_bytes) == (
        3 * inputs,
        3 * inputs,
    )
    assert (narrow.launches - wide.launches, narrow.backward_launches - wide.backward_launches) == (1, 1)
    assert narrow.passing == 2 * wide.passing
