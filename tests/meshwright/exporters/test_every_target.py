"""Every framework, target, kind of model and number format: files that parse, or one sentence."""

from __future__ import annotations

import json
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest
import yaml

from core.errors import InputError
from meshwright.exporters import TARGETS, export, exporter
from meshwright.exporters.shell import read_script
from meshwright.jobs.exports import from_scenario
from simulator.frameworks import frameworks

TRAINING = [name for name in TARGETS if "training" in exporter(name).kinds]
SERVING = [name for name in TARGETS if "serving" in exporter(name).kinds]
MODELS = {"dense": "llama3.1-8b", "experts": "qwen3-30b-a3b", "hybrid": "qwen3-next-80b-a3b"}
FORMATS = ("bf16", "fp8", "mxfp8")


def training_question(framework: str, model: str, precision: str):
    """A plan of full sharding, which every framework can predict."""
    scenario = {"model": MODELS[model], "cluster": "dgx-b200", "gpus": 64, "framework": framework}
    scenario["workload"] = {"seq_len": 4096, "global_batch": 128, "precision": precision}
    scenario["plan"] = {"zero": 3, "recompute": "full"}
    return from_scenario(scenario, "test", Path(), "test")


def serving_question(**changed):
    pool = {"tensor": 4, "engine": "vllm-0.19", "weights": "fp8"}
    workload = {"kind": "serving", "requests": 10, "arrivals": {"kind": "poisson", "rate": 1}}
    workload |= {"input": 500, "output": 100}
    scenario = {"model": "llama3.1-8b", "cluster": "dgx-h100", "workload": workload, "deployment": pool}
    return from_scenario({**scenario, **changed}, "test", Path(), "test")


def check_files(files) -> None:
    """Each file parses in its own language."""
    for name, text in files.items():
        if name.endswith((".yaml", ".yml")):
            assert all(isinstance(part, dict) for part in yaml.safe_load_all(text))
        elif name.endswith(".json"):
            assert isinstance(json.loads(text), dict)
        elif name.endswith(".py"):
            compile(text, name, "exec")
        elif shutil.which("bash"):
            subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("target", TRAINING)
def test_every_framework_writes_files_or_says_why_not(target):
    written = 0
    for framework, model, precision in product(frameworks.names(), MODELS, FORMATS):
        try:
            made = export(training_question(framework, model, precision), target)
        except InputError as refusal:
            assert len(str(refusal)) > 20 and "\n" not in str(refusal)
            continue
        written += 1
        check_files(made.files)
    assert written >= 2 * len(FORMATS)


def test_deepspeed_trains_fp8_plans_in_bf16():
    for precision in ("fp8", "mxfp8", "nvfp4"):
        made = export(training_question("deepspeed-zero3", "dense", precision), "deepspeed")
        assert json.loads(made.files["ds_config.json"])["bf16"] == {"enabled": True}
        assert any(gap.startswith(f"workload.precision = {precision}") for gap in made.gaps)


HOSTILE = (
    "x$(touch CANARY)",
    "x`touch CANARY`",
    'x"; touch CANARY; "',
    "x'; touch CANARY; '",
    "x\ntouch CANARY\n",
    "x}; touch CANARY #",
    "../../CANARY",
    "&anchor *x: {a: [",
    "<img onerror=1></script><script>alert(1)</script>",
    '"""; open("CANARY", "w") #',
)
SHAPE = {"layers": 8, "hidden": 1024, "heads": 8, "feed_forward": 4096, "vocabulary": 32000}


def run_heads(files, folder: Path) -> None:
    """Run shell scripts with launchers that do nothing, with and without their variables."""
    tools = folder / "bin"
    tools.mkdir()
    for tool in (
        "torchrun",
        "deepspeed",
        "vllm",
        "python3",
        "trtllm-serve",
        "vllm-router",
        "srun",
        "scontrol",
    ):
        (tools / tool).write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
        (tools / tool).chmod(0o755)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        if not name.endswith((".sh", ".sbatch")):
            continue
        for given in (
            {},
            {"MODEL": "m", "SCRIPT": "s", "PREFILL_URLS": "http://a:1", "DECODE_URLS": "http://b:1"},
        ):
            environment = {"PATH": f"{tools}:/usr/bin:/bin", **given}
            if name == "job.sbatch":
                text = text.split("until ")[0]
            subprocess.run(
                ["bash", "-c", text],
                cwd=folder,
                env=environment,
                capture_output=True,
                timeout=20,
                check=False,
            )


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_nothing_in_any_target(name, tmp_path):
    model = {"name": name, **SHAPE}
    pools = [{"name": f"{name}{role}", "role": role, "tensor": 2} for role in ("prefill", "decode")]
    questions = {
        "one pool": serving_question(model=model, title=name),
        "two pools": serving_question(model=model, deployment={"engine": "vllm-0.19", "pools": pools}),
    }
    scenario = {"title": name, "model": model, "cluster": "dgx-h100", "gpus": 8, "plan": {"zero": 1}}
    scenario["workload"] = {"seq_len": 1024, "global_batch": 64}
    questions["training"] = from_scenario(scenario, name, Path(), f"meshwright export {name}")
    for number, (kind, target) in enumerate(product(questions, TARGETS)):
        question = questions[kind]
        if ("serving" if question.serves else "training") not in exporter(target).kinds:
            continue
        try:
            files = export(question, target).files
        except InputError:
            continue
        assert all("/" not in file and ".." not in file for file in files)
        check_files(files)
        folder = tmp_path / str(number)
        folder.mkdir()
        run_heads(files, folder)
    assert not list(tmp_path.rglob("CANARY")) and not (tmp_path.parent / "CANARY").exists()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_pools_are_joined_by_a_router(engine, tmp_path):
    pools = [{"name": role, "role": role, "tensor": 2} for role in ("prefill", "decode")]
    question = serving_question(deployment={"engine": "vllm-0.19", "pools": pools})
    script = export(question, engine).files["router.sh"]
    (tmp_path / "bin").mkdir()
    seen = tmp_path / "seen"
    for tool in ("vllm-router", "python3", "trtllm-serve"):
        path = tmp_path / "bin" / tool
        path.write_text(f'#!/bin/sh\nprintf "%s " "$@" > {seen}\ncat "$3" >> {seen} 2>/dev/null\nexit 0\n')
        path.chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "PREFILL_URLS": "http://a:8000 http://b:8001"}
    subprocess.run(["bash", "-c", script], env={**environment, "DECODE_URLS": "http://c:8002"}, check=True)
    told = seen.read_text()
    assert all(address in told for address in ("a:8000", "b:8001", "c:8002"))
    if engine == "sglang":
        assert "--prefill http://b:8001 8999" in told


def test_kubernetes_finds_the_pods_of_both_pools():
    pools = [{"name": role, "role": role, "tensor": 2} for role in ("prefill", "decode")]
    question = serving_question(deployment={"engine": "vllm-0.19", "pools": pools})
    objects = list(yaml.safe_load_all(export(question, "k8s").files["meshwright.yaml"]))
    router = next(
        part
        for part in objects
        if part["metadata"]["name"].endswith("router") and part["kind"] == "Deployment"
    )
    script = router["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    for role in ("prefill", "decode"):
        assert f"--{role}-selector app=meshwright-{role}" in script
        assert any(part["metadata"]["name"] == f"meshwright-{role}" for part in objects)
    assert {"ServiceAccount", "Role", "RoleBinding"} <= {part["kind"] for part in objects}


def megatron_options(model: str, **scenario) -> dict[str, object]:
    """Options of an exported script, as an import reads them."""
    question = {"model": model, "cluster": "dgx-h100", "gpus": 64, "framework": "megatron-core"}
    question |= {"workload": {"seq_len": 4096, "global_batch": 128}, "plan": {"zero": 1}, **scenario}
    script = export(from_scenario(question, "test", Path(), "test"), "megatron-lm").files["train.sh"]
    return read_script(script, "train.sh").options


LLAMA_31 = {
    "--rotary-base": "500000",
    "--use-rope-scaling": True,
    "--rope-scaling-factor": "8.0",
    "--norm-epsilon": "1e-05",
}
DEEPSEEK_V3 = {
    "--rotary-base": "10000",
    "--rope-type": "yarn",
    "--rotary-scaling-factor": "40.0",
    "--mscale": "1.0",
    "--mscale-all-dim": "1.0",
    "--norm-epsilon": "1e-06",
    "--qk-layernorm": True,
    "--moe-router-score-function": "sigmoid",
    "--moe-router-enable-expert-bias": True,
    "--moe-router-topk-scaling-factor": "2.5",
    "--moe-router-num-groups": "8",
    "--moe-router-group-topk": "4",
}
DEEPSEEK_V2 = {
    "--moe-router-pre-softmax": True,
    "--moe-router-topk-scaling-factor": "16.0",
    "--mscale": "0.707",
}
GPT_OSS = {
    "--softmax-type": "learnable",
    "--position-embedding-type": "yarn",
    "--rotary-scaling-factor": "32.0",
    "--yarn-beta-fast": "32.0",
}
QWEN_3 = {"--rotary-base": "1000000", "--qk-layernorm": True, "--norm-epsilon": "1e-06"}


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("llama3.1-8b", LLAMA_31),
        ("llama3.2-3b", {**LLAMA_31, "--rope-scaling-factor": "32.0"}),
        ("deepseek-v3", DEEPSEEK_V3),
        ("deepseek-v2", DEEPSEEK_V2),
        ("gpt-oss-20b", GPT_OSS),
        ("qwen3-30b-a3b", QWEN_3),
        ("qwen3-8b", QWEN_3),
        ("mixtral-8x7b", {"--rotary-base": "1000000", "--norm-epsilon": "1e-05"}),
    ],
)
def test_constants_of_the_model_reach_megatron(model, wanted):
    options = megatron_options(model)
    assert {name: options.get(name) for name in wanted} == wanted
    if model == "llama3.1-8b":
        assert not [name for name in options if "moe" in name]
    if model == "qwen3-8b":
        assert "--rope-type" not in options


def test_gaps_hold_no_keys_that_a_model_has_not():
    for model in ("llama3.1-8b", "deepseek-v3", "gpt3-175b"):
        question = {"model": model, "cluster": "dgx-h100", "gpus": 64, "plan": {"zero": 1}}
        question["workload"] = {"seq_len": 2048, "global_batch": 128}
        made = export(from_scenario(question, "test", Path(), "test"), "megatron-lm")
        absent = "aliases", "left_out", "index_", "draft_heads"
        assert not [gap for gap in made.gaps if any(name in gap for name in absent)]
        assert not [gap for gap in made.gaps if gap.partition(":")[0].endswith(" = false")]
        assert not [note for note in made.notes if "rotary" in note]


def test_attention_and_output_layer_in_8_bits_are_options():
    question = {"model": "deepseek-v3", "cluster": "gb200-nvl72", "gpus": 64, "framework": "megatron-bridge"}
    question["workload"] = {"seq_len": 4096, "global_batch": 512, "precision": "mxfp8"}
    question["plan"] = {"zero": 1, "expert": 64, "attention": "flash-mx8", "narrow_output": True}
    asked = from_scenario(question, "test", Path(), "test")
    core, bridge = (export(asked, target) for target in ("megatron-lm", "megatron-bridge"))
    assert read_script(core.files["train.sh"], "train.sh").options["--fp8-dot-product-attention"] is True
    assert read_script(bridge.files["train.sh"], "train.sh").options["model.fp8_output_proj"] == "true"
    assert ["narrow_output" in gap for gap in core.gaps if gap.startswith("plan.")] == [True]
    assert ["fp8_dot_product_attention" in gap for gap in bridge.gaps if gap.startswith("plan.")] == [True]


def test_files_state_the_levers_that_a_plan_leaves_to_its_release():
    question = {
        "model": "qwen3-30b-a3b",
        "cluster": "gb200-nvl72",
        "gpus": 64,
        "framework": "megatron-bridge",
    }
    question |= {"workload": {"seq_len": 4096, "global_batch": 512}, "plan": {"zero": 1, "expert": 8}}
    made = export(from_scenario(question, "test", Path(), "test"), "megatron-bridge")
    stated = read_script(made.files["train.sh"], "train.sh").options
    assert (
        stated["model.cuda_graph_impl"] == "transformer_engine" and "attn" in stated["model.cuda_graph_scope"]
    )
    assert stated["model.cross_entropy_fusion_impl"] == "te" and stated["model.moe_router_fusion"] == "true"
    # The performance recipes reduce in 16 bits, which no override of the library's recipes says.
    assert [gap.split(":")[0] for gap in made.gaps] == ["framework.gradient_bytes = 2"]
    assert made.levers["graphs"] == "attention" and "gradient_bytes" not in made.levers
    del question["framework"]
    question["plan"]["graphs"] = "none"
    script = export(from_scenario(question, "test", Path(), "test"), "megatron-lm").files["train.sh"]
    options = read_script(script, "train.sh").options
    assert options["--cuda-graph-impl"] == "none" and options["--grad-reduce-in-bf16"] is True
