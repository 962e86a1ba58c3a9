"""What a base module is: one block of linalg on tensors, canonical, checked, numbered."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from mlir import ir

from mlir_passes.empty import fold_empty
from mlir_passes.errors import PassError, UnsupportedOp
from mlir_passes.ir_tools import (
    attribute_names,
    body,
    function,
    new_context,
    operations,
    parse,
    run_passes,
    strip_sites,
    tensor_type,
    verify,
    walk,
)
from mlir_passes.rests import crop_rests
from mlir_passes.sites import describe, number

ALLOWED = ("func", "linalg", "tensor", "arith", "math", "scf")
ELEMENTS = ("f16", "bf16", "f32", "f64", "i1", "i8", "i16", "i32", "i64", "index")
FOREIGN = ("jax.", "mhlo.", "tf.")
CLEAN = "canonicalize,cse"
_LINALG = "func.func(convert-elementwise-to-linalg)"
_INLINED = f"inline,symbol-dce,{_LINALG},{CLEAN}"
_FOLDED = f"func.func(linalg-fold-unit-extent-dims,{CLEAN})"

_ADVICE = {
    "stablehlo": "The frontend could not lower it; rewrite that part of the step with other operations",
    "chlo": "The frontend could not lower it; rewrite that part of the step with other operations",
    "memref": "Give the step on tensors, before bufferization",
    "cf": "Use structured control flow (scf), or remove assertions",
    "tm_tensor": "Decompose the operation before exporting from PyTorch",
}


def canonicalise(text: str, entry: str, context: ir.Context) -> ir.Module:
    """The canonical module of a frontend's text; raises PassError, UnsupportedOp."""
    module = _parse(text, context)
    _strip_foreign_attributes(module)
    _hide_others(module, entry)
    run_passes(module, _INLINED, "canonicalise")
    block = body(function(module, entry))
    fold_empty(block)
    crop_rests(block)
    run_passes(module, _FOLDED, "canonicalise")
    check(module, entry)
    return module


def check(module: ir.Module, entry: str) -> None:
    """Raise UnsupportedOp for an op of another dialect, or a tensor without static shape or known elements."""
    func_op = function(module, entry)
    block = body(func_op)
    for index, argument in enumerate(block.arguments):
        _check_tensor(argument.type, f"argument {index}")
    for op in walk(func_op):
        if op.name.split(".")[0] not in ALLOWED:
            raise _unsupported(op.name, f" at {op.location}")
        if op.name == "func.call":
            raise UnsupportedOp(
                "check", f"call that cannot be inlined at {op.location}", "Define the callee in the module"
            )
        for result in op.results:
            if "tensor<" in str(result.type):
                _check_tensor(result.type, f"{op.name} at {op.location}")
    for index, value in enumerate(operations(block)[-1].operands):
        _check_tensor(value.type, f"result {index}")


def cleaned(module: ir.Module, entry: str) -> str:
    """Text of the module after verification, without sites, simplified and without dead code."""
    strip_sites(body(function(module, entry)))
    verify(module)
    run_passes(module, CLEAN, "cleanup")
    return str(module)


def canonical_module(text: str, entry: str) -> ir.Module:
    """A frontend's or a numbered module, canonical and simplified, in a context that has loaded nothing else; raises
    PassError, UnsupportedOp. Sites are locations in it."""
    module = canonicalise(text, entry, new_context())
    cleaned(module, entry)
    return parse(str(module.operation.get_asm(enable_debug_info=True)), new_context())


def fingerprint(text: str) -> str:
    """Hash of a cleaned module: equal for variants that are the same program."""
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def write_base(
    step_text: str,
    n_state: int,
    state_names: Sequence[str],
    folder: Path,
    storage: Sequence[str] = ("f32",),
    entry: str = "step",
) -> None:
    """Write `base.mlir` (canonical, numbered) and `space.json` of a step; raises PassError.

    storage: the element types that the workload's numerics rule permits. entry: with any other than "step" the state
    is only read: it has no update chains.
    """
    module = canonicalise(step_text, entry, new_context())
    block = body(function(module, entry))
    number(block)
    (folder / "base.mlir").write_text(str(module))
    describe(block, n_state if entry == "step" else 0, state_names, storage).save(folder / "space.json")


def _parse(text: str, context: ir.Context) -> ir.Module:
    """The module of `text`; an op that MLIR does not know is an UnsupportedOp, in generic and in custom form."""
    context.allow_unregistered_dialects = True
    try:
        module = parse(text, context)
    except PassError as error:
        name = re.search(r"for custom op '([\w.]+)'", error.what)
        if name is None:
            raise
        raise _unsupported(name[1]) from error
    finally:
        context.allow_unregistered_dialects = False
    for op in walk(module.operation):
        if not context.is_registered_operation(op.name):
            raise _unsupported(op.name, f" at {op.location}")
    return module


def _hide_others(module: ir.Module, entry: str) -> None:
    """Make every function but `entry` private: what nothing calls is removed then."""
    function(module, entry)
    for op in module.body.operations:
        if op.operation.name == "func.func" and ir.StringAttr(op.operation.attributes["sym_name"]).value != entry:
            op.operation.attributes["sym_visibility"] = ir.StringAttr.get("private", module.context)


def _unsupported(name: str, where: str = "") -> UnsupportedOp:
    advice = _ADVICE.get(name.split(".")[0], f"Only {', '.join(ALLOWED)} are taken; lower or rewrite it first")
    return UnsupportedOp("check", f"unsupported op {name}{where}", advice)


def _check_tensor(found: ir.Type, what: str) -> None:
    tensor = tensor_type(found)
    if tensor is None:
        raise UnsupportedOp("check", f"{what} has type {found}", "Only tensors of static shape are taken")
    if tensor.element not in ELEMENTS:
        raise UnsupportedOp("check", f"{what} has type {found}", f"Elements may be {', '.join(ELEMENTS)}")


def _strip_foreign_attributes(module: ir.Module) -> None:
    for op in walk(module.operation):
        for name in attribute_names(op):
            if name.startswith(FOREIGN):
                del op.attributes[name]
        if op.name == "func.func":
            for name in ("arg_attrs", "res_attrs"):
                if name in op.attributes:
                    del op.attributes[name]
