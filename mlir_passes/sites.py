"""Numbering of a base module, and its description as plain data (`space.json`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from mlir import ir
from mlir.dialects import linalg

from mlir_passes.affine import linear
from mlir_passes.edits.loops import spelled
from mlir_passes.ir_tools import captured, operations, producer, set_site, site_of, tensor_type
from mlir_passes.space import Activation, Inner, Parameter, Space, SpaceOp, TensorType

_FREE = ("arith.constant", "linalg.fill")  # kernels make these for themselves, see `partition.is_helper`
_WRITES_ONLY = ("linalg.fill", "linalg.broadcast", "linalg.transpose", "linalg.copy", "linalg.map")
_FILE_LINE = re.compile(r'"([^"]*)":(\d+)')
PREDICATES = {
    "arith.cmpf": ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
                   "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"),
    "arith.cmpi": ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"),
}  # fmt: skip


def number(block: Any) -> None:
    """Give every op of the step but the terminator its site, op0, op1, ... in order."""
    for index, op in enumerate(operations(block)[:-1]):
        set_site(op, f"op{index}")


def rewirable(op: Any) -> list[int]:
    """Operand indices that hold a tensor which the op reads; storage that is only written to is left out."""
    read = list(range(len(op.operands)))
    if op.name.startswith("linalg."):
        inputs = len(op.operands) - len(op.results)
        read = read[:inputs]
        if op.name == "linalg.generic":
            arguments = op.regions[0].blocks[0].arguments
            read += [i for i in range(inputs, len(op.operands)) if any(True for _ in arguments[i].uses)]
        elif op.name not in _WRITES_ONLY:
            read += range(inputs, len(op.operands))
    return [i for i in read if tensor_type(op.operands[i].type) and not _is_storage(op.operands[i])]


def describe(block: Any, n_state: int, state_names: Sequence[str], storage: Sequence[str] = ("f32",)) -> Space:
    """The space of a numbered block: what may be edited, activations, and each parameter's update chain.

    storage: the element types that the workload's numerics rule permits.
    An activation is a value made up to the op that gives the first metric and used after it.
    """
    ops = operations(block)
    names = {argument: f"arg{i}" for i, argument in enumerate(block.arguments)}
    types: dict[str, TensorType] = {}
    for argument, name in names.items():
        _add_type(types, name, argument)
    described: list[SpaceOp] = []
    for op in ops[:-1]:
        site = site_of(op)
        results = tuple(f"{site}#{i}" for i in range(len(op.results)))
        for name, result in zip(results, op.results, strict=True):
            names[result] = name
            if op.name != "tensor.empty":
                _add_type(types, name, result)
        editable = bool(results) and all(r in types for r in results)
        body = _body(op, names)
        described.append(
            SpaceOp(
                site=site,
                name=op.name,
                operands=tuple(names.get(v, "") for v in op.operands),
                slots=tuple(rewirable(op)),
                results=results,
                editable=editable,
                where=_where(op),
                **_loops(op),
                body=body,
                within=() if body else tuple(names[v] for v in captured(op) if v in names),
            )
        )
    returns = tuple(names[v] for v in ops[-1].operands)
    return Space(
        ops=tuple(described),
        types=types,
        args=tuple(f"arg{i}" for i in range(len(block.arguments))),
        returns=returns,
        activations=_activations(ops, names, types, n_state),
        parameters=_parameters(ops, names, types, n_state, state_names),
        storage=tuple(storage),
    )


def inner_name(op: Any) -> str:
    """The name of an op in a body, with the predicate of a comparison."""
    if op.name not in PREDICATES:
        return op.name
    return f"{op.name} {PREDICATES[op.name][ir.IntegerAttr(op.attributes['predicate']).value]}"


def _where(op: Any) -> str:
    """The innermost file and line of the op's location that is one of the user's; a module's own text is none."""
    named = [(file, line) for file, line in _FILE_LINE.findall(str(op.location)) if file not in ("", "-")]
    return f"{PurePath(named[0][0]).name}:{named[0][1]}" if named else ""


def _loops(op: Any) -> dict[str, Any]:
    """Loops, sizes and maps of a linalg op as fields of SpaceOp; none for what has no such form."""
    if not op.name.startswith("linalg.") or op.name == "linalg.fill":
        return {}
    maps: list[Any] = list(linalg.get_indexing_maps(op) or [])  # pyright: ignore[reportAttributeAccessIssue]
    forms = [[linear(e.maybe_downcast()) for e in ir.AffineMapAttr(m).value.results] for m in maps]
    if not forms or len(forms) != len(op.operands):
        return {}
    kinds = ["r"] * ir.AffineMapAttr(maps[0]).value.n_dims
    sizes = [1] * len(kinds)
    for index, found in enumerate(forms):
        type_ = tensor_type(op.operands[index].type)
        for dim, form in enumerate(found):
            for loop in form[0] if form else ():
                kinds[loop] = "p" if index >= len(op.operands) - len(op.results) else kinds[loop]
                if type_ and form == ({loop: 1}, 0):
                    sizes[loop] = type_.shape[dim]
    told: dict[str, Any] = {"loops": "".join(kinds), "sizes": tuple(sizes)}
    return {**told, "maps": tuple(map(spelled, forms))} if "r" in kinds else told


def _body(op: Any, names: Mapping[Any, str]) -> tuple[Inner, ...]:
    """The ops of a generic's body; none where one of them holds regions or has several results."""
    if op.name != "linalg.generic":
        return ()
    block = op.regions[0].blocks[0]
    inner = operations(block)
    if any(len(i.results) > 1 or len(i.regions) for i in inner):
        return ()
    known: dict[Any, str] = {**{a: f"a{i}" for i, a in enumerate(block.arguments)}}
    known.update({i.results[0]: f"b{n}" for n, i in enumerate(inner) if len(i.results)})
    return tuple(
        Inner(
            inner_name(i),
            tuple(known.get(v) or names.get(v, "") for v in i.operands),
            str(i.results[0].type) if len(i.results) else "",
        )
        for i in inner
    )


def _is_storage(value: Any) -> bool:
    op = producer(value)
    return op is not None and op.name == "tensor.empty"


def _add_type(types: dict[str, TensorType], name: str, value: Any) -> None:
    found = tensor_type(value.type)
    if found:
        types[name] = found


def _users(ops: Sequence[Any]) -> dict[Any, list[int]]:
    """For every value, the positions of the ops that use it, also from inside a region."""
    position = {op: i for i, op in enumerate(ops)}
    users: dict[Any, list[int]] = {}
    for op in ops:
        for result in op.results:
            places: list[int] = []
            for use in result.uses:
                owner = use.owner.operation
                while owner not in position:
                    owner = owner.parent.operation
                places.append(position[owner])
            users[result] = sorted(places)
    return users


def _activations(
    ops: Sequence[Any], names: dict[Any, str], types: dict[str, TensorType], n_state: int
) -> tuple[Activation, ...]:
    metrics = list(ops[-1].operands)[n_state:]
    loss = producer(metrics[0]) if metrics else None
    if loss is None:
        return ()
    split = list(ops).index(loss)
    users = _users(ops)
    found: list[Activation] = []
    for op in ops[: split + 1]:
        for result in op.results:
            late = [u for u in users[result] if split < u < len(ops) - 1]
            if late and names[result] in types and op.name not in _FREE:
                name = names[result]
                found.append(Activation(name, types[name].bytes, site_of(ops[late[0]]), site_of(ops[late[-1]])))
    return tuple(found)


def _parameters(
    ops: Sequence[Any], names: dict[Any, str], types: dict[str, TensorType], n_state: int, state_names: Sequence[str]
) -> tuple[Parameter, ...]:
    users = _users(ops)
    last = len(ops) - 1
    found: list[Parameter] = []
    for index, value in enumerate(list(ops[-1].operands)[:n_state]):
        chain: set[int] = set()
        source = producer(value)
        if source is not None and users[value] == [last]:
            chain.add(list(ops).index(source))
        for position in range(last - 1, -1, -1):
            op = ops[position]
            uses = [u for r in op.results for u in users[r]]
            if uses and all(u in chain for u in uses):
                chain.add(position)
        update = tuple(site_of(ops[p]) for p in sorted(chain))
        argument = f"arg{index}"
        found.append(Parameter(argument, state_names[index], types[argument].bytes, index, update))
    return tuple(found)


def value_table(block: Any) -> dict[str, Any]:
    """Values of a numbered block by name."""
    table = {f"arg{i}": argument for i, argument in enumerate(block.arguments)}
    for op in operations(block)[:-1]:
        for index, result in enumerate(op.results):
            table[f"{site_of(op)}#{index}"] = result
    return table
