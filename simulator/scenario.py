"""A scenario: a YAML file with a model, a cluster, a workload and optionally a plan.

Catalogue names, paths (relative to the scenario's file) and inline mappings are accepted everywhere.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, create_model, model_validator

from core.errors import InputError, Notice, UnknownNameError, located, shown
from core.loading import Catalogue, Strict, build, exists, looks_like_path, read_mapping, refuse_hub_name
from core.records import record
from hwmodels.cluster import Cluster, clusters
from hwmodels.device import Device
from hwmodels.mixed import mixed_cluster
from simulator.frameworks import Framework, default_name, frameworks
from simulator.lengths.histogram import with_histogram
from simulator.levers import LEVERS, stated
from simulator.models import Model, models
from simulator.models.towers.pictures import seeing
from simulator.placement import MixedSetting, Placement, shares
from simulator.plan import FIXABLE, Plan
from simulator.recipes import recipes
from simulator.rules import check, check_allow, check_workload, insisted, without_default_graphs
from simulator.schedules import get_schedule
from simulator.setting import Setting
from simulator.site import Site, check_site, read_site
from simulator.stragglers import Straggler, check_stragglers
from simulator.workload import Training

if TYPE_CHECKING:
    from simulator.runs.question import AskedRun, RunQuestion

ModelT = TypeVar("ModelT", bound=BaseModel)

CATALOGUES: Mapping[str, Catalogue[Any]] = MappingProxyType(
    {"model": models, "cluster": clusters, "framework": frameworks}
)
"""The keys of a scenario that hold a catalogue name, a path or a mapping."""


def _name_or_mapping(value: object) -> object:
    if isinstance(value, BaseModel) or (isinstance(value, str | Mapping) and value):
        return value
    if isinstance(value, Path):
        return str(value)
    raise ValueError("a catalogue name, a path or a mapping is needed")


Reference = Annotated[Any, AfterValidator(_name_or_mapping)]


def _overrides(value: object) -> object:
    parts = [value] if isinstance(value, Mapping) else value
    if isinstance(parts, list) and all(isinstance(part, str | Mapping) and part for part in parts):
        return parts
    raise ValueError(
        "key paths with their values are needed, or a list of such mappings and of names of variations"
    )


Overrides = Annotated[Any, AfterValidator(_overrides)]


class Search(Strict):
    """What a search for a plan may choose."""

    fix: dict[str, Any] = Field(default_factory=dict, description="plan fields held at a value")
    limit: dict[str, Any] = Field(default_factory=dict, description="highest value of plan fields")
    objective: Literal["time", "cost", "energy"] = Field(
        default="time", description="what the best plan needs least of"
    )
    top: int = Field(default=5, ge=1, le=10_000, description="plans to report")
    headroom: float | str | None = Field(
        default=None,
        description="memory of a device that plans leave free: a share (`0.1`, `10%`) or a size (`8GiB`); "
        "by default as much as the memory model's own error asks for",
    )
    offload: bool = Field(
        default=False,
        description="whether plans may keep optimizer and gradients on the host, and on the SSDs of nodes",
    )


class Variation(Strict):
    """A named variation; a list in its place is short for its ``set``."""

    set: Overrides = Field(
        default_factory=list,
        description="values by key path (`cluster.network.nic_gbps: 800`), or a list of such "
        "mappings and of names of other variations, applied in order",
    )
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict, description="lists of values by key path, each tried; several keys make a grid"
    )
    replan: bool = Field(False, description="whether to search a new plan instead of keeping it")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        return {"set": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _changes(self) -> "Variation":
        if not (self.set or self.sweep or self.replan):
            raise ValueError("changes nothing: give set, sweep or replan")
        return self


class Definition(Strict):
    """The keys of a scenario file."""

    title: str = Field("", description="the question in one line")
    model: Reference = Field(description="catalogue name, path (YAML, config.json or its folder) or mapping")
    cluster: Reference = Field(description="catalogue name, path or mapping")
    gpus: int = Field(gt=0, le=2**24, description="devices of the job")
    workload: Training = Field(description="what is trained")
    framework: Reference | None = Field(
        None, description="catalogue name, path or mapping; default: by device, as below"
    )
    recipe: Reference | None = Field(
        None,
        description="a release's settings: catalogue name, path or mapping; it names its framework where "
        "`framework` is left out",
    )
    plan: dict[str, Any] | None = Field(
        None,
        description="how the workload is laid on the cluster; the framework fills what it leaves out",
    )
    search: Search = Field(default_factory=Search, description="how `plan` looks for a plan")
    variations: dict[str, Variation] = Field(
        default_factory=dict, description="named changes to ask `whatif` about"
    )
    stragglers: list[Straggler] = Field(
        default_factory=list,
        description="slow stages of single replicas; the event engine then times the step",
    )
    run: Any = Field(
        None, description="a run of weeks: length, faults, recovery, checkpoints, spares (docs/runs.md)"
    )
    site: Reference | None = Field(
        None, description="what `meshwright learn` found in measured steps: path or mapping"
    )
    allow: list[str] = Field(
        default_factory=list,
        description="rules of the release that plans may break, by name (docs/search.md); the answer says so",
    )
    placement: Placement | None = Field(
        None, description="which group of a cluster of groups carries which stages or replicas"
    )


def training_definition(data: Mapping[str, Any]) -> type[Definition]:
    """What checks a scenario's keys; only one with a run imports faults and checkpoints."""
    return Definition if data.get("run") is None else _run_definition()


@cache
def _run_definition() -> type[Definition]:
    from simulator.runs.question import RunQuestion

    return create_model("RunDefinition", __base__=Definition, run=(RunQuestion, Field()))


@record()
class MixedScenario:
    """A scenario on a cluster of groups, with all references resolved and checked."""

    title: str
    setting: MixedSetting
    plan: Plan
    insisted: Mapping[str, str]
    """Rules of the release that the plan breaks and that the user set aside, with what they say."""


@record()
class Scenario:
    """A scenario with all references resolved and checked."""

    title: str
    setting: Setting
    plan: Plan | None
    search: Search
    variations: Mapping[str, Variation]
    run: "AskedRun | None" = None

    def needed_plan(self, where: str, missing: str = "key 'plan' is missing") -> Plan:
        """The plan.

        Raises:
            InputError: the scenario has none.
        """
        if self.plan is None:
            raise InputError(missing, where)
        return self.plan


def read_scenario(path: Path) -> Scenario:
    """Read a scenario file.

    Args:
        path: the YAML file.

    Raises:
        InputError: unreadable, a wrong key or value, an unknown name, an impossible plan; with the key path.
    """
    return make_scenario(read_mapping(path), str(path), path.parent)


def make_scenario(data: Mapping[str, Any], where: str, folder: Path) -> Scenario:
    """Turn the mapping of a scenario into one.

    Args:
        data: keys and values as in a file.
        where: name of the source in errors.
        folder: base of relative paths.

    Raises:
        InputError: as `read_scenario`.
    """
    written, (model, cluster, framework) = look_up(data, where, folder)
    for option in ("fix", "limit"):
        for name in getattr(written.search, option):
            if name not in FIXABLE:
                raise UnknownNameError("plan field", name, FIXABLE, f"{where}: search.{option}")
    with located(f"{where}: gpus"):
        sized = cluster.resized(written.gpus)
    site = _site(written, sized, framework, where, folder)
    work, stragglers = written.workload, tuple(written.stragglers)
    model = seeing(model.stacked, work.images, work.seq_len, f"{where}: workload.images")
    setting = Setting(model, sized, work, framework, stragglers, site, tuple(written.allow))
    check_allow(setting, f"{where}: allow")
    with located(f"{where}: workload.precision"):
        setting.cluster.device.peak(setting.training.precision)
    check_workload(setting, where)
    plan = None if written.plan is None else complete_plan(setting, written.plan, f"{where}: plan")
    if plan is not None:
        check_stragglers(setting.stragglers, plan, f"{where}: stragglers")
    return Scenario(
        written.title,
        setting,
        plan,
        written.search,
        written.variations,
        asked_run(written.run, where, folder),
    )


def _site(
    written: Definition, cluster: Cluster, framework: Framework, where: str, folder: Path
) -> Site | None:
    """The site of a scenario.

    Raises:
        InputError: unreadable, or of another device or framework.
    """
    if written.site is None:
        return None
    site = read_site(written.site, f"{where}: site", folder)
    check_site(site, cluster.device.name, framework.name, f"{where}: site")
    return site


def asked_run(question: "RunQuestion | None", where: str, folder: Path) -> "AskedRun | None":
    """A scenario's ``run`` with its faults resolved; None without one.

    Raises:
        InputError: unknown or wrong faults.
    """
    if question is None:
        return None
    from simulator.faults import read_faults
    from simulator.runs.question import AskedRun

    return AskedRun(question, read_faults(question.faults, f"{where}: run.faults", folder), f"{where}: run")


def make_mixed(data: Mapping[str, Any], where: str, folder: Path) -> MixedScenario | None:
    """Turn the mapping of a scenario into one on a cluster of groups; None where its cluster is of one kind.

    Raises:
        InputError: as `read_scenario`, and a placement that is missing or does not fit.
    """
    cluster = mixed_cluster(data.get("cluster"), f"{where}: cluster", folder)
    if cluster is None:
        return None
    written = build(training_definition(data), data, where)
    if written.placement is None or written.plan is None:
        missing = "placement" if written.placement is None else "plan"
        raise InputError(f"key {missing!r} is missing; a cluster of groups needs plan and placement", where)
    if written.gpus > cluster.devices:
        problem = f"{cluster.name} has {cluster.devices} devices, asked for {written.gpus}"
        raise InputError(problem, f"{where}: gpus")
    precision = written.workload.precision
    with located(f"{where}: workload.precision"):
        cluster.peak_flops(precision)
    model = find(models, written.model, folder, f"{where}: model")
    # All groups run one release: by default that of the slowest, whatever their order.
    slowest = min(cluster.groups, key=lambda group: (group.cluster.device.peak(precision), group.name))
    framework = find_framework(written, slowest.cluster.device, folder, where)
    allow = tuple(written.allow)
    unplanned = MixedSetting(model, cluster, written.workload, framework, written.placement, allow)
    devices = cluster.groups[0].uniform(written.gpus)
    uniform = Setting(model, devices, written.workload, framework, allow=allow)
    check_allow(uniform, f"{where}: allow")
    plan = fill_plan(uniform, written.plan, f"{where}: plan")
    planned = framework.model_copy(update={"defaults": {**framework.defaults, **stated(plan)}})
    setting = replace(unplanned, framework=planned)
    broken: dict[str, str] = {}
    for share in shares(setting, plan, f"{where}: placement"):
        part = share.plan(plan)
        check(unplanned.on(share, plan), part, f"{where}: plan")
        broken |= insisted(unplanned.on(share, plan), part)
    return MixedScenario(written.title, setting, plan, broken)


def look_up(data: Mapping[str, Any], where: str, folder: Path) -> tuple[Definition, tuple[Any, ...]]:
    """Check every key and value of a scenario, and resolve its model, cluster and framework.

    `make_scenario` checks that they fit together.

    Raises:
        InputError: a wrong key or value, an unknown name, an unreadable file.
    """
    data = with_histogram(data, where, folder)
    written = build(training_definition(data), data, where)
    if written.placement is not None:
        raise InputError("needs a cluster with groups", f"{where}: placement")
    model, cluster = (
        find(CATALOGUES[name], getattr(written, name), folder, f"{where}: {name}")
        for name in ("model", "cluster")
    )
    framework = find_framework(written, cluster.device, folder, where)
    _say_misfit(written, model, cluster.device, folder, where)
    return written, (model, cluster, framework)


def _say_misfit(written: Definition, model: Model, device: Device, folder: Path, where: str) -> None:
    """Warn of a recipe that its release ships for other models or devices."""
    recipe = find(recipes, written.recipe, folder, f"{where}: recipe") if written.recipe else None
    if recipe is not None and (misfit := recipe.misfit(model.name, device.name)):
        warnings.warn(f"{where}: recipe: {recipe.name!r} is not shipped for {misfit}", Notice, 3)


def find_framework(written: Definition, device: Device, folder: Path, where: str) -> Framework:
    """The framework of a scenario, set up by its recipe; by default the recipe's or the device's framework.

    Raises:
        InputError: an unknown name, or a recipe of another framework.
    """
    recipe = find(recipes, written.recipe, folder, f"{where}: recipe") if written.recipe else None
    reference = written.framework
    if reference is None:
        usual = default_name(device, written.workload.adapter, written.gpus)
        reference = recipe.framework if recipe else usual
    framework = find(frameworks, reference, folder, f"{where}: framework")
    return recipe.applied(framework, f"{where}: recipe") if recipe else framework


def complete_plan(setting: Setting, fields: Mapping[str, Any], where: str) -> Plan:
    """Fill in the defaults of a plan (the framework's, the remaining replicas) and check it.

    Raises:
        InputError: an unknown key, a wrong value, or a rule that the plan breaks.
    """
    plan = fill_plan(setting, fields, where)
    check(setting, plan, where)
    if plan.place is not None:
        from simulator.training.automatic import settled

        plan = settled(setting, plan)
    return plan


def fill_plan(setting: Setting, fields: Mapping[str, Any], where: str) -> Plan:
    """Fill in the defaults of a plan: the framework's, and the remaining replicas.

    Raises:
        InputError: an unknown key or a wrong value.
    """
    usual = {name: value for name, value in setting.framework.defaults.items() if name not in LEVERS}
    if fields.get("tensor", usual.get("tensor", 1)) == 1:
        usual.pop("sequence_parallel", None)
    plan = build(Plan, {**usual, **_implied(setting, fields), **fields}, where)
    get_schedule(plan.schedule, f"{where}.schedule")
    return without_default_graphs(setting, plan)


def changed(data: Mapping[str, Any], key: str, value: object, where: str) -> dict[str, Any]:
    """Return a mapping with the value at a key path (``workload.seq_len``) replaced.

    Raises:
        InputError: the path goes through something that is not a mapping.
    """
    first, _, rest = key.partition(".")
    if not rest:
        return {**data, first: value}
    inner = data.get(first, {})
    if not isinstance(inner, Mapping):
        raise InputError(f"{first!r} is {inner!r}, not a mapping, so {key!r} cannot be set in it", where)
    return {**data, first: changed(inner, rest, value, where)}


def _implied(setting: Setting, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The remaining replicas, and the schedule required by virtual pipeline stages."""
    implied: dict[str, Any] = {}
    degrees = [fields.get(name, 1) for name in ("tensor", "context", "pipeline")]
    if all(isinstance(degree, int) and degree > 0 for degree in degrees):
        implied["data"] = max(setting.cluster.devices // (degrees[0] * degrees[1] * degrees[2]), 1)
    chunks = fields.get("virtual_pipeline", 1)
    if isinstance(chunks, int) and chunks > 1:
        implied["schedule"] = "interleaved"
    return implied


def find(
    catalogue: Catalogue[ModelT], reference: str | Mapping[str, Any] | ModelT, folder: Path, where: str
) -> ModelT:
    """Resolve a reference of a scenario, with paths relative to the folder; objects are returned unchanged.

    Raises:
        InputError: an unknown name, an unreadable file or a wrong definition.
    """
    if isinstance(reference, BaseModel):
        if isinstance(reference, catalogue.model):
            return reference
        kind, needed = type(reference).__name__, catalogue.model.__name__
        raise InputError(f"a {needed} is needed, found a {kind}", where)
    if isinstance(reference, Mapping):
        return build(catalogue.model, reference, where, folder)
    if not isinstance(reference, str | Path):
        raise InputError(f"must be a name, a path or a mapping, found {shown(reference)}", where)
    shipped = reference in catalogue.names()
    here = exists(folder / reference)
    if not shipped and (here or (looks_like_path(reference) and catalogue.resolve(reference) is None)):
        if not here:
            refuse_hub_name(catalogue.kind, str(reference), folder / reference, where)
        return catalogue.get(folder / reference, where)
    return catalogue.get(reference, where)
