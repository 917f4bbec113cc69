"""Prices of ops: one call a kernel class gives what the kernels give one by one."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

import simulator.pricing
from hwmodels.cluster import clusters
from simulator.models import models
from simulator.ops import SERVING, Batch, Collective, MemoryBound, Product, Rank, Shard, backward, layer
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
