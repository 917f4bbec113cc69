"""Serving rows become cases, are predicted, and are skipped only for what they lack."""

import csv
from dataclasses import replace

import pytest
import yaml

from core.errors import InputError
from evidence.serving.case import MeasuredRow
from evidence.serving.closed_loop import predict, predict_steady, read
from evidence.serving.inferencex import DEFAULTS, flags_of
from evidence.serving.ledger import evaluate, write_scenarios
from evidence.serving.names import find_cluster, find_format, find_model
from evidence.serving.tables import as_json, as_tables
from meshwright.validation.rows import SkippedRow
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

CLOSED = {
    "case_id": "one",
    "harness": "inferencex",
    "engine": "vllm",
    "engine_version": "0.15.1",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "gpu": "h100-sxm",
    "n_gpus": "1",
    "mode": "agg",
    "tp": "1",
    "weight_precision": "bf16",
    "isl_tokens": "1024",
    "osl_tokens": "128",
    "length_jitter": "uniform 0.8-1.0",
    "concurrency": "4",
    "tpot_ms_mean": "8.0",
    "ttft_ms_p50": "40",
    "flag": "",
    "repeat_group": "",
}


def written(path, *rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("DeepSeek-R1-0528", "deepseek-v3"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", "llama4-scout"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax-m2"),
        ("Qwen/Qwen3.5-397B-A17B", "qwen3.5-397b-a17b"),
        ("meta-llama/Meta-Llama-3-8B", "llama3-8b"),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "llama3.1-70b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("lmsys/vicuna-7b-v1.3", "llama2-7b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b"),
    ],
)
def test_published_names_mean_models_of_the_catalogue(name, model):
    assert find_model(name).name == model


def test_devices_and_formats_have_other_spellings():
    assert find_cluster("H200").device.name == "h200-sxm"
    assert find_cluster("H100-SXM5").device.name == "h100-sxm"
    assert [find_format(text) for text in ("NVFP4", "FP8", "float16", "AWQ")] == [
        "fp4",
        "fp8",
        "bf16",
        "int4",
    ]
    with pytest.raises(SkippedRow, match="not known"):
        find_model("acme/unheard-of-7b")


def test_a_row_is_predicted_in_its_own_columns(tmp_path):
    ledger = evaluate([written(tmp_path / "closed.csv", CLOSED)])
    found = {entry.metric: entry for entry in ledger.entries}
    assert set(found) == {"tpot_ms_mean", "ttft_ms_p50"}
    assert 5 < found["tpot_ms_mean"].predicted < 15
    assert found["tpot_ms_mean"].relative_error == pytest.approx(found["tpot_ms_mean"].predicted / 8.0 - 1)


def test_rows_are_skipped_for_what_they_lack(tmp_path):
    rows = [
        CLOSED | {"case_id": "no gpu", "gpu": ""},
        CLOSED | {"case_id": "no model", "model": "acme/unheard-of-7b"},
        CLOSED | {"case_id": "no engine", "engine": ""},
        CLOSED | {"case_id": "no length", "isl_tokens": ""},
    ]
    ledger = evaluate([written(tmp_path / "closed.csv", *rows)])
    assert [case for case, _ in ledger.skipped] == ["no gpu", "no model", "no engine", "no length"]
    assert not ledger.entries


def test_unknown_versions_are_predicted(tmp_path):
    rows = [CLOSED | {"case_id": version, "engine_version": version} for version in ("0.99", "", "nightly-1")]
    ledger = evaluate([written(tmp_path / "closed.csv", *rows)])
    assert {entry.case.engine for entry in ledger.entries} == {"vllm-0.33", "vllm-0.19"}


def test_repeats_count_once_and_flagged_rows_apart(tmp_path):
    rows = [
        CLOSED | {"case_id": "a", "repeat_group": "g"},
        CLOSED | {"case_id": "b", "repeat_group": "g", "tpot_ms_mean": "9"},
        CLOSED | {"case_id": "c", "repeat_group": "h", "flag": "version_missing"},
    ]
    ledger = evaluate([written(tmp_path / "closed.csv", *rows)])
    counted = {(one.metric, one.flagged): one.n for one in ledger.summaries()}
    assert counted["tpot_ms_mean", False] == counted["tpot_ms_mean", True] == 1
    report = as_json(ledger)
    assert set(report) == {"cases", "skipped", "summary", "rows", "constant_shares"}
    assert {case["flagged"] for case in report["cases"]} == {True, False}
    assert as_tables(ledger, each=True)


def test_more_clients_wait_longer(tmp_path):
    rows = [CLOSED | {"case_id": str(clients), "concurrency": str(clients)} for clients in (1, 16, 64)]
    found = evaluate([written(tmp_path / "closed.csv", *rows)]).entries
    tpot = [entry.predicted for entry in found if entry.metric == "tpot_ms_mean"]
    assert tpot == sorted(tpot) and tpot[0] < tpot[-1]


@pytest.mark.parametrize("clients", ["16", "128"])
def test_the_first_burst_of_a_run_shares_full_steps(clients):
    """A tenth of the requests begin at once. Alone, a short prompt reads all experts; 22 share this here."""
    row = CLOSED | {"engine": "trtllm", "engine_version": "1.2.0rc2", "model": "openai/gpt-oss-120b"}
    row |= {"gpu": "b200", "weight_precision": "fp4", "osl_tokens": "1024", "concurrency": clients}
    question = read(MeasuredRow(row, "row"), "closed_loop.csv").question
    steady, events = predict_steady([question])[0], predict([question])[0]
    assert steady["ttft_ms_mean"] == pytest.approx(events["ttft_ms_mean"], rel=0.1)


def test_half_of_the_requests_do_not_meet_other_prompts():
    """The p50 of TTFT leaves their queue out where it is shorter than a prompt; the mean has it."""
    row = CLOSED | {"engine_version": "0.19.0", "model": "MiniMaxAI/MiniMax-M2.5", "gpu": "b200", "tp": "4"}
    row |= {"n_gpus": "4", "weight_precision": "fp8", "isl_tokens": "8192", "osl_tokens": "1024"}
    question = read(MeasuredRow(row | {"concurrency": "64"}, "row"), "closed_loop.csv").question
    steady, events = predict_steady([question])[0], predict([question])[0]
    for metric in ("ttft_ms_p50", "ttft_ms_mean"):
        assert steady[metric] == pytest.approx(events[metric], rel=0.2)


def test_a_file_of_another_kind_is_refused_by_name_and_skipped_in_a_folder(tmp_path):
    other = written(tmp_path / "other.csv", {"a": "1", "b": "2"})
    with pytest.raises(InputError, match="none of the known formats"):
        evaluate([other])
    ledger = evaluate([tmp_path])
    assert ledger.skipped[0][0] == "other.csv"
    with pytest.raises(InputError, match="no such file"):
        evaluate([tmp_path / "missing.csv"])


def test_a_wrong_number_names_file_line_and_column(tmp_path):
    path = written(tmp_path / "closed.csv", CLOSED | {"concurrency": "many"})
    with pytest.raises(InputError, match=r"closed\.csv: line 2.*concurrency"):
        evaluate([path])


def test_a_run_starts_slowly_only_beside_other_clients():
    first = read(MeasuredRow({**CLOSED, "concurrency": "1"}, "row"), "closed_loop.csv").question
    several = read(MeasuredRow(CLOSED, "row"), "closed_loop.csv").question
    assert first.start_s == 0.0
    sglang = [
        read(MeasuredRow({**CLOSED, "engine": "sglang", "gpu": gpu, "weight_precision": "fp8"}, "row"), "x")
        for gpu in ("mi300x", "h200")
    ]
    assert several.start_s == flags_of(several.serving, "starts").start_s > 0.0
    assert sglang[0].question.start_s > sglang[1].question.start_s


def test_quantised_checkpoints_of_tensorrt_llm_take_an_fp8_cache():
    stated = {**CLOSED, "engine_version": "1.0.0", "weight_precision": "fp8"}
    found = [
        read(MeasuredRow({**stated, "engine": name}, "row"), "x").question for name in ("trtllm", "vllm")
    ]
    assert [each.serving.pool.kv for each in found] == ["fp8", None]


def test_rows_of_aiconfigurator_run_on_servers_that_its_rules_size():
    """One prompt, a token of each client and 1,500 more, 1,000 under TensorRT-LLM, whose steps take one
    prompt of 1,024 tokens; other clients' servers keep the engine's default."""
    row = CLOSED | {"harness": "aic-internal", "length_jitter": "", "concurrency": "32"}
    found = read(MeasuredRow(row, "row"), "closed_loop.csv").question
    assert found.sized and found.budget == 1024 + 32 + 1500
    other = read(MeasuredRow(row | {"engine": "trtllm", "engine_version": "1.0.0rc3"}, "row"), "x").question
    assert 1024 + 32 < other.budget < 2 * 1024 + 31
    assert read(MeasuredRow(CLOSED, "row"), "closed_loop.csv").question.budget == 8192


def test_flags_of_inferencex_belong_to_a_version():
    """MiniMax-M2.5 on B200: 8-bit KV and a budget of two prompts from vLLM 0.19 on, Triton before."""
    row = CLOSED | {"model": "MiniMaxAI/MiniMax-M2.5", "gpu": "b200", "weight_precision": "fp8", "tp": "2"}
    row |= {"n_gpus": "2", "ep": "1", "isl_tokens": "8192", "length_jitter": "uniform 0.8-1.0"}

    def question(**changes):
        return read(MeasuredRow(row | changes, "row"), "closed_loop.csv").question

    new, old = question(engine_version="0.19.0"), question(engine_version="0.17.0")
    assert (new.serving.pool.kv, new.budget, new.flags.memory_share) == ("fp8", 2 * 8192, 0.9)
    assert (old.serving.pool.kv, old.budget, old.flags.memory_share) == (None, 8192, 0.95)
    # The script of 2026-03 turned FlashInfer's experts off and experts over all ranks on.
    pools = old.serving.pool, new.serving.pool
    assert [(pool.expert, pool.expert_kernels) for pool in pools] == [(2, "triton"), (1, None)]


@pytest.mark.parametrize(
    ("gpu", "kernels", "activations", "kv"),
    [("h100-sxm", "marlin", None, None), ("b200", None, "fp8", "fp8")],
)
def test_scripts_of_gpt_oss_choose_its_experts(gpu, kernels, activations, kv):
    row = CLOSED | {"model": "openai/gpt-oss-120b", "gpu": gpu, "weight_precision": "fp4", "tp": "2"}
    row |= {"n_gpus": "2", "ep": "1", "engine_version": "0.18.0"}
    found = read(MeasuredRow(row, "row"), "closed_loop.csv").question
    pool = found.serving.pool
    assert (pool.expert_kernels, pool.activations, pool.kv) == (kernels, activations, kv)
    assert found.flags.token_budget == 8192


@pytest.mark.parametrize(
    ("model", "kernels"), [("deepseek-ai/DeepSeek-R1", "flashinfer"), ("Qwen/Qwen3.5-397B-A17B", None)]
)
def test_scripts_of_sglang_on_b200_choose_fp8_products(model, kernels):
    """DeepSeek's switch DeepGEMM off, Qwen3.5's do not."""
    row = CLOSED | {"model": model, "gpu": "b200", "weight_precision": "fp8", "tp": "8", "n_gpus": "8"}
    row |= {"engine": "sglang", "engine_version": "0.5.9", "ep": "1"}
    pool = read(MeasuredRow(row, "row"), "closed_loop.csv").question.serving.pool
    assert (pool.product_kernels, pool.kv) == (kernels, "fp8")


def test_inferencex_captures_graphs_of_all_clients_of_tensorrt_llm():
    """Its scripts set the largest graph to the clients; other harnesses keep the engine's 128."""
    row = CLOSED | {
        "engine": "trtllm",
        "engine_version": "1.2.0",
        "model": "openai/gpt-oss-120b",
        "gpu": "b200",
    }
    row |= {"weight_precision": "fp4", "concurrency": "256"}
    scripted = read(MeasuredRow(row, "row"), "x").question
    other = read(MeasuredRow(row | {"harness": "x", "length_jitter": ""}, "row"), "x").question
    assert (scripted.serving.pool.largest_graph, other.serving.pool.largest_graph) == (256, None)


@pytest.mark.parametrize(
    ("listed", "name", "degrees"),
    [
        ({"tp": "4", "dp": "1", "ep": "2", "n_gpus": "4"}, "c4_tp2_ep2_992", (2, 1, 2)),
        ({"tp": "1", "dp": "4", "ep": "2", "n_gpus": "4"}, "c64_tp2_ep2_1994", (1, 2, 2)),
        ({"tp": "4", "dp": "1", "ep": "2", "n_gpus": "4"}, "c4_tp4_ep2_1", (4, 1, 2)),
        ({"tp": "1", "dp": "4", "ep": "1", "n_gpus": "4"}, "c64_tp4_ep1_1", (1, 4, 1)),
        ({"tp": "4", "dp": "1", "ep": "4", "n_gpus": "4"}, "c4_tp4_ep4_985", (4, 1, 4)),
        ({"tp": "8", "dp": "1", "ep": "8", "n_gpus": "8"}, "c8_tp8_0_ep8_0_1239", (8, 1, 8)),
    ],
)
def test_gpus_that_a_source_counts_by_experts_ranks_too_count_once(listed, name, degrees):
    row = CLOSED | {"engine": "trtllm", "engine_version": "1.2.0", "model": "openai/gpt-oss-120b"}
    row |= {"gpu": "h200-sxm", "weight_precision": "fp4", "source": f"list id=fp4_agg_1024x1024_{name}"}
    found = read(MeasuredRow(row | listed, "row"), "closed_loop.csv").question
    pool = found.serving.pool
    assert (pool.tensor, pool.data, pool.expert) == degrees
    assert found.replicas == 1.0


def test_attention_ranks_of_tensorrt_llm_wait_for_prompts_on_all():
    """gptoss_fp4_b200_trt.sh turns enable_balance on: 50 steps at most, 10 once every rank has a prompt."""
    row = CLOSED | {"engine": "trtllm", "engine_version": "1.2.0", "model": "openai/gpt-oss-120b"}
    row |= {"gpu": "b200", "weight_precision": "fp4", "osl_tokens": "1024", "n_gpus": "4", "ep": "1"}

    def question(clients, tp, dp):
        changes = {"concurrency": str(clients), "tp": str(tp), "dp": str(dp)}
        return read(MeasuredRow(row | changes, "row"), "closed_loop.csv").question

    few, many, most = (question(clients, 1, 4) for clients in (4, 512, 100_000))
    waits = [one.wait_steps(one.concurrency) for one in (few, many, most)]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] == 50 and 10 < waits[1] < 30 and waits[2] == 11  # the step of the prompts and 10 more
    assert many.run().scenario["deployment"]["options"]["receive_interval"] == waits[1]
    plain = question(512, 4, 1)
    assert plain.wait_steps(512) == 0
    waited, alone = (predict_steady([one])[0]["ttft_ms_p50"] for one in (few, replace(few, flags=DEFAULTS)))
    assert waited > alone + 25 * predict_steady([few])[0]["tpot_ms_p50"] * 0.9


@pytest.mark.parametrize(
    ("gpus", "gpu", "model", "decode"),
    [
        (16, "gb200", "moonshotai/Kimi-K2.5", (1, 16)),
        (4, "gb200", "moonshotai/Kimi-K2.5", (4, 1)),
        (16, "gb200", "deepseek-ai/DeepSeek-R1", (16, 1)),
    ],
)
def test_recipes_say_which_workers_are_attention_ranks(gpus, gpu, model, decode):
    """Recipes of Kimi-K2.5 on GB200 prefill on dep4, decode on tep4 or dep16; the list has one rank each."""
    row = CLOSED | {"engine_version": "0.18.0", "model": model, "gpu": gpu, "weight_precision": "fp4"}
    row |= {"mode": "disagg", "n_gpus": "", "tp": "", "concurrency": "256"}
    for side, count in (("prefill", 4), ("decode", gpus)):
        row |= {f"{side}_workers": "1", f"{side}_tp": str(count), f"{side}_dp": "1", f"{side}_ep": str(count)}
    found = read(MeasuredRow(row, "row"), "closed_loop.csv").question
    pool, prefill = found.serving.pool, found.prefill.pool
    assert (pool.tensor, pool.data) == decode
    assert (prefill.tensor, prefill.data) == ((1, 4) if "Kimi" in model else (4, 1))
    assert pool.devices == gpus and prefill.devices == 4


@pytest.mark.parametrize(("clients", "slots"), [("36", 8), ("40", 0), ("4", 1)])
def test_recipes_say_how_many_sequences_a_decode_rank_takes(clients, slots):
    """Four workers on tep8: 36 clients find 8 slots in each, which a power of two alone does not say."""
    row = CLOSED | {"engine": "trtllm", "engine_version": "0.8.1.post2", "model": "deepseek-ai/DeepSeek-R1"}
    row |= {"gpu": "gb300", "weight_precision": "fp8", "mode": "disagg", "n_gpus": "", "tp": ""}
    row |= {"prefill_workers": "1", "prefill_tp": "4", "prefill_dp": "4", "prefill_ep": "4"}
    row |= {"decode_workers": "4", "decode_tp": "8", "decode_ep": "8", "concurrency": clients}
    found = read(MeasuredRow(row, "row"), "closed_loop.csv").question
    assert found.decode_slots == slots


@pytest.mark.parametrize(
    ("ranks", "exchange", "kernels", "graph"),
    [(8, "deepep", None, 1024), (32, "deepep", None, None), (1, "all-gather", "flashinfer", None)],
)
def test_recipes_say_which_graphs_and_products_a_server_runs(ranks, exchange, kernels, graph):
    """srt-slurm's gb300-fp8: 1,024 sequences on 8 ranks, FlashInfer's products on four GPUs of one rank."""
    row = CLOSED | {"engine": "sglang", "engine_version": "0.5.8.post1", "model": "deepseek-ai/DeepSeek-R1"}
    row |= {"gpu": "gb300", "weight_precision": "fp8", "mode": "disagg", "n_gpus": "", "tp": ""}
    row |= {"prefill_workers": "1", "prefill_tp": "8", "prefill_dp": "8", "prefill_ep": "8"}
    gpus = str(max(ranks, 4))
    row |= {"decode_workers": "1", "decode_tp": gpus, "decode_dp": str(ranks), "decode_ep": str(ranks)}
    pool = read(MeasuredRow(row, "row"), "closed_loop.csv").question.serving.pool
    assert (pool.data, pool.exchange) == (ranks, exchange)
    assert (pool.product_kernels, pool.largest_graph) == (kernels, graph)


@pytest.mark.parametrize(("prompt", "slots"), [("8192", 16), ("1024", 0)])
def test_recipes_of_long_prompts_have_slots_of_their_own(prompt, slots):
    """Kimi-K2.5 under vLLM: decode servers take 16 sequences with prompts of 8,192 tokens, else 1,024."""
    row = CLOSED | {"engine_version": "0.18.0", "model": "moonshotai/Kimi-K2.5", "gpu": "gb200"}
    row |= {"weight_precision": "fp4", "mode": "disagg", "n_gpus": "", "tp": "", "isl_tokens": prompt}
    row |= {"prefill_workers": "1", "prefill_tp": "4", "prefill_ep": "4", "concurrency": "128"}
    row |= {"decode_workers": "4", "decode_tp": "4", "decode_ep": "4"}
    assert read(MeasuredRow(row, "row"), "closed_loop.csv").question.decode_slots == slots


def test_a_known_memory_share_is_not_replaced():
    """Clients wait for KV blocks where the share leaves too few of them."""
    row = CLOSED | {"concurrency": "4096", "harness": "x", "length_jitter": ""}
    stated, open_ = (
        read(MeasuredRow(row | {"memory_share": share}, "row"), "closed_loop.csv").question
        for share in ("0.5", "")
    )
    assert stated.options(4096)["memory_share"] == 0.5
    assert open_.options(4096)["memory_share"] == 0.95


@pytest.mark.parametrize("lengths", [("4000", "4100"), ("8100", "92")])
def test_the_longest_request_of_a_run_fits_its_server(lengths):
    row = CLOSED | {"isl_tokens": lengths[0], "osl_tokens": lengths[1], "harness": "x", "length_jitter": ""}
    for dataset in ("random", "sharegpt"):
        found = read(MeasuredRow(row | {"dataset": dataset}, "row"), "closed_loop.csv").question
        run = found.run()
        drawn = [run.scenario["workload"][name] for name in ("input", "output")]
        longest = sum(
            length["high"] if isinstance(length, dict) and "high" in length else 1024 for length in drawn
        )
        assert longest <= run.scenario["deployment"]["options"]["max_context"]


def test_configurations_that_ran_with_prediction_heads_only_speculate():
    row = CLOSED | {"engine": "sglang", "engine_version": "0.5.9", "model": "Qwen/Qwen3.5-397B-A17B"}
    row |= {"gpu": "b200", "weight_precision": "fp8", "tp": "4", "n_gpus": "4"}

    def question(**changes):
        return read(MeasuredRow(row | changes, "row"), "closed_loop.csv").question

    heads, plain = question(ep="1"), question(ep="4")
    assert heads.speculates and heads.drafts == 3 and not plain.speculates
    tpot = [predict_steady([one])[0]["tpot_ms_mean"] for one in (heads, plain)]
    assert 1.3 < tpot[1] / tpot[0] < 2.7
    assert not question(ep="1", engine_version="0.5.12").speculates


def test_weight_only_spellings_state_16_bit_activations(tmp_path):
    row = CLOSED | {"weight_precision": "w8a16"}
    pool = read(MeasuredRow(row, "row"), "closed_loop.csv").question.serving.pool
    assert (pool.weights, pool.activations) == ("int8", "bf16")
    pool = read(
        MeasuredRow(CLOSED | {"weight_precision": "w8a8"}, "row"), "closed_loop.csv"
    ).question.serving.pool
    assert (pool.weights, pool.activations) == ("int8", None)


def test_a_row_is_the_run_of_a_scenario_that_simulate_answers_alike(tmp_path):
    path = written(tmp_path / "closed.csv", CLOSED)
    assert write_scenarios([path], tmp_path / "scenarios") == 1
    file = tmp_path / "scenarios" / "one.yaml"
    data = yaml.safe_load(file.read_text())
    shown = serve(make_serving(data, str(file), file.parent)).to_dict()
    predicted = {entry.metric: entry.predicted for entry in evaluate([path]).entries}
    assert 1e3 * shown["tpot_s"]["mean"] == pytest.approx(predicted["tpot_ms_mean"], rel=0.01)
    assert 1e3 * shown["ttft_s"]["p50"] == pytest.approx(predicted["ttft_ms_p50"], rel=0.01)


def test_bursts_are_read_and_predicted(tmp_path):
    row = {name: value for name, value in CLOSED.items() if name not in ("concurrency", "tpot_ms_mean")}
    row |= {"harness": "gpustack", "dataset": "random", "num_prompts": "64", "request_rate": "inf"}
    row |= {"out_tok_s_per_gpu": "2000", "length_jitter": ""}
    ledger = evaluate(
        [written(tmp_path / "burst_runs.csv", row, row | {"case_id": "r", "request_rate": "4"})]
    )
    found = {entry.metric: entry.predicted for entry in ledger.entries}
    assert found["ttft_ms_p50"] > 100 and found["out_tok_s_per_gpu"] > 500
    assert ledger.skipped == [("r", "requests come at a rate")]
