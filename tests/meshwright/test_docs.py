"""The docs say what the code does: every key is there, every command line runs."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from evidence.claims.runs import with_tables
from meshwright.commands import COMMANDS, command
from meshwright.validation.rows import PUBLISHED
from simulator.plan import Plan
from simulator.runs.question import RunQuestion
from simulator.scenario import Definition, Search, Variation
from simulator.workload import Training

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MEASURING = ROOT / "docs" / "profiling.md"
"""Its commands go on from each other, in order."""
UNRUN = (
    "profile --device cpu",
    "calibrate",
    "validate --live",
    "validate --kernels",
    "my-cpu.yaml",
    "simulate best",
    "observe http",
    "server/results",
    "meshwright ui",
    "meshwright mcp",
)
"""Commands that measure for a minute, need what others wrote, or serve until they are ended."""

SLOW = ("meshwright validate", "plan serve", "plan mix", "--replan", "simulate papers/", "plan size")
"""Commands of several seconds: they predict all published runs, search servers or simulate weeks."""


def field_row(name, field) -> str:
    """The line of a table that documents a key."""
    if field.default_factory:
        default = ""
    elif field.default is PydanticUndefined:
        default = "needed"
    else:
        default = "" if field.default in (None, "") else f"`{json.dumps(field.default)}`".replace('"', "")
    return f"| `{name}` | {default} | {field.description} |"


@pytest.mark.parametrize(
    "model", [Definition, Training, Search, Plan, Variation], ids=lambda model: model.__name__
)
def test_every_key_of_a_scenario_is_documented(model):
    page = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    for name, field in model.model_fields.items():
        assert field_row(name, field) in page


def test_every_key_of_a_run_is_documented():
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    for name, field in RunQuestion.model_fields.items():
        assert field_row(name, field) in page


def keys_of(value) -> set[str]:
    """All keys inside a JSON value, but for those that are names of the user's or of the model's parts."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if not isinstance(value, dict):
        return set()
    open_ended = {
        "removed",
        "time_breakdown_s",
        "busy_s",
        "traffic_bytes",
        "parts_bytes",
        "communication",
        "plan",
        "peak_flop_per_s",
        "sources",
        "changed",
        "moved_s",
        "disagrees_s",
    }
    inner = [child for key, child in value.items() if key not in open_ended]
    return set(value) | set().union(*map(keys_of, inner))


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "llama3-8b-64-h100", "--refine", "2"],
        ["simulate", "llama3-8b-64-h100", "--engine"],
        ["simulate", "mixed-llama3-70b", "--engine"],
        ["whatif", "papers/interleaved-175b"],
        ["validate", "--cases", str(ROOT / "meshwright" / "published" / "korthikanti_2022.csv")],
        ["show", "devices"],
        ["show", "devices", "h100-sxm"],
        ["show", "clusters", "dgx-h100"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_every_json_key_is_documented(run, arguments):
    assert undocumented(json.loads(run(*arguments, "--json").out)) == []


def undocumented(report) -> list[str]:
    """Keys of a JSON report that the page does not know."""
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    return [key for key in keys_of(report) if f"`{key}`" not in page]


@pytest.mark.slow
def test_the_measuring_page_runs_from_top_to_bottom(run, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    lines = command_lines((MEASURING,))
    assert [line.split()[1] for line in lines] == ["profile", "calibrate", "show"]
    # A busy machine measures with errors that `calibrate` refuses without --yes.
    lines[1] += " --yes"
    for line in lines:
        ran = run(*shlex.split(line)[1:])
        assert ran.code == 0, ran.err
        assert ran.out
    calibrated = lines[1].split()[1:]
    for again in (lines[0].split()[1:], calibrated, ["validate", "--kernels", "points"]):
        assert undocumented(json.loads(run(*again, "--json").out)) == []


def test_the_files_of_the_extending_page_work_together(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    names = [re.search(r"^name: (\S+)", block, re.MULTILINE).group(1) for block in blocks]
    assert names == ["our-h100", "my-h100", "our-model", "our-fork", "our-release"]
    for name, block in zip(names, blocks, strict=True):
        text = block.replace("device: h100-sxm", "device: our-h100.yaml")
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    question = ["--model", "our-model.yaml", "--cluster", "my-h100.yaml", "--framework", "our-fork.yaml"]
    size = ["--gpus", "16", "--seq-len", "4096", "--global-batch", "64", "--limit", "pipeline=2"]
    ran = run("plan", *question, *size, "--json")
    assert ran.code == 0, ran.err
    asked = json.loads(ran.out)["question"]
    assert (asked["model"], asked["cluster"], asked["framework"]) == ("our-model", "my-h100", "our-fork")
    assert asked["device"] == "our-h100"


def examples() -> list[str]:
    """The example of each command's --help."""
    return [re.search(r"Example:\[/bold\] (.*)", command(name).__doc__ or "").group(1) for name in COMMANDS]


def command_lines(pages=PAGES) -> list[str]:
    """The meshwright commands in the shell blocks of pages."""
    found = []
    for page in pages:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                found += [part.strip() for part in line.split("&&") if part.strip().startswith("meshwright ")]
    return list(dict.fromkeys(shlex.join(shlex.split(line, comments=True)) for line in found))


def runnable():
    """Each command once; those that search or simulate for some seconds are slow."""
    for line in dict.fromkeys(examples() + command_lines()):
        if not any(words in line for words in UNRUN):
            slow = any(words in line for words in SLOW)
            yield pytest.param(line, marks=[pytest.mark.slow] if slow else [], id=line)


@pytest.mark.parametrize("line", list(runnable()))
def test_every_command_line_runs(run, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The user's own runs: published ones of one device and framework.
    shutil.copy(PUBLISHED / "korthikanti_2022.csv", tmp_path / "runs.csv")
    ran = run(*shlex.split(line)[1:])
    assert ran.code == 0, ran.err
    assert ran.out


def test_the_tables_of_runs_are_those_of_the_registries():
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    assert with_tables(page) == page


def test_files_that_the_pages_name_exist():
    pages = [ROOT / "docs" / f"life-of-a-{what}.md" for what in ("step", "request")]
    for page in [*pages, *(ROOT / "docs" / "decisions").glob("*.md")]:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`((?:meshwright|planner|simulator|hwmodels|core)/[\w/.]+)`", text):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_links_between_pages_lead_to_files():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert "://" in link or (page.parent / link).exists(), f"{page.name}: {link}"


def anchors(page):
    """Names by which links reach a page's headings."""
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = [
        re.sub(r"[`*]|\]\([^)]*\)|\[", "", line) for line in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    ]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_into_pages_lead_to_headings():
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^):#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
            assert anchor in anchors(page.parent / link if link else page), f"{page.name}: {link}#{anchor}"


def test_every_page_is_in_an_index():
    """docs/README.md lists the pages; docs/serving.md those on serving."""
    indexes = [ROOT / "docs" / name for name in ("README.md", "serving.md", "decisions/README.md")]
    listed = {
        (index.parent / link).resolve()
        for index in indexes
        for link in re.findall(r"\]\(([^)#\s]+)", index.read_text(encoding="utf-8"))
    }
    unlisted = [page for page in PAGES if page.name != "README.md" and page.resolve() not in listed]
    assert not unlisted


def test_the_glossary_is_what_the_command_prints():
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.glossary"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ran.stdout == (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
