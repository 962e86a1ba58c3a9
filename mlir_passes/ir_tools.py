"""Small tools over the MLIR bindings: one context without threads (so that a process may fork), passes, lookups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mlir import ir
from mlir.passmanager import PassManager

from mlir_passes.errors import PassError
from mlir_passes.space import TensorType

# What the bindings raise; their type stubs leave MLIRError out.
MLIR_ERRORS = (ir.MLIRError, ValueError, RuntimeError)  # pyright: ignore[reportAttributeAccessIssue]
_ITERATOR = re.compile("parallel|reduction")
SITE = "site"  # the attribute that holds an op's site, in base.mlir only
_NUMBERED = f'{SITE} = "'
_LOCATED = re.compile(r"""\"((?:op|arg)\d+(?:'\d+)?)"(?!:)""")  # a name, not a file with line and column


def new_context() -> ir.Context:
    """An MLIR context with multithreading off: a forked child of a threaded context deadlocks."""
    context = ir.Context()
    context.enable_multithreading(False)
    return context


def parse(text: str, context: ir.Context, stage: str = "parse") -> ir.Module:
    """The module of `text`; raises PassError with MLIR's own message. An op that has a site has it as location too."""
    try:
        module = ir.Module.parse(text, context)
    except MLIR_ERRORS as error:
        raise PassError(stage, f"MLIR cannot read the module: {_first_line(error)}") from error
    if _NUMBERED in text:
        for op in module.body.operations:
            for block in (block for region in op.operation.regions for block in region.blocks):
                locate_sites(block)
    return module


def run_passes(module: ir.Module, pipeline: str, stage: str) -> None:
    """Run a pass pipeline in place; raises PassError."""
    try:
        PassManager.parse(f"builtin.module({pipeline})", module.context).run(module.operation)
    except MLIR_ERRORS as error:
        raise PassError(stage, _first_line(error)) from error


def verify(module: ir.Module, stage: str = "verify") -> None:
    """Raise PassError with the verifier's message if the module is not valid."""
    try:
        valid = module.operation.verify()
    except MLIR_ERRORS as error:
        raise PassError(stage, _first_line(error)) from error
    if not valid:
        raise PassError(stage, "the verifier refuses the module")


def function(module: ir.Module, name: str) -> Any:
    """The func.func `name`; raises PassError listing the functions there are."""
    found: list[str] = []
    for op in module.body.operations:
        if op.operation.name != "func.func":
            continue
        symbol = ir.StringAttr(op.operation.attributes["sym_name"]).value
        if symbol == name:
            return op.operation
        found.append(symbol)
    raise PassError("parse", f"no function @{name}; the module has {', '.join(found) or 'none'}")


def entry_of(module: ir.Module) -> str:
    """The name of a base module's one function: "step" for a training, "predict" for a prediction."""
    names = [ir.StringAttr(op.operation.attributes["sym_name"]).value for op in module.body.operations]
    return "predict" if "predict" in names and "step" not in names else "step"


def body(func_op: Any) -> Any:
    """The single block of a function; raises PassError where control flow made more."""
    blocks = list(func_op.regions[0].blocks)
    if len(blocks) != 1:
        raise PassError("parse", f"the function has {len(blocks)} blocks, one is needed", "Use structured control flow")
    return blocks[0]


def operations(block: Any) -> list[Any]:
    """The ops of a block, as plain operations."""
    return [op.operation for op in block.operations]


def walk(op: Any) -> list[Any]:
    """Every op under `op`, itself first, then level by level."""
    found = [op]
    for outer in found:
        for region in outer.regions:
            for block in region.blocks:
                found += [inner.operation for inner in block.operations]
    return found


def captured(op: Any) -> list[Any]:
    """Values of the block that `op` stands in which its regions use."""
    block, found = op.block, []
    for inner in walk(op)[1:]:
        for value in inner.operands:
            owner = value.owner
            outside = owner == block if isinstance(owner, ir.Block) else owner.operation.block == block
            if outside and value not in found:
                found.append(value)
    return found


def is_block_argument(value: Any) -> bool:
    return isinstance(value.owner, ir.Block)


def producer(value: Any) -> Any | None:
    """The op that makes `value`, None for a block argument."""
    return None if is_block_argument(value) else value.owner.operation


def tensor_type(value_type: Any) -> TensorType | None:
    """The plain form of a static ranked tensor type, None for any other type."""
    try:
        ranked = ir.RankedTensorType(value_type)
    except ValueError:
        return None
    return TensorType(tuple(ranked.shape), str(ranked.element_type)) if ranked.has_static_shape else None


def iterators(op: Any) -> str:
    """Iterator types of a linalg op as a word of p and r, one letter a loop."""
    return "".join(kind[0] for kind in _ITERATOR.findall(str(op.attributes["iterator_types"])))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:500] if lines else type(error).__name__


def attribute_names(op: Any) -> list[str]:
    """Names of an op's attributes; the bindings iterate over names or named attributes, by version."""
    return [a if isinstance(a, str) else a.name for a in op.attributes]


def site_of(op: Any) -> str:
    """The site of a numbered op."""
    return ir.StringAttr(op.attributes[SITE]).value


def set_site(op: Any, site: str) -> None:
    op.attributes[SITE] = ir.StringAttr.get(site, op.context)


def locate(op: Any, site: str) -> None:
    """Give an op a site as its location, which outlives simplification and fusion, and keeps no equal ops apart."""
    op.location = ir.Location.name(site, context=op.context)


def locate_sites(block: Any, other: str = "") -> None:
    """Give each numbered op of a block its site as location; with `other`, the ops that have none, or one that was
    met before, get that."""
    seen: set[str] = set()
    for op in operations(block):
        site = site_of(op) if SITE in op.attributes else ""
        if site and site not in seen:
            locate(op, site)
        elif other:
            locate(op, other)
        seen.add(site)


def located_site(op: Any) -> str:
    """The site that an op has as its location, the first of several, or the argument ("arg2") that an edit made it for;
    "" for none."""
    found = _LOCATED.search(str(op.location))
    return found[1] if found else ""


def strip_sites(block: Any) -> None:
    """Remove the numbering, so that equal ops are equal again for CSE and for hashing."""
    for op in operations(block):
        if SITE in op.attributes:
            del op.attributes[SITE]


def retyped(op: Any, operands: Sequence[Any], result: Any) -> Any:
    """A copy of an op of one result with other operands and another result type, at the current insertion point."""
    attributes = {name: op.attributes[name] for name in attribute_names(op)}
    if op.name.startswith("linalg."):
        attributes.setdefault("operandSegmentSizes", ir.DenseI32ArrayAttr.get([len(operands) - 1, 1], op.context))
    regions = len(op.regions)
    new = ir.Operation.create(op.name, results=[result], operands=operands, attributes=attributes, regions=regions)
    if regions:
        source = op.clone().operation
        source.regions[0].blocks[0].append_to(new.regions[0])
        source.erase()
    return new
