"""What the edits of the scalar level share: the names and types in a body, and which of them may be changed.

A reduction may run in any order, so whatever hangs on its accumulator may only be another combiner of the same kind.
"""

from __future__ import annotations

import random

from mlir_passes.space import GONE, Inner, Space, SpaceOp

COMBINERS = {  # commutative and associative but for rounding
    "f": ("arith.addf", "arith.mulf", "arith.maximumf", "arith.minimumf"),
    "i": ("arith.addi", "arith.muli", "arith.maxsi", "arith.minsi"),
}
_SAMPLE = 24
_FLOATS = ("arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.maximumf", "arith.minimumf")
_UNARY = ("arith.negf", "math.absf", "math.exp", "math.tanh", "math.log", "math.sqrt", "math.rsqrt", "math.sin",
          "math.erf")  # fmt: skip
_INTEGERS = ("arith.addi", "arith.subi", "arith.muli", "arith.maxsi", "arith.minsi")
_LOGIC = ("arith.andi", "arith.ori", "arith.xori")
_ORDERED = tuple(f"arith.cmpf {p}" for p in ("olt", "ole", "ogt", "oge", "oeq", "one"))
_SIGNED = tuple(f"arith.cmpi {p}" for p in ("slt", "sle", "sgt", "sge", "eq", "ne"))
FAMILIES = (_FLOATS, _UNARY, _INTEGERS, _LOGIC, _ORDERED, _SIGNED)  # ops of one signature; what a body's op may become
_COMMUTES = ("arith.addf", "arith.mulf", "arith.maximumf", "arith.minimumf", "arith.addi", "arith.muli", "arith.maxsi",
             "arith.minsi", *_LOGIC, "arith.cmpf oeq", "arith.cmpf one", "arith.cmpi eq", "arith.cmpi ne")  # fmt: skip


def with_bodies(space: Space) -> list[SpaceOp]:
    """Ops whose body may be edited."""
    return [op for op in space.ops if op.editable and editable(op)]


def editable(op: SpaceOp) -> bool:
    """Whether a body may be edited: one that the space knows and that looks nothing up in a tensor, for what keeps an
    index within its bounds must stay."""
    return op.name == "linalg.generic" and bool(op.body) and all(i.name != "tensor.extract" for i in op.body)


def some(space: Space, rng: random.Random) -> list[SpaceOp]:
    """A sample of the ops whose body may be edited: looking at all of them takes long in a large step."""
    found = with_bodies(space)
    return rng.sample(found, min(_SAMPLE, len(found)))


def inner(op: SpaceOp, index: int) -> Inner | None:
    """An op of a body, None where it is not there any more or gives nothing."""
    found = op.body[index] if 0 <= index < len(op.body) else None
    return found if found and found.type and found.name != GONE else None


def indices(op: SpaceOp) -> list[int]:
    """The ops of a body that are there and give something."""
    return [i for i in range(len(op.body)) if inner(op, i)]


def arguments(op: SpaceOp) -> list[str]:
    """Block arguments that may be read: inputs, and outputs that hold something to begin with."""
    inputs = len(op.operands) - len(op.results)
    names = [f"a{i}" for i in range(len(op.operands))]
    return [*names[:inputs], *(n for n in names[inputs:] if _read(op, n))]


def type_of(space: Space, op: SpaceOp, name: str) -> str:
    """Element type of a value in a body; of one captured from the step as far as its readers show it, else ""."""
    if name[:1] == "b" and name[1:].isdigit():
        return op.body[int(name[1:])].type if int(name[1:]) < len(op.body) else ""
    if name[:1] == "a" and name[1:].isdigit():
        index = int(name[1:])
        inputs = len(op.operands) - len(op.results)
        value = op.operands[index] if index < inputs else op.results[index - inputs]
        return space.types[value].element if value in space.types else ""
    readers = [i for i in op.body if name in i.operands and any(i.name in f for f in FAMILIES[:4])]
    return readers[0].type if readers else ""


def bound(op: SpaceOp) -> set[str]:
    """Values in the body of a reduction that hang on an accumulator, and the accumulators; none in another body."""
    if "r" not in op.loops:
        return set()
    inputs = len(op.operands) - len(op.results)
    names = {f"a{i}" for i in range(inputs, len(op.operands))}
    for index, found in enumerate(op.body):
        if names & set(found.operands):
            names.add(f"b{index}")
    return names


def becomes(op: SpaceOp, index: int) -> list[str]:
    """What an op of a body may be replaced by: another op of its signature, another combiner for a combiner."""
    found = inner(op, index)
    if found is None or not editable(op):
        return []
    if f"b{index}" in bound(op):
        family = next((c for c in COMBINERS.values() if found.name in c), ())
    else:
        family = next((f for f in FAMILIES if found.name in f), ())
    return [name for name in family if name != found.name]


def commutes(found: Inner) -> bool:
    """Whether swapping the last two operands of an op would change nothing, or is not possible."""
    return len(found.operands) < 2 or found.name in _COMMUTES or found.operands[-1] == found.operands[-2]


def _read(op: SpaceOp, name: str) -> bool:
    return any(name in i.operands for i in op.body)
