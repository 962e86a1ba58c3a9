"""The body of a linalg.generic while its edits are applied: values by name, and changes to them.

Nothing is removed, so that which operands a body reads stays as it is; what became dead goes with the clean-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlir import ir

from mlir_passes.elementwise import product
from mlir_passes.errors import EditDoesNotApply
from mlir_passes.ir_tools import operations, producer
from mlir_passes.sites import PREDICATES


@dataclass
class Body:
    """ops: as they were numbered, "b0", "b1", ...; values: what a name means now."""

    ops: list[Any]
    values: dict[str, Any]
    block: Any

    def value(self, name: str) -> Any:
        """The value that `name` means; raises EditDoesNotApply where there is none."""
        if name not in self.values:
            raise EditDoesNotApply("edit", f"no value {name} in this body")
        return self.values[name]

    def op(self, index: int) -> Any:
        """The op that was numbered `index`; raises EditDoesNotApply where there is none."""
        if not 0 <= index < len(self.ops):
            raise EditDoesNotApply("edit", f"no op {index} in this body")
        return self.ops[index]

    def replace(self, name: str, new: Any) -> None:
        """Let all that reads `name` read `new`, and the name mean it."""
        old = self.value(name)
        if old.type != new.type:
            raise EditDoesNotApply("edit", f"{name} is of type {old.type}, not {new.type}")
        old.replace_all_uses_with(new)
        self.values.update({n: new for n, v in self.values.items() if v == old})

    def exchange_operands(self, index: int, one: int, two: int) -> None:
        """Swap two operands of an op."""
        op = self.op(index)
        first, second = op.operands[one], op.operands[two]
        op.operands[one], op.operands[two] = second, first

    def exchange(self, one: str, two: str) -> None:
        """Let what reads `one` behind the op that makes `two` read `two`, and the other way round."""
        first, second = self.value(one), self.value(two)
        last = second.owner.operation
        behind = [(use, first) for use in list(second.uses)] + [(use, second) for use in list(first.uses)]
        for use, new in behind:
            if last.is_before_in_block(use.owner.operation):
                use.owner.operation.operands[use.operand_number] = new

    def become(self, index: int, name: str) -> None:
        """Let another op of the same signature compute what an op did; `name` has the predicate of a comparison."""
        old = self.op(index)
        kind, _, predicate = name.partition(" ")
        attributes: dict[str, Any] = {}
        if predicate:
            number = PREDICATES[kind].index(predicate)
            attributes["predicate"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64, old.context), number)
        with ir.InsertionPoint(old), ir.Location.unknown(old.context):
            new = ir.Operation.create(kind, [old.results[0].type], list(old.operands), attributes)
        old.results[0].replace_all_uses_with(new.result)
        self.values.update({n: new.result for n, v in self.values.items() if v == old.results[0]})
        self.ops[index] = new

    def scale(self, name: str, factor: float) -> None:
        """Multiply a value by a constant for all of the body that reads it; one of the step too."""
        old = self.value(name)
        made = producer(old)
        if made is None or made.block != self.block:
            point = ir.InsertionPoint.at_block_begin(self.block)
        else:
            point = ir.InsertionPoint.after(made)
        with point, ir.Location.unknown(self.block.owner.context):
            new = product(old, factor)
        for use in list(old.uses):
            reader = use.owner.operation
            if reader.block == self.block and reader != new.owner.operation:
                reader.operands[use.operand_number] = new
        self.values[name] = new

    def of_clone(self, source: Any, clone: Any) -> Body:
        """The body of a clone of this one's op, with the same names."""
        block = clone.regions[0].blocks[0]
        ops = dict(zip(operations(source.regions[0].blocks[0]), operations(block), strict=True))
        values = dict(self.values)
        for name, value in values.items():
            if isinstance(value.owner, ir.Block):
                values[name] = block.arguments[value.arg_number] if value.owner == self.block else value
            elif value.owner.operation in ops:
                values[name] = ops[value.owner.operation].results[0]
        return Body([ops[op] for op in self.ops], values, block)


def read_body(op: Any) -> Body:
    """The body of a generic that no edit has touched."""
    block = op.regions[0].blocks[0]
    ops = operations(block)
    values: dict[str, Any] = {f"a{i}": argument for i, argument in enumerate(block.arguments)}
    values.update({f"b{i}": inner.results[0] for i, inner in enumerate(ops) if len(inner.results)})
    return Body(ops, values, block)
