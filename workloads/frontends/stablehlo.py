"""StableHLO to linalg on tensors: the stock passes of jaxlib, our fixes between them, and a check of what is left."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

from workloads.errors import Kind, WorkloadError
from workloads.frontends.empty import fold_empty
from workloads.frontends.flow import reached_results
from workloads.frontends.ops import walk
from workloads.frontends.stablehlo_fixes import apply_fixes, define

BEFORE = "inline,symbol-dce,func.func(chlo-legalize-to-stablehlo),canonicalize,cse"
AFTER = "stablehlo-legalize-to-linalg,stablehlo-convert-to-signless,canonicalize,cse"
DIALECTS = ("func", "linalg", "tensor", "arith", "math", "scf")
NO_METRICS: Mapping[int, str] = MappingProxyType({})
FILE_LINE = re.compile(r'"([^"]+)":(\d+)')  # in a printed location, innermost call first
ADVICE = {
    "custom_call": "Calls into a library (cholesky, eigh, callbacks) are not supported; take it out of the step",
    "fft": "Fourier transforms are not supported; take it out of the step",
    "rng_bit_generator": "Use JAX's default random generator, or pass the random numbers in the batch",
}


@dataclass(frozen=True)
class Lowered:
    """A module as text; and the same with a location at each op whose line is known: file name and line, no folder."""

    text: str
    lines: str


def legalise(module: Any, name: str, path: Path, metrics: Mapping[int, str] = NO_METRICS) -> Lowered:
    """The module with its public function `@name`, in the dialects of a base module only.

    metrics: names of the results that nothing else of the step needs, by number.
    """
    stablehlo.register_stablehlo_passes()
    with module.context, ir.Location.unknown():
        for dialect in ("arith", "func", "scf", "tensor"):
            module.context.dialects[dialect]  # loads it: creating an op by name needs that
        fold_empty(module)
        _run(module, BEFORE, path, metrics)
        definitions = apply_fixes(module, lambda op: _where(op, module, path))
        _run(module, AFTER, path, metrics)
        define(module, definitions)
        _check_supported(module, path, metrics)
        _name_function(module, name)
        _drop_attributes(module)
        module.operation.verify()
        text = str(module) + "\n"
        _name_lines(module, path)
        return Lowered(text, module.operation.get_asm(enable_debug_info=True) + "\n")


def _run(module: Any, pipeline: str, path: Path, metrics: Mapping[int, str]) -> None:
    reasons: list[tuple[str, str]] = []

    def keep(diagnostic: Any) -> bool:
        reasons.append((diagnostic.message, _file_line(str(diagnostic.location), path)))
        return True

    handler = module.context.attach_diagnostic_handler(keep)
    try:
        passmanager.PassManager.parse(f"builtin.module({pipeline})").run(module.operation)
    except ir.MLIRError as error:
        _check_supported(module, path, metrics)
        told = [(d.message, _file_line(str(d.location), path)) for d in error.error_diagnostics]
        reason, where = next(iter([*reasons, *told]), (str(error).strip().splitlines()[-1], str(path)))
        raise WorkloadError(f"StableHLO does not legalise: {reason}", where, "Report it with the model") from error
    finally:
        handler.detach()


def _file_line(location: str, path: Path) -> str:
    """The line of the user's file in a printed location; the file alone where there is none."""
    found = re.search(re.escape(f'"{path}":') + r"(\d+)", location)
    return f"{path}:{found.group(1)}" if found else str(path)


def _where(op: Any, module: Any, path: Path) -> str:
    line = _line(op, module, path)
    return f"{path}:{line}" if line else str(path)


def _check_supported(module: Any, path: Path, metrics: Mapping[int, str]) -> None:
    """Raises for the op that no fix and no stock pattern took: the first we know advice for, else the first."""
    left = [op for op in walk(module, outer_first=True) if op.name.partition(".")[0] not in (*DIALECTS, "builtin")]
    if not left:
        return
    op = next((op for op in left if op.name.partition(".")[2] in ADVICE), left[0])
    target = op.attributes.get("call_target_name")
    raise WorkloadError(
        f"unsupported op {op.name}" + (f" {target}" if target else ""),
        _where(op, module, path),
        _advice(op, left, module, metrics),
        Kind.OP,
    )


def _advice(op: Any, left: Sequence[Any], module: Any, metrics: Mapping[int, str]) -> str:
    """What to do about `op`, and the others that are left; where only metrics depend on them, to leave these out."""
    reached = frozenset[int]().union(*(reached_results(other, module) for other in left))
    if reached and reached <= set(metrics):
        names = " and ".join(repr(metrics[k]) for k in sorted(reached))
        which = "metric" if len(reached) == 1 else "metrics"
        return f"Leave the {which} {names} out of the step: nothing else depends on it"
    return ADVICE.get(op.name.partition(".")[2], "Write the step without it, in operations on whole arrays")


def _line(op: Any, module: Any, path: Path) -> str | None:
    """The line of the user's file that `op` is from; JAX keeps it at the call of a function of its own."""
    calls = walk(module, "func.call")
    for _ in range(len(calls) + 1):
        found = re.search(re.escape(f'"{path}":') + r"(\d+)", str(op.location))
        if found:
            return found.group(1)
        function = op
        while function.name != "func.func" and function.parent is not None:
            function = function.parent.operation
        name = function.attributes.get("sym_name")
        callers = [call for call in calls if str(call.attributes["callee"]) == f"@{ir.StringAttr(name).value}"]
        if not callers:
            return None
        op = callers[0]
    return None


def _name_lines(module: Any, path: Path) -> None:
    """Gives each op the one location that tells a reader most: the innermost call in the workload's own file, else
    the innermost of all in code that is not this package's frontend."""
    own = str(Path(__file__).parent)
    for op in walk(module):
        lines = [(file, int(line)) for file, line in FILE_LINE.findall(str(op.location)) if os.path.isabs(file)]
        lines = [(file, line) for file, line in lines if os.path.dirname(file) != own]
        file, line = next((found for found in lines if found[0] == str(path)), lines[0] if lines else ("", 0))
        op.location = ir.Location.file(os.path.basename(file), line, 0) if file else ir.Location.unknown()
        for argument in (a for region in op.regions for block in region for a in block.arguments):
            argument.set_location(ir.Location.unknown())


def _name_function(module: Any, name: str) -> None:
    """Renames @main to `@name`, and a helper that has this name already out of its way."""
    names = {ir.StringAttr(op.attributes["sym_name"]).value: op for op in module.body.operations}
    if name in names:
        free = next(f"{name}_{i}" for i in range(len(names) + 1) if f"{name}_{i}" not in names)
        ir.SymbolTable.replace_all_symbol_uses(name, free, module.operation)
        names[name].attributes["sym_name"] = ir.StringAttr.get(free)
    names["main"].attributes["sym_name"] = ir.StringAttr.get(name)


def _drop_attributes(module: Any) -> None:
    """Removes JAX's own attributes: of the module, and of arguments and results."""
    for op in (module.operation, *(f.operation for f in module.body.operations)):
        for name in list(op.attributes):
            if name in ("arg_attrs", "res_attrs") or name.partition(".")[0] in ("jax", "mhlo", "tf", "sdy"):
                del op.attributes[name]
    if "sym_name" in module.operation.attributes:
        del module.operation.attributes["sym_name"]
