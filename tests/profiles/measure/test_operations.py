"""Operations compute what they claim: shapes, gradients, and two ways to the same answer."""

import pytest

from profiles.measure.bench import Bench
from profiles.measure.machine import find
from profiles.measure.operations import OPERATIONS

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def bench():
    return Bench(find("cpu"))


def first_call(bench, name, **values):
    return OPERATIONS[name].prepare(values, bench)[0]


@pytest.mark.parametrize("layout", ["forward", "dgrad", "wgrad"])
def test_products_have_their_own_shape(bench, layout):
    name = "gemm" if layout == "forward" else "gemm_layouts"
    result = first_call(bench, name, dtype="fp32", layout=layout, m=6, n=10, k=14)()
    assert result.shape == (6, 10)


def test_rotation_is_larger_than_the_cache(bench):
    calls = OPERATIONS["gemm"].prepare(
        {"dtype": "fp32", "layout": "forward", "m": 2, "n": 512, "k": 512}, bench
    )
    assert len(calls) * 512 * 512 * 4 >= min(3 * bench.machine.cache_bytes, 64 * 512 * 512 * 4)


def heads(**changes):
    shape = {"batch": 2, "seq_q": 16, "seq_kv": 16, "n_heads": 4, "n_kv_heads": 2, "head_dim": 8}
    return {"dtype": "fp32", "kernel": "sdpa", **shape, **changes}


def test_attention_forward_and_backward(bench):
    output = first_call(bench, "attention", direction="forward", **heads())()
    assert output.shape == (2, 4, 16, 8)
    gradients = first_call(bench, "attention_backward", direction="backward", **heads())()
    assert [tuple(gradient.shape) for gradient in gradients] == [(2, 4, 16, 8), (2, 2, 16, 8), (2, 2, 16, 8)]


def test_decode_reads_the_whole_cache(bench):
    output = first_call(bench, "attention_decode", **heads(seq_q=1, seq_kv=32))()
    assert output.shape == (2, 4, 1, 8)


def moe(bench, kernel, direction="forward"):
    sizes = {"tokens": 24, "hidden": 16, "inter": 8, "topk": 2, "n_experts": 8, "tp": 1, "ep": 2}
    name = "moe" if direction == "forward" else "moe_backward"
    bench.generator.manual_seed(1)
    torch.manual_seed(1)
    return first_call(bench, name, dtype="fp32", direction=direction, kernel=kernel, dist="balanced", **sizes)


def test_grouped_products_equal_a_loop_over_experts(bench):
    grouped, looped = moe(bench, "grouped_mm"), moe(bench, "loop")
    torch.testing.assert_close(grouped(), looped())
    assert grouped().shape == (24, 16)
    assert sum(grouped.sizes) == 24  # two copies of each token, half of them on this device


def test_moe_backward_reaches_tokens_and_weights(bench):
    gradients = moe(bench, "loop", "backward")()
    assert [tuple(gradient.shape) for gradient in gradients] == [(24, 16), (4, 16, 16), (4, 8, 16)]


def test_rope_turns_and_does_not_stretch():
    from profiles.measure.operations.rope import _rope

    x = torch.randn(5, 2, 128, dtype=torch.float64)
    angles = torch.randn(5, 1, 64, dtype=torch.float64).repeat(1, 1, 2)
    turned = _rope(x, angles.cos(), angles.sin())
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(_rope(turned, angles.cos(), -angles.sin()), x)


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm", "gelu", "silu_mul", "rope", "cross_entropy"])
def test_backward_passes_give_gradients_of_the_inputs(bench, op):
    call = first_call(bench, op, op=op, dtype="fp32", direction="backward", tokens=4, dims=256)
    gradients = call()
    assert gradients[0].shape[0] == 4
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_adam_moves_every_parameter(bench):
    step = first_call(bench, "adam", tokens=2, dims=16)
    (parameter,) = step.__self__.param_groups[0]["params"]
    before = parameter.detach().clone()
    step()
    assert (parameter != before).all()


def test_fp8_product(bench):
    result = first_call(bench, "gemm_fp8", dtype="fp8", layout="forward", m=16, n=32, k=64)()
    assert (result.shape, result.dtype) == ((16, 32), torch.bfloat16)


def test_storage_copies_leave_nothing_behind(tmp_path):
    bench = Bench(find("cpu"), tmp_path)
    values = {"op": "copy_from_storage", "bytes_per_token": 2**20}
    (read,) = OPERATIONS["copy_from_storage"].prepare(values, bench)
    read()
    read.__self__.write()
    assert list(tmp_path.iterdir()) == []
