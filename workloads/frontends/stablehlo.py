"""StableHLO to linalg on tensors: the stock passes of jaxlib, our fixes between them, and a check of what is left."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

from workloads.errors import WorkloadError
from workloads.frontends.stablehlo_fixes import apply_fixes, define, walk

BEFORE = "inline,symbol-dce,func.func(chlo-legalize-to-stablehlo),canonicalize,cse"
AFTER = "stablehlo-legalize-to-linalg,stablehlo-convert-to-signless,canonicalize,cse"
DIALECTS = ("func", "linalg", "tensor", "arith", "math", "scf")
ADVICE = {
    "sort": "Sorting (sort, argsort, top_k, permutation) is not supported; take it out of the step",
    "custom_call": "Calls into a library (cholesky, eigh, callbacks) are not supported; take it out of the step",
    "fft": "Fourier transforms are not supported; take it out of the step",
    "rng_bit_generator": "Use JAX's default random generator, or pass the random numbers in the batch",
}


def legalise(module: Any, name: str, path: Path) -> str:
    """The module as text with its public function `@name`, in the dialects of a base module only."""
    stablehlo.register_stablehlo_passes()
    with module.context, ir.Location.unknown():
        for dialect in ("arith", "func", "scf", "tensor"):
            module.context.dialects[dialect]  # loads it: creating an op by name needs that
        _run(module, BEFORE, path)
        definitions = apply_fixes(module, str(path))
        _run(module, AFTER, path)
        define(module, definitions)
        _check_supported(module, path)
        _name_function(module, name)
        _drop_attributes(module)
        module.operation.verify()
        return str(module) + "\n"


def _run(module: Any, pipeline: str, path: Path) -> None:
    try:
        passmanager.PassManager.parse(f"builtin.module({pipeline})").run(module.operation)
    except ir.MLIRError as error:
        _check_supported(module, path)
        raise WorkloadError(
            f"StableHLO does not legalise: {str(error).strip().splitlines()[0]}", str(path), "Report it with the model"
        ) from error


def _check_supported(module: Any, path: Path) -> None:
    """Raises for the first op that no fix and no stock pattern took, at its line in the user's file."""
    for op in walk(module):
        dialect, _, short = op.name.partition(".")
        if op.name == "builtin.module" or dialect in DIALECTS:
            continue
        target = op.attributes.get("call_target_name")
        line = re.search(re.escape(f'"{path}":') + r"(\d+)", str(op.location))
        raise WorkloadError(
            f"unsupported op {op.name}" + (f" {target}" if target else ""),
            f"{path}:{line.group(1)}" if line else str(path),
            ADVICE.get(short, "Write the step without it, in operations on whole arrays"),
        )


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
