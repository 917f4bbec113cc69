"""Step time and peak memory from the logs that training frameworks print."""

from __future__ import annotations

import time

import pytest
import yaml

import meshwright as mw
from meshwright.observations.training_logs import read_log

SCENARIO = {
    "model": "llama3-8b",
    "cluster": "dgx-h100",
    "gpus": 8,
    "workload": {"seq_len": 8192, "global_batch": 128, "precision": "bf16"},
    "plan": {"data": 8, "zero": 1, "micro_batch": 1, "recompute": "none", "sequence_parallel": False},
}
MEGATRON = (
    " [2026-03-01 10:00:{second:02d}] iteration {iteration:8d}/     100 | consumed samples: {samples:12d} | "
    "elapsed time per iteration (ms): {elapsed:.1f} | throughput per GPU (TFLOP/s/GPU): 410.3 | "
    "learning rate: 1.000000E-04 | global batch size: {batch:5d} | lm loss: 1.032911E+01 | "
    "loss scale: 1.0 | grad norm: 2.154 | number of skipped iterations:   0 | "
    "number of nan iterations:   0 |"
)
MEMORY = (
    "[Rank {rank}] (after 10 iterations) memory (MB) | allocated: 41000.5 | max allocated: 60211.25 | "
    "reserved: 62000.0 | max reserved: {reserved}"
)
TORCHTITAN = (
    "[rank0]:[titan] 2026-03-01 10:00:00,000 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: 12.2512  "
    "\x1b[33mgrad_norm:  3.4102  \x1b[36mmemory: {memory:5.2f}GiB({share:.2f}%)  \x1b[34mtps: {tps:,}  "
    "\x1b[36mtflops: 420.10  \x1b[35mmfu: 42.47%\x1b[39m"
)
VALIDATION = "[rank0]:[titan] validate step: 10  loss: 11.0000  memory: 90.00GiB(99.00%)  tps: 99,999"


@pytest.fixture
def trial(tmp_path):
    """A function that writes a log beside its scenario."""

    def write(lines, framework, name="train.log"):
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump({**SCENARIO, "framework": framework}))
        path = tmp_path / name
        path.write_text("\n".join(["loading ...", *lines]) + "\n")
        return path

    return write


def megatron(elapsed, batch=128):
    return [
        MEGATRON.format(second=i, iteration=10 * (i + 1), samples=0, elapsed=1e3 * seconds, batch=batch)
        for i, seconds in enumerate(elapsed)
    ]


def test_megatron_lines_give_the_median_without_the_first_interval(trial):
    memory = [MEMORY.format(rank=rank, reserved=reserved) for rank, reserved in ((0, 62412.0), (7, 64512.0))]
    found = read_log(trial([*megatron([90.0, 10.1, 10.3, 10.2]), *memory], "megatron-core"))
    assert found.seconds == pytest.approx(10.2)
    assert found.peak_bytes == 64512 * 2**20
    assert found.plan.zero == 1 and found.setting.cluster.devices == 8


def test_intervals_of_a_ramping_batch_do_not_count(trial):
    found = read_log(trial([*megatron([5.0, 5.0, 5.0], batch=64), *megatron([11.0, 10.0])], "megatron-core"))
    assert found.seconds == pytest.approx(10.0)


def test_torchtitan_lines_give_tokens_per_second_and_device(trial):
    lines = [TORCHTITAN.format(step=1, memory=70.5, share=89.2, tps=900)]
    lines += [TORCHTITAN.format(step=step, memory=71.25, share=90.1, tps=8192) for step in (10, 20, 30)]
    found = read_log(trial([*lines, VALIDATION], "torchtitan", "slurm-17.out"))
    assert found.seconds == pytest.approx(128 / 8)  # a sequence of 8,192 tokens takes a second
    assert found.peak_bytes == 71.25 * 2**30


def test_nemo_lines_give_the_time_of_a_step(trial):
    line = "Training epoch 0, iteration {}/99 | lr: 4e-06 | global_batch_size: 128 | global_step: {} | "
    lines = [line.format(i, i) + f"train_step_timing in s: {t}" for i, t in enumerate((20.0, 5.0, 5.2))]
    assert read_log(trial(lines, "megatron-core")).seconds == pytest.approx(5.1)
    with pytest.raises(mw.InputError, match="global batch is 64"):
        read_log(trial([text.replace(": 128", ": 64") for text in lines], "megatron-core"))
    bar = ["Epoch 0: 10%|#  | 10/100 [00:20<03:00, 0.50it/s, v_num=0, train_step_timing in s=2.5]"]
    assert read_log(trial(bar, "megatron-core")).seconds == 2.5


def test_deepspeed_lines_give_samples_of_all_ranks(trial):
    line = "[INFO] [timer.py:264:stop] epoch=0/micro_step=8/global_step=2, RunningAvgSamplesPerSec=31.0, "
    lines = [line + "CurrSamplesPerSec=32.0, MemAllocated=4.7GB, MaxMemAllocated=20.5GB"] * 2
    found = read_log(trial(lines, "deepspeed-zero3"))
    assert found.seconds == 4.0
    assert found.peak_bytes == 20.5 * 2**30


def test_the_trainers_summary_gives_its_mean_step(trial):
    lines = ["{'train_runtime': 812.5, 'train_samples_per_second': 32.0, 'train_steps_per_second': 0.25}"]
    assert read_log(trial(lines, "torchtitan")).seconds == 4.0


def test_logs_are_learned_from(trial, tmp_path):
    found = mw.learn(trial(megatron([30.0, 10.1, 10.3, 10.2]), "megatron-core"))
    assert [step.name for step in found.steps] == [f"{tmp_path.name}/train.log"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["nothing of interest"], "no line states a step time"),
        (megatron([10.0, 10.0], batch=64), "the global batch is 64 sequences"),
    ],
)
def test_logs_without_a_usable_line_are_refused(trial, lines, message):
    with pytest.raises(mw.InputError, match=message):
        mw.learn(trial(lines, "megatron-core"))


def test_a_log_without_its_scenario_is_refused(tmp_path):
    (tmp_path / "train.log").write_text("\n".join(megatron([10.0])))
    with pytest.raises(mw.InputError, match=r"plan\.yaml in its folder"):
        mw.learn(tmp_path / "train.log")


@pytest.mark.parametrize("number", ["0.0", "1.2.3", ",", "nan", "inf", "9" * 310, "1" * 5000, "-5.0"])
def test_a_line_whose_numbers_cannot_be_read_does_not_count(trial, number):
    lines = megatron((9.0, 5.0, 5.2))
    (odd,) = (line.replace("1234.5", number) for line in megatron((1.2345,)))
    path = trial([*lines, odd], "megatron-core")
    assert read_log(path).seconds == pytest.approx(5.1)
    with pytest.raises(mw.InputError, match="no line states a step time"):
        read_log(trial([odd], "megatron-core"))


@pytest.mark.parametrize("number", [",", "0", "1,2.3.4"])
def test_rates_that_cannot_be_read_do_not_count(trial, number):
    odd = TORCHTITAN.format(step=1, memory=40.1, share=50.0, tps=77777).replace("77,777", number)
    with pytest.raises(mw.InputError, match="no line states a step time"):
        read_log(trial([odd], "torchtitan"))


def test_a_log_of_one_line_takes_no_time(trial):
    line = " iteration 1/ 5 | elapsed time per iteration (ms): 5.0 |" * 20_000
    started = time.process_time()
    with pytest.raises(mw.InputError, match="no line states a step time"):
        read_log(trial([line, line.replace(" |", " ")], "megatron-core"))
    assert time.process_time() - started < 2
