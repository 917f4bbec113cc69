"""Launch files of torchtitan: Python configurations (never executed), command lines, old TOML."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import InputError
from meshwright.exporters.base import Launch
from meshwright.exporters.shell import read_script
from meshwright.exporters.table import Options, table

TABLE = "torchtitan-0.3.yaml"
POLICIES = {"FullAC.Config": "full", "SelectiveAC.Config": "selective"}
MOST_STEPS = 50
"""Functions that a configuration may build on."""
MOST_VALUES = 10_000
"""Of a configuration."""


def parse(text: str, where: str, path: Path | None) -> Launch:
    """The launch of a Python configuration, a TOML file or a command line.

    Raises:
        InputError: none of these.
    """
    if path is not None and path.suffix == ".py":
        return Launch(python_options(text, where, path.absolute().parent.name))
    if path is not None and path.suffix == ".toml":
        return Launch(toml_options(text, where))
    launch = read_script(text, where)
    plain = {
        name.removeprefix("--") if "." in name else name: value for name, value in launch.options.items()
    }
    return Launch(plain, launch.devices, launch.notes)


def toml_options(text: str, where: str) -> Options:
    """Options of the TOML files that torchtitan read before 0.3.

    Raises:
        InputError: broken.
    """
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of numbers of thousands of digits
        raise InputError(f"not valid TOML ({str(error)[:200]})", where) from None
    options = {
        f"{section}.{key}": value
        for section, keys in data.items()
        if isinstance(keys, dict)
        for key, value in _leaves(keys)
    }
    options = _renamed(options, where)
    converters = options.pop("model.converters", [])
    if "float8" in str(converters):
        options["converters"] = "Float8LinearConverter"
    # Sections of converters that nothing names have no effect.
    short = {key: key.replace("quantize.linear.float8.", "float8.") for key in options}
    options = {
        short[key]: value
        for key, value in options.items()
        if converters or not short[key].startswith("quantize.")
    }
    options.setdefault("compile.enable", False)  # the default of every release with TOML files
    _check_recomputation(options, where)
    return options


def _leaves(keys: dict[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Keys of a section with those of its sections (``linear.float8.filter_fqns``)."""
    for key, value in keys.items():
        if isinstance(value, dict) and depth < MOST_SECTIONS:
            yield from _leaves(value, f"{before}{key}.", depth + 1)
        else:
            yield f"{before}{key}", value


MOST_SECTIONS = 4
"""Sections inside each other."""
AC = "activation_checkpoint"


def _check_recomputation(options: Options, where: str) -> None:
    """Read ``selective_ac_option``: op, or the distance between layers that are recomputed whole (2).

    Raises:
        InputError: a part of the layers is recomputed.
    """
    if str(options.get(f"{AC}.mode", "selective")) != "selective":
        return
    every = str(options.get(f"{AC}.selective_ac_option", 2))
    if every == "1":
        options[f"{AC}.mode"] = "full"
    elif every.isdigit():
        words = "" if f"{AC}.selective_ac_option" in options else ", torchtitan's default"
        problem = f"{every}{words}, computes every {every}. layer again, which no plan states"
        raise InputError(
            f"{problem}; 'op', or mode 'full' or 'none' can be predicted",
            f"{where}: {AC}.selective_ac_option",
        )


RENAMED = {
    "training.batch_size": "training.local_batch_size",
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
    "training.tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "training.context_parallel_degree": "parallelism.context_parallel_degree",
    "experimental.context_parallel_degree": "parallelism.context_parallel_degree",
    "training.pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "experimental.pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "experimental.pipeline_parallel_schedule": "parallelism.pipeline_parallel_schedule",
    "experimental.pipeline_parallel_microbatch_size": "parallelism.pipeline_parallel_microbatch_size",
    "experimental.enable_async_tensor_parallel": "compile.enable_async_tensor_parallel",
    "parallelism.enable_async_tensor_parallel": "compile.enable_async_tensor_parallel",
    "training.fsdp_reshard_after_forward": "parallelism.fsdp_reshard_after_forward",
    "training.compile": "compile.enable",
}
"""Keys of torchtitan's TOML of 2024 and early 2025 by those of 0.3 (train_configs of its releases)."""
FLOAT8 = ("float8.enable_float8_linear", "training.enable_float8_linear", "training.enable_fp8_linear")
"""Keys that turned 8-bit products on before converters did."""


def _renamed(options: Options, where: str) -> Options:
    """Options under the keys of 0.3.

    Raises:
        InputError: an old and a new key that disagree.
    """
    renamed: Options = {}
    for key, value in options.items():
        name = RENAMED.get(key, key)
        if name in renamed and renamed[name] != value:
            raise InputError(f"{key} and {name} disagree: {value} and {renamed[name]}", where)
        renamed[name] = value
    for key in FLOAT8:
        if renamed.pop(key, False):
            renamed["converters"] = "Float8LinearConverter"
    return renamed


def python_options(text: str, where: str, package: str = "") -> Options:
    """Options of the last function that makes a configuration.

    Args:
        text: of the module.
        where: to name in errors.
        package: of the module; relative imports are from it.

    Raises:
        InputError: broken, or no such function.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(f"not valid Python ({error})", where) from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    modules = {
        alias.asname or alias.name: (node.module or package).rpartition(".")[2]
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    configs = {name: function for name, function in functions.items() if _returns_config(function)}
    if not configs:
        raise InputError("has no function that returns a Trainer.Config", where)
    reader = _Reader(functions, modules.get("model_registry", ""), where)
    return reader.options(next(reversed(configs)))


def _returns_config(function: ast.FunctionDef) -> bool:
    return function.returns is not None and "Trainer.Config" in ast.unparse(function.returns)


class _Reader:
    """Evaluates assignments of configuration functions; values other than literals are left out."""

    def __init__(self, functions: dict[str, ast.FunctionDef], module: str, where: str) -> None:
        self.functions, self.module, self.where = functions, module, where
        self.steps = self.values = 0

    def options(self, name: str) -> Options:
        """Options set by a function, or those of a shipped configuration."""
        self.steps += 1
        function = self.functions.get(name)
        if function is None or self.steps > MOST_STEPS:
            return dict(table(TABLE).configs.get(name, {}))
        local: dict[str, ast.expr] = {}
        options: Options = {}
        for statement in function.body:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target, value = statement.targets[0], statement.value
                if isinstance(target, ast.Name):
                    local[target.id] = value
                    if (
                        isinstance(value, ast.Call)
                        and isinstance(value.func, ast.Name)
                        and value.func.id.islower()
                    ):
                        options |= self.options(value.func.id) if value.func.id != "model_registry" else {}
                elif isinstance(target, ast.Attribute):
                    path = ast.unparse(target).partition(".")[2]
                    options |= self.options_of(path, value, local)
            elif isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call):
                options |= self.options_of("", statement.value, local)
        return options

    def options_of(self, path: str, value: ast.expr, local: dict[str, ast.expr]) -> Options:
        """Options of one value: a literal, a configuration, or a name assigned before.

        Raises:
            InputError: configurations that name each other without end.
        """
        self.values += 1
        if self.values > MOST_VALUES:
            raise InputError(f"configures more than {MOST_VALUES:,} values", self.where)
        if isinstance(value, ast.Name) and value.id in local:
            return self.options_of(
                path, local[value.id], {name: node for name, node in local.items() if name != value.id}
            )
        if path == "activation_checkpoint":
            return self._policy(value)
        if path == "model_spec" and isinstance(value, ast.Call):
            return self._model(value)
        if isinstance(value, ast.Call):
            options: Options = {}
            for keyword in value.keywords:
                if keyword.arg:
                    options |= self.options_of(
                        f"{path}.{keyword.arg}" if path else keyword.arg, keyword.value, local
                    )
            return options
        literal = _literal(value)
        return {} if literal is None else {path: literal}

    def _policy(self, value: ast.expr) -> Options:
        if isinstance(value, ast.Constant) and value.value is None:
            return {"activation_checkpoint": "none"}
        named = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        return {"activation_checkpoint": POLICIES.get(named, named or "unknown")}

    def _model(self, value: ast.Call) -> Options:
        flavor = _literal(value.args[0]) if value.args else None
        options: Options = {"model_spec": f"{self.module}/{flavor}"} if flavor else {}
        for keyword in value.keywords:
            if keyword.arg == "converters":
                names = re.findall(r"(\w+Converter)\.Config", ast.unparse(keyword.value))
                options |= {"converters": names[0]} if names else {}
        return options


def _literal(value: ast.expr) -> Any:
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return None
