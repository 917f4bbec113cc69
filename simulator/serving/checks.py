"""Senseless combinations of policies in a serving question, refused with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from core.errors import InputError, UnknownNameError
from simulator.lengths.base import Lengths
from simulator.models import Model
from simulator.serving.question.deployment import Deployment, Pool
from simulator.serving.question.resizes import Resize
from simulator.serving.replica.schedulers import Scheduler
from simulator.serving.replica.schedulers.fair import Fair
from simulator.serving.routers import Router
from simulator.serving.routers.by_quality import ByQuality
from simulator.serving.routers.migration import Migration, make_migration
from simulator.serving.scalers import Scaler
from simulator.serving.steps.step_times import StepTimes
from simulator.serving.workload import Serving
from simulator.serving.workload.programs import SPAN


def check_output(model: Model, tokens: float, where: str) -> None:
    """Refuse outputs of a model that writes none.

    Args:
        model: of the question.
        tokens: mean output of a request.
        where: key path of the output.

    Raises:
        InputError: an encoder is asked for more than the prompt's pass.
    """
    if not model.causal and tokens > 1:
        raise InputError(f"{model.name} is an encoder and writes no tokens: 1, or --osl 0", where)


def part_asked(model: Model, output: Lengths | None) -> Model:
    """What a question is about: the encoder of a model alone, where no token beside one is written."""
    return model if output is None or output.mean() > 1 else model.encoder_alone


def check_tiers(
    serving: Serving, deployment: Deployment, engine: str, token_bytes: float, block_tokens: int, where: str
) -> None:
    """Refuse tiers that cannot hold what they are for, and documents that nothing finds.

    Args:
        serving, deployment: of the question.
        engine: name of the first pool's preset, for the message.
        token_bytes: KV of one token of a replica, B.
        block_tokens: tokens of a KV block.
        where: name of the source in errors.

    Raises:
        InputError: a tier below one unit; documents without tiers that state `recompute`, or
            beside adapters that share their memory.
    """
    chunks = serving.chunks
    if chunks is not None and not deployment.shares_links:
        raise InputError(
            f"{engine} finds prefixes only, not documents anywhere in a prompt; state `recompute` in "
            "deployment.tiers (CacheBlend: 0.15, APE: 0; 1 computes all)",
            f"{where}: workload.chunks",
        )
    if chunks is not None and deployment.adapters is not None and deployment.adapters.memory == "shared":
        raise InputError(
            "documents in tiers beside adapters that take KV blocks are not modelled; state their GB",
            f"{where}: deployment.adapters.memory",
        )
    unit = SPAN if chunks is None else chunks.tokens
    unit = max(unit, block_tokens)
    for number, tier in enumerate(deployment.tiers):
        if tier.gigabytes * 1e9 < unit * token_bytes:
            raise InputError(
                f"a tier of {tier.gigabytes:g} GB holds no unit of {unit:,} tokens "
                f"({unit * token_bytes / 1e9:.3g} GB)",
                f"{where}: deployment.tiers.{number}.gigabytes",
            )


def check_deadline(serving: Serving, steps: Iterable[StepTimes], where: str) -> None:
    """Refuse a deadline that no replica can meet with nothing beside a program of mean lengths.

    Args:
        serving: the workload.
        steps: step times of the pools.
        where: name of the source in errors.

    Raises:
        InputError: the deadline is too short.
    """
    deadline = serving.program.deadline
    if deadline is None or serving.input is None or serving.output is None:
        return
    prompt, output = max(int(serving.input.mean()), 1), serving.output.mean()
    step_times = list(steps)
    prompt_s = min(steps.step(((prompt, 0),), 0, 0) for steps in step_times)
    token_s = min(steps.step((), 1, prompt) for steps in step_times)
    alone = serving.program.depth * (prompt_s + max(output - 1.0, 0.0) * token_s)
    if alone > deadline:
        raise InputError(
            f"no replica meets a deadline of {deadline:g} s alone: a program's {serving.program.depth} "
            f"requests in turn, {prompt:,} + {output:,.0f} tokens in the mean, take {alone:.3g} s on the "
            "fastest; a longer deadline, faster replicas or shorter outputs help",
            f"{where}: workload.program.deadline",
        )


def check_lending(serving: Serving, deployment: Deployment, migration: Migration | None, where: str) -> None:
    """Refuse what blocks that are lent do not go with.

    Args:
        serving, deployment: of the question.
        migration: its policy.
        where: name of the source in errors.

    Raises:
        InputError: the reason.
    """
    if migration is None or not migration.lends:
        return
    place = f"{where}: deployment.router.migrate.kind"
    shared = serving.prefix is not None or serving.chunks is not None or serving.program.kind != "single"
    refused = {
        "pools": bool(deployment.pools),
        "data or pipeline": deployment.data > 1 or deployment.pipeline > 1,
        "a scaler": deployment.scaler != "fixed",
        "failures": deployment.failures is not None,
        "speculation": deployment.speculation is not None,
        "shared prefixes, documents or programs": shared or serving.trace is not None,
    }
    conflicts = [name for name, is_used in refused.items() if is_used]
    if conflicts:
        raise InputError(
            f"{migration.name!r} lends plain blocks of one pool; found {', '.join(conflicts)}", place
        )


def check_scalers(serving: Serving, scalers: Sequence[tuple[str, Scaler]], where: str) -> None:
    """Refuse scaling by targets without a target, and by phases where pools run both.

    Args:
        serving: the workload.
        scalers: role and scaler of each pool.
        where: key path of the scenario.

    Raises:
        InputError: the workload states none, or a pool is of neither phase.
    """
    for role, scaler in scalers:
        if scaler.reads_requests and role not in ("prefill", "decode"):
            raise InputError(
                f"{scaler.name} scales pools of role prefill or decode; found one of role {role}",
                f"{where}: deployment.scaler",
            )
    if any(scaler.watches for _, scaler in scalers) and not serving.slo.has_targets:
        raise InputError(
            "scaling by targets needs one: ttft, tpot or e2e in workload.slo", f"{where}: deployment.scaler"
        )


def check_tenants(serving: Serving, schedulers: Iterable[Scheduler], where: str) -> None:
    """Refuse fair shares of other tenants than the workload's.

    Args:
        serving: the workload, whose priorities number the tenants.
        schedulers: of the pools.
        where: key path of the deployment.

    Raises:
        InputError: a tenant has no weight or limit, or one is of no tenant.
    """
    tenants = max(len(serving.priorities), 1)
    for scheduler in schedulers:
        if not isinstance(scheduler, Fair):
            continue
        for name, values in (("weights", scheduler.weights), ("most_running", scheduler.most_running)):
            if values and len(values) != tenants:
                raise InputError(
                    f"one entry for each of {tenants} tenants (workload.priorities, shares of requests) is "
                    f"needed, found {len(values)}",
                    f"{where}.options.scheduler_options.{name}",
                )


def migration_of(written: Mapping[str, Any] | None, several: bool, where: str) -> Migration | None:
    """The migration policy of a deployment; None where it states none.

    Args:
        written: `router.migrate`, or `migrate`.
        several: whether a pool that generates tokens has, or may get, more than one replica.
        where: key path of the deployment.

    Raises:
        InputError: no kind or an unknown one, a wrong parameter, one replica.
    """
    if written is None:
        return None
    place = f"{where}.router.migrate"
    if not isinstance(written.get("kind"), str):
        raise InputError("key 'kind' is missing: the policy that moves sequences", place)
    if not several:
        raise InputError("sequences move between replicas of one pool, and none has more than one", place)
    options = {key: value for key, value in written.items() if key != "kind"}
    return make_migration(written["kind"], options, place)


def check_roles(pools: Sequence[tuple[str, str]], where: str) -> None:
    """Refuse a pool of prompts without one of outputs, the reverse, and either of another model.

    Args:
        pools: role and model of each pool.
        where: key path of the pools, for errors.

    Raises:
        InputError: there is one of both only, or they serve different models.
    """
    roles, served = {role for role, _ in pools}, {model for _, model in pools}
    if len(roles & {"prefill", "decode"}) == 1:
        raise InputError(
            f"pools of role prefill and of role decode need each other; found {', '.join(sorted(roles))}",
            where,
        )
    if len(served) > 1 and roles != {"mixed"}:
        raise InputError(
            f"pools of different models ({', '.join(sorted(served))}) must have the role mixed; "
            f"found {', '.join(sorted(roles))}",
            where,
        )


class ServedPool(Protocol):
    """A pool of a setting, as checks see it."""

    @property
    def pool(self) -> Pool:
        """As stated."""
        ...

    @property
    def model(self) -> Model:
        """What it serves."""
        ...


Served = TypeVar("Served", bound=ServedPool)


def check_resize(
    resize: Resize, deployment: Deployment, pools: Sequence[Served], attention: bool, where: str
) -> Served:
    """The pool of the replica whose ranks join or leave.

    Args:
        resize: of the deployment.
        pools: in the order of their replicas.
        attention: whether there is a pool of role attention.
        where: key path of the resize, for errors.

    Raises:
        InputError: no such replica, a model without experts, or a policy that is not modelled beside.
    """
    beside = {
        "migrate": deployment.migrate,
        "adapters": deployment.adapters,
        "power_policy": deployment.power_policy,
        "failures": deployment.failures,
        "a pool of role attention": attention or None,
    }
    if named := [name for name, value in beside.items() if value is not None]:
        raise InputError(f"ranks that join or leave beside {named[0]} are not modelled", where)
    number = resize.replica
    for served in pools:
        if number < served.pool.replicas:
            break
        number -= served.pool.replicas
    else:
        raise InputError(
            f"found {resize.replica}, allowed: below {resize.replica - number}", f"{where}.replica"
        )
    pool = served.pool
    if served.model.moe is None or pool.expert == 1:
        raise InputError("ranks join and leave replicas with experts spread over them (`expert`)", where)
    if pool.scaler != "fixed" or pool.pipeline > 1 or pool.role == "prefill":
        raise InputError(
            f"the pool needs the scaler fixed, one pipeline stage and a role with outputs; "
            f"found {pool.scaler}, {pool.pipeline} and {pool.role}",
            where,
        )
    return served


def check_qualities(router: Router, pools: Sequence[str], where: str) -> None:
    """Refuse a table of quality that misses a pool, or names one that is not there.

    Raises:
        InputError: the tables' names and the pools' differ.
        UnknownNameError: a name of the table is no pool's.
    """
    if not isinstance(router, ByQuality):
        return
    for name in router.quality:
        if name not in pools:
            raise UnknownNameError("pool", name, pools, f"{where}.router_options.quality")
    if missing := [name for name in pools if name not in router.quality]:
        raise InputError(
            f"pool {missing[0]!r} has no quality; give one to each of {', '.join(pools)}",
            f"{where}.router_options.quality",
        )
