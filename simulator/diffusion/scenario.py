"""The keys of a scenario of diffusion."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from core.errors import InputError, located
from core.loading import Strict, build
from core.quantities import Few
from hwmodels.cluster import clusters
from simulator.diffusion.addons import Addons
from simulator.diffusion.layout import Layout
from simulator.diffusion.libraries import diffusion_libraries
from simulator.diffusion.load import DiffusionLoad
from simulator.diffusion.models import LatentDecoder, diffusion_models
from simulator.diffusion.setting import DiffusionSetting
from simulator.diffusion.workload import DiffusionWorkload
from simulator.scenario import Reference, Variation, find


class DiffusionDefinition(Strict):
    """The keys of a scenario file of diffusion."""

    title: str = Field("", description="the question in one line")
    model: Reference = Field(description="catalogue name, path (YAML or a diffusers folder) or mapping")
    decoder: LatentDecoder | None = Field(
        None, description="decoder of latents in place of the model's: `channels`, `blocks`, `latent`"
    )
    cluster: Reference = Field(description="catalogue name, path or mapping")
    workload: DiffusionWorkload = Field(description="what a batch is")
    layout: Layout = Field(
        default_factory=lambda: Layout.model_validate({}), description="how a batch is laid on devices"
    )
    addons: Addons = Field(
        default_factory=lambda: Addons.model_validate({}), description="ControlNets and adapters of a prompt"
    )
    library: Reference = Field("xdit", description="what runs the model: name, path or mapping")
    load: DiffusionLoad | None = Field(
        None, description="prompts that arrive over time; `workload.batch` is then the most that run together"
    )
    replicas: Few = Field(1, description="copies of the layout that share a load")
    seed: int = Field(0, ge=0, le=10**18, description="of the arrivals")
    variations: dict[str, Variation] = Field(
        default_factory=dict, description="named changes to ask `whatif` about"
    )


def load_of(data: Mapping[str, Any], where: str) -> tuple[DiffusionLoad, int, int] | None:
    """The load of a scenario, its replicas and its seed; None where one batch is asked about.

    Raises:
        InputError: a wrong key or value, or replicas without a load.
    """
    written = build(DiffusionDefinition, data, where)
    if written.load is None:
        if written.replicas > 1:
            raise InputError("replicas share a load; state `load` (arrivals, latency)", f"{where}: replicas")
        return None
    return written.load, written.replicas, written.seed


def make_diffusion(data: Mapping[str, Any], where: str, folder: Path) -> DiffusionSetting:
    """Turn the mapping of a scenario of diffusion into the setting of one replica.

    Args:
        data: keys and values as in a file.
        where: name of the source in errors.
        folder: base of relative paths.

    Raises:
        InputError: a wrong key or value, an unknown name, a layout that the request does not have; with the
            key path.
    """
    written = build(DiffusionDefinition, data, where)
    model = find(diffusion_models, written.model, folder, f"{where}: model")
    if written.decoder:
        model = model.model_copy(update={"decoder": written.decoder})
    library = find(diffusion_libraries, written.library, folder, f"{where}: library")
    cluster = find(clusters, written.cluster, folder, f"{where}: cluster")
    devices = written.addons.devices(written.layout)
    with located(f"{where}: layout"):
        cluster.resized(devices * written.replicas)
        cluster = cluster.resized(devices)
    setting = DiffusionSetting(
        written.title, model, cluster, written.workload, written.layout, library, written.addons
    )
    check_layout(setting, where)
    return setting


def check_layout(setting: DiffusionSetting, where: str) -> None:
    """Refuse sizes that the model does not take, and degrees that do not divide it.

    Raises:
        InputError: with the key path, what was found and what is allowed.
    """
    model, work, layout = setting.model, setting.workload, setting.layout
    place = f"{where}: workload"
    for axis, (name, size) in enumerate((("height", work.height), ("width", work.width)), start=1):
        unit = model.decoder.space * model.patch[axis]
        if size < unit:
            raise InputError(
                f"must be at least {unit} (a patch of {model.name}), found {size}", f"{place}.{name}"
            )
    if work.frames > 1 and not model.video:
        raise InputError(f"{model.name} makes images; allowed: 1, found {work.frames}", f"{place}.frames")
    if work.guidance and model.guidance == "embedded":
        raise InputError(
            f"{model.name} takes guidance as an input of one call; allowed: false", f"{place}.guidance"
        )
    if layout.guidance == 2 and setting.calls == 1:
        raise InputError(
            f"guidance on two devices needs two calls a step; {model.name} has one here; allowed: 1",
            f"{where}: layout.guidance",
        )
    if model.heads % layout.ulysses:
        raise InputError(
            f"{model.name}'s {model.heads} heads do not divide by {layout.ulysses}",
            f"{where}: layout.ulysses",
        )
    if model.convolutional and layout.ulysses * layout.ring * layout.pipefusion > 1:
        raise InputError(
            f"{model.name} convolves over the whole image; allowed: guidance, patches", f"{where}: layout"
        )
    if work.batch < layout.data:
        raise InputError(
            f"{work.batch} prompts of a batch leave copies without one; allowed: 1 to {work.batch}, "
            f"found {layout.data}",
            f"{where}: layout.data",
        )
    if setting.addons.placement == "service" and layout.data == 1:
        raise InputError(
            "a service of ControlNets has several copies of the layout; the layout has one; allowed: own",
            f"{where}: addons.placement",
        )
    if layout.pipefusion > model.layers:
        raise InputError(f"{model.name} has {model.layers} blocks", f"{where}: layout.pipefusion")
    if layout.tiling and model.decoder.tiles is None:
        raise InputError(
            f"no tiles of {model.name}'s decoder are known; allowed: false",
            f"{where}: layout.tiling",
        )
    if setting.addons.controls and not model.control:
        listed = ", ".join(
            each.name for each in map(diffusion_models.get, diffusion_models.names()) if each.control
        )
        raise InputError(
            f"no ControlNet of {model.name} is known; known: {listed}, or `control` of a model file",
            f"{where}: addons.controls",
        )
    _check_rows(setting, where)


def _check_rows(setting: DiffusionSetting, where: str) -> None:
    """Refuse patches that are smaller than what a kernel reads around them."""
    layout, (_, rows, _) = setting.layout, setting.latent
    patch = rows / setting.model.patch[1]
    if layout.sequence > setting.tokens:
        raise InputError(
            f"{setting.tokens} patches of a sample do not reach {layout.sequence} ranks", f"{where}: layout"
        )
    halo = setting.model.decoder.kernel // 2
    for name, ranks in (("patches", layout.patches), ("decoder", layout.decoder)):
        if ranks > 1 and patch / ranks <= halo:
            raise InputError(
                f"{ranks} ranks have {patch / ranks:g} of {patch:g} rows each, no more than the halo of a "
                f"kernel ({halo}); allowed: fewer than {patch / halo:g}",
                f"{where}: layout.{name}",
            )
