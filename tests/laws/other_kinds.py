"""Random questions of images by diffusion, embedding tables and graphs, and their times."""

from __future__ import annotations

from pathlib import Path

from simulator.diffusion.request import DiffusionRequest, predict_request
from simulator.diffusion.scenario import make_diffusion
from simulator.graphs.epoch import predict_epoch
from simulator.graphs.question import make_graph
from simulator.tables.scenario import make_tables
from simulator.tables.step import predict_step
from tests.laws.questions import Choose, Question

IMAGES = ("pixart-sigma-xl", "sd3.5-medium", "sana1.5-1.6b", "hunyuan-dit-1.2", "flux.1-dev", "sdxl")
VIDEOS = ("cogvideox-2b", "wan2.1-1.3b", "hunyuan-video")
CLUSTERS = ("dgx-h100", "dgx-a100-80gb", "dgx-b200", "l40s-8", "h100-pcie-8", "mi300x-8")
LAYOUTS = ({}, {"ulysses": 2}, {"ring": 2}, {"ulysses": 2, "ring": 2}, {"pipefusion": 2}, {"data": 2})


def diffused(choose: Choose) -> Question:
    """A batch of images or of videos on up to eight devices."""
    model = choose((*IMAGES, *VIDEOS))
    video = model in VIDEOS
    sides = (480, 320) if video else (1024, 512, 768, 1536, 2048)
    work = {"kind": "diffusion", "height": choose(sides), "width": choose(sides), "steps": choose((1, 4, 20))}
    if video:
        work["frames"] = choose((17, 49, 81))
    work["batch"] = choose((1, 2, 4))
    layout = dict(choose(LAYOUTS))
    if model == "sdxl":
        layout = choose(({}, {"patches": 2}, {"patches": 4, "conditioning": 0.3}, {"data": 2}))
    if "data" in layout:
        work["batch"] *= layout["data"]
    if choose((False, True)):
        layout["offload"] = "layers"
    return {"model": model, "cluster": choose(CLUSTERS), "workload": work, "layout": layout}


def tabled(choose: Choose) -> Question:
    """A step of a recommendation model."""
    model = {"name": "small", "dense": 4, "width": 32, "bottom": [64, 32], "top": [64, 1]}
    model |= {"rows": [choose((10**6, 10**4)), 500_000, 2_000, 30], "lookups": [choose((20, 1)), 3, 1, 1]}
    return {
        "model": choose((model, "dlrm-criteo", "dlrm-dcnv2")),
        "cluster": choose(CLUSTERS),
        "gpus": choose((8, 1, 2, 4, 16)),
        "workload": {
            "kind": "tables",
            "batch": choose((65536, 8192)),
            "passes": choose(("training", "scoring")),
        },
        "shards": {"kind": choose(("auto", "table", "row")), "replicated": choose((0, 1e6))},
        "library": choose(("hugectr", "torchrec")),
    }


def graphed(choose: Choose) -> Question:
    """An epoch of a graph neural network."""
    work = {
        "kind": "graph",
        "vertices": 10**6,
        "edges": choose((10**7, 10**8)),
        "features": 100,
        "classes": 47,
    }
    return {
        "model": {"name": "gcn", "layers": choose((8, 32)), "hidden": choose((64, 256))},
        "cluster": choose(CLUSTERS),
        "workload": {**work, "replicas": choose((1.9, 0.5))},
        "layout": choose(
            ({}, {"partitions": 4}, {"stages": 4, "chunks": 16}, {"stages": 2, "partitions": 2})
        ),
    }


def request(question: Question) -> DiffusionRequest:
    """The prediction of a batch by diffusion."""
    return predict_request(make_diffusion(question, "law", Path()))


def seconds(question: Question) -> float:
    """Latency of a batch, or seconds of a step or an epoch."""
    kind = question["workload"]["kind"]
    if kind == "tables":
        return predict_step(make_tables(question, "law", Path())).step_s
    if kind == "graph":
        return predict_epoch(make_graph(question, "law", Path())).epoch_s
    return request(question).times.latency_s
