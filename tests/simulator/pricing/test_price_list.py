"""Prices of ops: one call a kernel class gives what the kernels give one by one."""

from __future__ import annotations

import doctest
from dataclasses import replace

import numpy as np
import pytest

import simulator.pricing
from hwmodels.cluster import clusters, usual_cluster
from hwmodels.generation import generations
from hwmodels.kernels import KernelModel
from simulator.models import models
from simulator.ops import (
    SERVING,
    Batch,
    Collective,
    Formats,
    MemoryBound,
    Product,
    Rank,
    Shard,
    backward,
    layer,
)
from simulator.pricing import Prices, price

H100 = clusters.get("dgx-h100").resized(8)


@pytest.fixture(scope="module")
def prices():
    return Prices(H100.device.kernels.sustained().uncorrected(), H100)


def test_the_example_prints_what_it_says():
    assert doctest.testmod(simulator.pricing).failed == 0


def test_each_op_costs_what_its_kernel_costs_alone(prices):
    forward = layer(Rank(models.get("llama3-8b"), Batch.training(2, 4096), Shard(tensor=2)))
    ops = [*forward, *backward(forward)]
    together = price(ops, prices)
    for op, seconds in zip(ops, together, strict=True):
        assert price([op], prices)[0] == pytest.approx(seconds, rel=1e-6), op.name


def test_products_are_those_of_the_kernel_model(prices):
    op = Product(name="p", m=4096.0, n=8192.0, k=1024.0)
    seconds = price([op, *op.backward()], prices)
    kernels = prices.kernels
    least = float(kernels.settled_seconds(2 * 4096 * 8192 * 1024, "bf16"))
    alone = [
        max(least, float(kernels.batched_gemm(1, 4096, 8192, 1024))),
        max(least, float(kernels.batched_gemm(1, 4096, 1024, 8192, layout="dgrad"))),
        max(least, float(kernels.batched_gemm(1, 8192, 1024, 4096, layout="wgrad"))),
    ]
    assert np.allclose(seconds, alone, rtol=1e-6, atol=0)


@pytest.mark.parametrize("device", ["l40s", "rtx-4090", "h100-sxm", "b200"])
def test_served_products_read_their_weights_from_memory(device):
    """Points of small weights may be measured in a warm cache (L40S), where no model keeps its weights."""
    cluster = usual_cluster(device)
    product = Product(name="p", m=np.array([1.0, 16.0, 64.0]), n=8192.0, k=2048.0)
    seconds = price([product], Prices(cluster.device.kernels, cluster, served=True))[0]
    assert (seconds > 2 * 8192 * 2048 / cluster.device.memory_bandwidth).all()


def test_an_older_library_slows_every_product(prices):
    product = Product(name="p", m=4096.0, n=8192.0, k=1024.0)
    heads = Product(name="scores", groups=64.0, m=2048.0, n=2048.0, k=128.0, weights=False)
    slow = price([product, heads], replace(prices, product_share=0.8))
    assert np.allclose(slow, np.divide(price([product, heads], prices), 0.8))


# Primus-Turbo, grouped_gemm_turbo_bf16_20260310_MI300X.csv: (groups, m, n, k), TFLOP/s forward, backward.
@pytest.mark.parametrize(
    ("shape", "forward", "backwards"),
    [
        ((32, 2048, 4096, 7168), 534.8, 446.8),
        ((32, 2048, 7168, 2048), 509.8, 454.1),
        ((10, 4096, 5120, 1536), 483.3, 484.7),
        ((20, 1024, 3072, 5120), 462.8, 382.1),
    ],
)
def test_published_products_of_experts_on_amd(shape, forward, backwards):
    groups, m, n, k = map(float, shape)
    cluster = clusters.get("mi300x-8")
    kernels = cluster.device.kernels.sustained().uncorrected()
    prices = Prices(kernels, cluster, experts_as_dense=True)
    op = Product(name="expert_up", role="expert", kind="grouped_gemm", groups=groups, m=m, n=n, k=k)
    first, dgrad, wgrad = map(float, price([op, *op.backward()], prices))
    flops = 2e-12 * groups * m * n * k
    assert flops / first == pytest.approx(forward, rel=0.12)
    assert 2 * flops / (dgrad + wgrad) == pytest.approx(backwards, rel=0.2)


@pytest.mark.parametrize(("generation", "slower"), [("cdna2", [1.0, 2.0]), ("gaudi2", [4.0, 8.0])])
def test_loads_of_4_bytes_run_at_full_rate_on_amd(generation, slower):
    """GCN returns 16 values of 32 bits a cycle (GPUOpen, Understanding Memory Coalescing on GCN)."""
    lumi = clusters.get("lumi").resized(8)
    found = KernelModel(lumi.device.model_copy(update={"generation": generations.get(generation)}))
    scores = Product(name="scores", groups=64.0, m=2048.0, n=2048.0, k=86.0, weights=False)
    ops = [scores.changed(row_bytes=row_bytes) for row_bytes in (16, 4, 2)]
    aligned, *rest = (float(seconds) for seconds in price(ops, Prices(found, lumi)))
    assert [seconds / aligned for seconds in rest] == pytest.approx(slower)


def test_cases_are_priced_side_by_side(prices):
    """An array of batches costs what each of them costs."""
    model = models.get("mixtral-8x7b")
    sequences, context = np.array([1.0, 8.0, 64.0]), np.array([512.0, 4096.0, 1000.0])
    serving = Prices(prices.kernels.using("vllm"), H100, quantises=True)

    def cost(batch):
        return sum(price(layer(Rank(model, batch, Shard(tensor=4), how=SERVING), experts=True), serving))

    each = [float(cost(Batch.decode(s, c))) for s, c in zip(sequences, context, strict=True)]
    assert cost(Batch.decode(sequences, context)) == pytest.approx(each, rel=1e-6)


def test_ops_of_nothing_take_no_time(prices):
    nothing = [
        MemoryBound(name="none", kind="copy", bytes=0.0),
        Collective(name="alone", kind="tensor", operation="all_reduce", bytes=1e9, size=1.0),
    ]
    assert [float(seconds) for seconds in price(nothing, prices)] == [0.0, 0.0]


def test_repeats_multiply(prices):
    once, thrice = (
        price([MemoryBound(name="n", kind="norm", bytes=1e8, repeats=times)], prices)[0] for times in (1, 3)
    )
    assert thrice == pytest.approx(3 * once)


@pytest.mark.parametrize("serving", ["llama3-8b", "deepseek-v3", "mixtral-8x7b"])
def test_cases_on_two_axes_cost_what_they_cost_one_by_one(serving):
    """Sizes that vary on one axis only are priced on that axis; the result is that of the full grid."""
    cluster = usual_cluster("h100-sxm")
    served = Prices(cluster.device.kernels, cluster, served=True)
    model, shard = models.get(serving), Shard(tensor=2)
    rows, keys = np.array([1.0, 3.0, 64.0, 500.0]), np.array([16.0, 700.0, 4096.0])
    for batch in (Batch.decode, lambda first, second: Batch.prefill(1.0, first, first + second)):
        grid = layer(Rank(model, batch(rows[:, None], keys[None, :]), shard, Formats(), SERVING))
        pairs = np.repeat(rows, len(keys)), np.tile(keys, len(rows))
        flat = layer(Rank(model, batch(*pairs), shard, Formats(), SERVING))
        for op, seconds, expected in zip(grid, price(grid, served), price(flat, served), strict=True):
            whole = np.broadcast_to(seconds, (len(rows), len(keys))).ravel()
            assert np.allclose(whole, expected, rtol=1e-12, atol=0), op.name
