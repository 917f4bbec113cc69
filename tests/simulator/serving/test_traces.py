"""Trace readers on typed excerpts: columns, units, order, rows left out, and errors with their place."""

import gzip
import json

import pytest

from core.errors import InputError
from simulator.serving.workload import Serving
from simulator.serving.workload.source import Source
from simulator.serving.workload.traces import get_format
from simulator.serving.workload.traces.detection import detect_format

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2225670,879,0
2023-11-16 18:15:51.3911420,91,16
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,API log
120.5,GPT-4,1360,276,1636,API log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48]}
{"timestamp": 3052, "input_length": 6472, "output_length": 26, "hash_ids": [46, 47, 2353]}
"""
PLAIN = """arrived_at,num_prefill_tokens,num_decode_tokens
0.5,100,10
1.25,2000,1
"""
BAILIAN = """{"chat_id": 7, "timestamp": 0.5, "input_length": 40, "output_length": 9, "hash_ids": [1, 2, 3]}
{"chat_id": 7, "timestamp": 62.25, "input_length": 50, "output_length": 3, "hash_ids": [1, 2, 8, 9]}
"""
SPLITWISE = """request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size
0,2,0,0.25,1,374,44
1,2,0,3.5,1,396,109
"""
LLMSERVINGSIM = """{"input_toks": 20, "output_toks": 5, "arrival_time_ns": 1500000000, "input_tok_ids": [1]}
"""
VLLM = json.dumps({"input_lens": [1024, 7], "output_lens": [128, 3], "start_times": [100.5, 100.0]})
SGLANG = (
    json.dumps({"input_lens": [5], "output_lens": [6]})
    + "\n"
    + json.dumps({"input_lens": [7, 8], "output_lens": [9, 0]})
)
SHAREGPT = json.dumps(
    [
        {"conversations": [{"from": "human", "value": "a" * 40}, {"from": "gpt", "value": "b" * 400}]},
        {"conversations": [{"from": "human", "value": "alone"}]},
    ]
)


def rows(tmp_path, form, text, packed=False):
    path = tmp_path / ("trace.gz" if packed else "trace")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return [(row.arrival_s, row.prompt, row.output, row.prefix) for row in get_format(form).read(path)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("azure", AZURE_2023, [(0, 374, 44), (4.314579, 396, 109), (4.710552, 91, 16)]),
        ("azure", AZURE_2024, [(0, 2162, 5), (0.007405, 2399, 6)]),
        ("burstgpt", BURSTGPT, [(0, 472, 18), (40, 1087, 230), (115.5, 1360, 276)]),
        ("mooncake", MOONCAKE, [(0, 6955, 52), (3.052, 6472, 26)]),
        ("plain", PLAIN, [(0.5, 100, 10), (1.25, 2000, 1)]),
        ("bailian", BAILIAN, [(0.5, 40, 9), (62.25, 50, 3)]),
        ("splitwise", SPLITWISE, [(0.25, 374, 44), (3.5, 396, 109)]),
        ("llmservingsim", LLMSERVINGSIM, [(1.5, 20, 5)]),
        ("benchmark", VLLM, [(0, 7, 3), (0.5, 1024, 128)]),
    ],
)
def test_rows_of_a_trace_with_times(tmp_path, form, text, expected, packed):
    found = rows(tmp_path, form, text, packed)
    assert [row[1:3] for row in found] == [row[1:] for row in expected]
    assert [row[0] for row in found] == pytest.approx([row[0] for row in expected], abs=2e-6)


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [("benchmark", SGLANG, [(5, 6), (7, 9)]), ("sharegpt", SHAREGPT, [(10, 100)])],
)
def test_lengths_of_a_trace_without_times(tmp_path, form, text, expected):
    found = rows(tmp_path, form, text)
    assert [row[1:3] for row in found] == expected
    assert all(row[0] != row[0] for row in found)


def test_hashes_say_which_prompts_share_blocks(tmp_path):
    first, second = (row[3] for row in rows(tmp_path, "mooncake", MOONCAKE))
    assert first[:2] == second[:2] == (46, 47) and first[2] != second[2]


def test_a_trace_is_rescaled_and_begins_where_asked(tmp_path):
    (tmp_path / "t.csv").write_text(BURSTGPT)
    trace = {"format": "burstgpt", "path": "t.csv", "rate_scale": 4, "start": 10}
    serving = Serving.model_validate({"kind": "serving", "trace": trace})
    source = Source(serving, 0, tmp_path, 10_000)
    assert [(one.arrival_s, one.prompt) for one in source.requests()] == [(7.5, 1087), (26.375, 1360)]


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("plain", PLAIN.replace("num_decode_tokens", "decodes"), "column 'num_decode_tokens' is missing"),
        ("plain", PLAIN.replace("2000", "many"), "line 3: column 'num_prefill_tokens'"),
        ("plain", PLAIN.replace("0.5", "-1"), "line 2: column 'arrived_at': at least 0"),
        ("plain", PLAIN.replace(",2000,1", ",2000"), "line 3: column 'num_decode_tokens'"),
        ("azure", AZURE_2023.replace("2023-11-16 18:15:50.9951690", "soon"), "line 3: column 'TIMESTAMP'"),
        ("mooncake", MOONCAKE.replace("[46, 47, 2353]", "3"), "line 2: column 'hash_ids'"),
        ("burstgpt", BURSTGPT.replace("1087", "1e99"), "line 3: column 'Request tokens'"),
        ("benchmark", '{"input_lens": [1], "output_lens": [1, 2]}', "input_lens has 1 entries"),
        ("sharegpt", "{}", "list of conversations"),
    ],
)
def test_a_wrong_trace_names_file_line_and_column(tmp_path, form, text, message):
    with pytest.raises(InputError) as found:
        rows(tmp_path, form, text)
    assert message in str(found.value) and str(tmp_path) in str(found.value)


@pytest.mark.parametrize("kind", ["plain", "mooncake", "azure", "burstgpt"])
def test_packed_files_of_one_endless_line_are_refused(kind, tmp_path):
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(17):
            file.write(b"1" * 2**20)
    with pytest.raises(InputError, match=r"longer than 16 Mi characters|cannot be read"):
        list(get_format(kind).read(path))


def test_a_whole_file_is_read_up_to_a_bound(tmp_path, monkeypatch):
    from simulator.serving.workload.traces import base

    monkeypatch.setattr(base, "LONGEST_FILE", 2**20)
    path = tmp_path / "talks.json.gz"
    path.write_bytes(gzip.compress(b"[" + b" " * 2**21 + b"]"))
    with pytest.raises(InputError, match="unpacks to more than"):
        list(get_format("sharegpt").read(path))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("bailian", BAILIAN),
        ("mooncake", MOONCAKE),
        ("splitwise", SPLITWISE),
        ("llmservingsim", LLMSERVINGSIM),
    ],
)
def test_a_format_is_told_by_its_own_columns(tmp_path, form, text):
    (tmp_path / "trace").write_text(text)
    assert detect_format(tmp_path / "trace").name == form


def test_hashes_of_another_size_of_block_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"line 1.*3 hashes for 40 tokens"):
        rows(tmp_path, "mooncake", BAILIAN)
    assert [row[3] for row in rows(tmp_path, "bailian", BAILIAN)] == [(1, 2, 3), (1, 2, 8, 9)]
