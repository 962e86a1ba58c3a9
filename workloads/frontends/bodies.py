"""Regions of StableHLO ops (comparators, reducers) as private functions on scalars, for loops written as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from workloads.errors import WorkloadError
from workloads.frontends.ops import element, tensor, walk


@dataclass(frozen=True)
class Body:
    """A function from the scalars of a region's arguments to those that it returns; one function a result."""

    name: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]

    def declarations(self) -> str:
        """What text that calls it has to hold beside."""
        arguments = ", ".join(self.arguments)
        return "".join(
            f"func.func private @{self.name}_{k}({arguments}) -> {type_}\n" for k, type_ in enumerate(self.results)
        )

    def call(self, result: str, arguments: list[str], k: int = 0) -> str:
        """A line that gives `result` the k-th result."""
        values, types = ", ".join(arguments), ", ".join(self.arguments)
        return f"{result} = func.call @{self.name}_{k}({values}) : ({types}) -> {self.results[k]}"


def take_body(module: Any, op: Any, region: int, name: str, where: str) -> Body:
    """The body of a region of `op`, as functions on tensors without dimensions until `make_scalar`."""
    _own_constants(op, op.regions[region], where)
    block = op.regions[region].blocks[0]
    last = block.operations[len(block.operations) - 1]
    arguments, results = [a.type for a in block.arguments], [v.type for v in last.operands]
    for k, result in enumerate(results):
        with op.location, ir.InsertionPoint(module.body):
            function = func.FuncOp(f"{name}_{k}", (arguments, [result]), visibility="private")
            start = function.add_entry_block()
        with op.location, ir.InsertionPoint(start):
            attributes: dict[str, ir.Attribute] = {"dimensions": ir.DenseI64ArrayAttr.get([])}
            made = ir.Operation.create("stablehlo.map", [result], list(start.arguments), attributes, regions=1)
            func.ReturnOp([made.result])
        with ir.InsertionPoint.at_block_begin(start):
            copy = op.operation.clone()
        copied = copy.regions[region].blocks[0]
        terminator = copied.operations[len(copied.operations) - 1]
        with op.location, ir.InsertionPoint(terminator):
            ir.Operation.create("stablehlo.return", operands=[terminator.operands[k]])
        terminator.operation.erase()
        copied.append_to(made.regions[0])
        copy.operation.erase()
    return Body(name, tuple(map(_scalar, block.arguments)), tuple(map(_scalar, last.operands)))


def _scalar(value: Any) -> str:
    return element(value)


def _own_constants(op: Any, region: Any, where: str) -> None:
    """Copies constants that the region reads from outside into it."""
    block = region.blocks[0]
    inner = [op for outer in block.operations for op in walk(outer)]
    known = {v for op in inner for v in op.results}
    known |= {a for op in inner for r in op.regions for b in r for a in b.arguments} | set(block.arguments)
    for reader in inner:
        for k, value in enumerate(reader.operands):
            if value in known:
                continue
            if isinstance(value.owner, ir.Block) or value.owner.name != "stablehlo.constant":
                raise WorkloadError(
                    f"the body of {op.name} reads values from outside it", where, "Pass them as further operands"
                )
            reader.operands[k] = value.owner.operation.clone(ip=ir.InsertionPoint.at_block_begin(block)).results[0]


def make_scalar(module: Any, bodies: list[Body]) -> None:
    """Turns each body, legalised by now, into functions on scalars."""
    names = {f"{body.name}_{k}": (body, k) for body in bodies for k in range(len(body.results))}
    for op in list(module.body.operations):
        found = names.get(ir.StringAttr(op.attributes["sym_name"]).value)
        if found is not None:
            _make_scalar(op, *found)


def _make_scalar(old: Any, body: Body, k: int) -> None:
    name = ir.StringAttr(old.attributes["sym_name"]).value
    types = [ir.Type.parse(t) for t in body.arguments]
    with old.location, ir.InsertionPoint(old):
        new = func.FuncOp(f"{name}_scalar", (types, [ir.Type.parse(body.results[k])]), visibility="private")
        start = new.add_entry_block()
    of: dict[Any, Any] = dict(zip(old.regions[0].blocks[0].arguments, start.arguments, strict=True))
    with old.location, ir.InsertionPoint(start):
        for op in old.regions[0].blocks[0].operations:
            _copy(op.operation, of)
    old.operation.erase()
    new.operation.attributes["sym_name"] = ir.StringAttr.get(name)


def _copy(op: Any, of: dict[Any, Any]) -> None:
    """Appends what `op` computes, on scalars; `of` is what stands for each value of the old function."""
    if op.name == "tensor.empty":
        return
    if op.name == "func.return":
        func.ReturnOp([of[op.operands[0]]])
    elif op.name == "linalg.generic":
        block = op.regions[0].blocks[0]
        of.update(zip(block.arguments, (of.get(v, v) for v in op.operands), strict=True))
        for inner in block.operations:
            if inner.name == "linalg.yield":
                of.update(zip(op.results, (of[v] for v in inner.operands), strict=True))
            else:
                _clone(inner.operation, of)
    elif op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
        value = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
        inner = tensor(op.results[0]).element_type
        of[op.results[0]] = ir.Operation.create("arith.constant", [inner], attributes={"value": value}).result
    elif op.name in ("tensor.extract", "tensor.from_elements"):
        of[op.results[0]] = of[op.operands[0]]
    else:
        _clone(op, of)


def _clone(op: Any, of: Mapping[Any, Any]) -> None:
    copy = op.operation.clone()
    for inner in walk(copy):
        for k, value in enumerate(inner.operands):
            if value in of:
                inner.operands[k] = of[value]
    assert isinstance(of, dict)
    of.update(zip(op.results, copy.results, strict=True))
