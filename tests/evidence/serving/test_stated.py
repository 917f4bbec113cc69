"""What rows state of servers and clients, as keys of scenarios."""

import pytest

from core.loading import build
from evidence.serving.case import MeasuredRow
from evidence.serving.stated import LONGEST, NOTHING, lengths, read_stated
from hwmodels.device import devices
from meshwright.validation.rows import SkippedRow
from simulator.lengths.lognormal import Lognormal
from simulator.serving.engines import engines


def row(**values) -> MeasuredRow:
    return MeasuredRow({name: str(value) for name, value in values.items()}, "row")


def test_a_row_without_columns_states_nothing():
    assert read_stated(row()) == NOTHING
    assert NOTHING.options == {}


def test_limits_and_memory_become_options():
    found = read_stated(row(max_num_seqs=512, max_num_batched_tokens=32768, memory_share=0.85))
    assert found.options == {"max_sequences": 512, "token_budget": 32768, "memory_share": 0.85}


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (
            '--speculative-config={"method":"mtp","num_speculative_tokens":4}',
            {"kind": "mtp", "tokens": 4},
        ),
        (
            "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-num-draft-tokens 16",
            {"kind": "eagle3", "tokens": 3, "verified": 16},
        ),
        (
            '--speculative-config {"model":"x-Eagle3-v3","num_speculative_tokens":7,"method":"eagle3"}',
            {"kind": "eagle3", "tokens": 7},
        ),
        ("--speculative-algorithm NEXTN --speculative-num-steps 2", {"kind": "mtp", "tokens": 2}),
        ("--speculative-algorithm EAGLE --speculative-num-steps 1", {"kind": "eagle", "tokens": 1}),
        ("--max-model-len=32768", {}),
    ],
)
def test_command_lines_tell_speculation(arguments, keys):
    assert dict(read_stated(row(server_args=arguments)).speculation) == keys


def test_conversations_are_short_as_the_client_draws_them():
    found = lengths(232.0, 0.96, varied=True)
    assert found["kind"] == "lognormal"
    assert found["most"] == LONGEST
    assert build(Lognormal, found, "lengths").mean() == pytest.approx(232.0)


def test_headings_name_the_dataset_of_a_row_that_leaves_it_out():
    heads = "; heads: Other Benchmark Cases / ShareGPT; mean in flight by Little 437"
    assert read_stated(row(notes=heads)).varied
    assert not read_stated(row(notes=heads, dataset="random")).varied


def test_a_mode_doubles_the_limits_that_no_row_states():
    stated = read_stated(row(server_args="--performance-mode=throughput", max_num_seqs=512))
    engine, device = engines.get("vllm-0.17"), devices.get("h100-sxm")
    options = stated.options_of(engine, device)
    assert options == {"max_sequences": 512, "token_budget": 2 * engine.token_budget(device)}
    assert NOTHING.options_of(engine, device) == {}


def test_nominal_lengths_are_the_longest():
    assert lengths(980.0, 0.96, varied=False) == {"kind": "uniform", "low": 960, "high": 1000}
    assert lengths(1.0, 1.0, varied=False) == 1


def test_drafts_of_a_method_that_the_row_leaves_out_are_skipped():
    with pytest.raises(SkippedRow, match="method of its drafts not stated"):
        read_stated(row(spec="draft", drafts=3))


@pytest.mark.parametrize(
    ("values", "caches"),
    [
        ({}, None),
        ({"prefix_caching": "on"}, True),
        ({"prefix_caching": "off"}, False),
        ({"server_args": "--disable-radix-cache"}, False),
        ({"server_args": "vllm serve x --no-enable-prefix-caching"}, False),
    ],
)
def test_a_row_states_whether_its_server_caches_prefixes(values, caches):
    assert read_stated(row(**values)).prefix_caching is caches


def test_a_command_line_tells_buffers_of_states():
    assert read_stated(row(server_args="--mamba-scheduler-strategy extra_buffer")).state_buffers
    assert not read_stated(row(server_args="--mamba-scheduler-strategy auto")).state_buffers
