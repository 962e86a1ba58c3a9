"""Where a value goes: the results of `@main` that depend on an op, through regions and calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir

from workloads.frontends.ops import walk


def reached_results(op: Any, module: Any) -> frozenset[int]:
    """The numbers of the results of `@main` that may depend on what `op` computes."""
    functions = {_name(f): f for f in walk(module, "func.func")}
    calls = walk(module, "func.call")
    reached: set[int] = set()
    seen: set[Any] = set()
    waiting = list(op.results)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        for use in value.uses:
            owner = use.owner.operation
            if owner.name == "func.return" and _name(owner.parent) == "main":
                reached.add(use.operand_number)
            else:
                waiting.extend(_next(owner, use.operand_number, functions, calls))
    return frozenset(reached)


def _next(owner: Any, number: int, functions: dict[str, Any], calls: list[Any]) -> Iterator[Any]:
    """Values that may depend on the operand `number` of `owner`."""
    if owner.name == "func.call":
        yield functions[_callee(owner)].regions[0].blocks[0].arguments[number]
    elif owner.name == "func.return":
        for call in calls:
            if _callee(call) == _name(owner.parent):
                yield call.results[number]
    else:
        ends_region = not len(owner.results) and owner.parent.name != "func.func"
        around = owner.parent.operation if ends_region else owner
        yield from around.results
        for block in (block for region in around.regions for block in region):
            yield from block.arguments


def _callee(call: Any) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _name(function: Any) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value
