"""``meshwright plan serve`` for images and videos: layout, batch and replicas of a diffusion model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.commands.plan_flags import ImageFlags

SIZE = re.compile(r"(\d{1,5})x(\d{1,5})(?:@(\d{1,6}))?")
PLANS = 5
MOST_PLANS = 10_000
NEEDED = ("cluster", "gpus", "images", "rate", "latency")


def makes_images(model: str | None) -> bool:
    """Whether a model is one of diffusion: by its name, or by a folder of diffusers."""
    from core.errors import MeshwrightError
    from core.loading import Catalogue
    from simulator.models import models

    # Nearly all questions are about a language model by its name: those need no module of diffusion.
    if model is None or Catalogue.resolve(models, model) is not None:
        return False
    from simulator.diffusion.models import diffusion_models

    try:
        diffusion_models.get(model)
    except MeshwrightError:
        return False
    return True


def check_makes_images(model: str) -> None:
    """Refuse a model of no catalogue, where a question is about images.

    Raises:
        UnknownNameError: the name is neither of a language model nor of one of diffusion.
    """
    from simulator.diffusion.models import diffusion_models
    from simulator.models import models

    if models.resolve(model) is None:
        diffusion_models.get(model, "--model")


def question_of(flags: ImageFlags) -> dict[str, Any]:
    """The flags as a scenario of one replica under a load.

    Raises:
        InputError: a flag is missing or not readable.
    """
    from core.errors import InputError
    from meshwright.commands.plan_flags import flag

    missing = [flag(name) for name in NEEDED if getattr(flags, name) is None]
    if missing:
        raise InputError(
            f"{' '.join(missing)} missing; plans of diffusion models need --images 1024x1024 --rate 2 "
            "(requests a second) --latency 10 (seconds that 90 % of them stay below); one picture on one "
            "layout: meshwright simulate diffusion-sd3.5-large",
            "plan serve",
        )
    written = SIZE.fullmatch(str(flags.images).strip())
    if written is None:
        raise InputError(
            f"must be WIDTHxHEIGHT, of a video WIDTHxHEIGHT@FRAMES (1280x720@81), found {flags.images!r}",
            "--images",
        )
    width, height, frames = (int(number) for number in (*written.groups()[:2], written[3] or 1))
    return {
        "model": flags.model,
        "cluster": flags.cluster,
        "workload": {
            "kind": "diffusion",
            "width": width,
            "height": height,
            "frames": frames,
            **({} if flags.steps is None else {"steps": flags.steps}),
        },
        "load": {"arrivals": {"kind": "poisson", "rate": flags.rate}, "latency": flags.latency},
    }


def plan_diffusion(flags: ImageFlags) -> None:
    """Search and print plans of a diffusion model, and save one if requested.

    Raises:
        InputError: a flag is missing or wrong.
        InfeasibleError: no plan meets the target; the message names the nearest.
    """
    from core.errors import InfeasibleError, InputError
    from hwmodels.cluster import clusters
    from meshwright.commands.output import note, print_json, show_tables
    from meshwright.commands.plan_files import PlanFiles
    from meshwright.reports.diffusion_plans import describe_plans, nearest_plan, plan_tables, scenario_of
    from planner.diffusion.search import search_diffusion
    from simulator.diffusion.scenario import load_of, make_diffusion

    if flags.top is not None and not 1 <= flags.top <= MOST_PLANS:
        raise InputError(f"must be from 1 to {MOST_PLANS:,}, found {flags.top:,}", "--top")
    files = PlanFiles(flags.save, flags.rank, None, None)
    files.check_rank(flags.top or PLANS)
    where, data = "command line", question_of(flags)
    setting, loaded = make_diffusion(data, where, Path()), load_of(data, where)
    if loaded is None:
        return
    load, _, seed = loaded
    devices = _whole(flags.gpus)
    cluster = clusters.get(str(flags.cluster)).resized(devices)
    search = search_diffusion(setting, cluster, load, seed, flags.top or PLANS)
    if flags.json:
        print_json(describe_plans(search, load))
    if not search.plans:
        raise InfeasibleError(nearest_plan(search, load))
    tables = plan_tables(search, setting, load)
    if not flags.json:
        show_tables(*tables)
    if flags.html is not None:
        from meshwright.pages.sections import tables_page

        tables_page(f"{setting.model.name} on {devices:,} {cluster.device.name}", {}, tables).write(
            flags.html
        )
        note(f"page written: {flags.html}")
    if flags.save is not None:
        if flags.rank > len(search.plans):
            raise InputError(f"must be from 1 to {len(search.plans)}, found {flags.rank}", "--rank")
        files.write_mapping(scenario_of(data, search.plans[flags.rank - 1]))
        note(f"scenario written: {flags.save}")


def _whole(gpus: Any) -> int:
    """Devices as a number.

    Raises:
        InputError: a range or something else.
    """
    from core.errors import InputError

    if not str(gpus).isdigit():
        raise InputError(f"plans of diffusion models take one number of devices, found {gpus!r}", "--gpus")
    return int(gpus)
