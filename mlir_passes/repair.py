"""An editor over a numbered step: looks sites up, repairs operands so that any value fits any place.

What it inserts has no site. Some of it stands in for an op's result (a factor, a rounding): all that read the result
then read that, the name of the result means it, and it goes where its op goes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from mlir import ir
from mlir.dialects import linalg

from mlir_passes.affine import linear
from mlir_passes.edits.base import Use
from mlir_passes.edits.loops import Linear, Run, part_of
from mlir_passes.elementwise import rounded, scaled, sliced
from mlir_passes.errors import EditDoesNotApply
from mlir_passes.inner import Body, read_body
from mlir_passes.ir_tools import SITE, is_block_argument, locate, operations, producer, set_site, site_of, tensor_type
from mlir_passes.resize import resize
from mlir_passes.sites import rewirable, value_table
from mlir_passes.storage import check_storage


class Editor:
    """The IR of one variant while its edits are applied; the name of a deleted op's value means its replacement."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self._ops = {site_of(op): op for op in operations(block)[:-1]}
        self._values = value_table(block)
        self._stand_ins: dict[str, list[Any]] = {}  # by site, in order
        self._bodies: dict[str, Body] = {}

    def op(self, site: str) -> Any:
        """The op at `site`; raises EditDoesNotApply where an earlier edit removed it."""
        if site not in self._ops:
            raise EditDoesNotApply("edit", f"no op at {site}")
        return self._ops[site]

    def value(self, name: str) -> Any:
        """The value that `name` means; raises EditDoesNotApply where there is none."""
        if name not in self._values:
            raise EditDoesNotApply("edit", f"no value {name}")
        return self._values[name]

    def body(self, site: str, *names: str) -> Body:
        """The body of the linalg.generic at `site`, where `names` may be values of the step; raises EditDoesNotApply
        for another op."""
        op = self.op(site)
        if op.name != "linalg.generic":
            raise EditDoesNotApply("edit", f"{site} is a {op.name}, which has no body to edit")
        if site not in self._bodies:
            self._bodies[site] = read_body(op)
        body = self._bodies[site]
        body.values.update(
            {name: self._values[name] for name in names if name in self._values and name not in body.values}
        )
        return body

    def clone(self, site: str, new_site: str, before: str, uses: Sequence[Use]) -> Any:
        """A copy of the op at `site` placed just before the op at `before`, numbered `new_site`, that reads `uses`."""
        source, place = self.op(site), self.op(before)
        slots = rewirable(source)
        if len(slots) != len(uses):
            raise EditDoesNotApply("edit", f"{site} reads {len(slots)} tensors, and {len(uses)} are given")
        new = source.clone(ip=ir.InsertionPoint(place)).operation
        self._bring_storage(new)
        set_site(new, new_site)
        locate(new, new_site)
        self._ops[new_site] = new
        if site in self._bodies:
            self._bodies[new_site] = self._bodies[site].of_clone(source, new)
        for index, result in enumerate(new.results):
            self._values[f"{new_site}#{index}"] = result
        for slot, use in zip(slots, uses, strict=True):
            new.operands[slot] = self.fitted(use, new.operands[slot].type, before=new)
        return new

    def rewire(self, site: str, slot: int, use: Use) -> None:
        """Let operand `slot` of an op be `use`."""
        op = self.op(site)
        op.operands[slot] = self.fitted(use, op.operands[slot].type, before=op)

    def replace_value(self, name: str, new: Any) -> None:
        """Give every use of `name` the value `new`; names that meant the old value mean `new` from here on."""
        old = self._values[name]
        old.replace_all_uses_with(new)
        self._rename(old, new)

    def remove(self, site: str, instead: Sequence[Use]) -> None:
        """Remove the op at `site`; `instead` has a use for each result, what is left over must have no uses."""
        op = self.op(site)
        for index, use in enumerate(instead):
            name = f"{site}#{index}"
            self.replace_value(name, self.fitted(use, self.value(name).type, before=op))
        for gone in [*reversed(self._stand_ins.pop(site, [])), op]:
            if any(True for result in gone.results for _ in result.uses):
                raise EditDoesNotApply("edit", f"{site} is still used")
            gone.erase()
        del self._ops[site]
        self._bodies.pop(site, None)

    def bypass(self, name: str, use: Use) -> None:
        """Give every use of `name` another value; the name keeps its meaning."""
        op, old = self.op(name.partition("#")[0]), self.value(name)
        old.replace_all_uses_with(self.fitted(use, old.type, before=op))

    def scale(self, name: str, factor: float) -> None:
        """Multiply a value by a constant for everything that reads it."""
        old = self._checked(name)
        with self._after(old):
            self._stand_in(name, old, [scaled(old, factor)])

    def scale_operand(self, site: str, slot: int, factor: float) -> None:
        """Multiply what an op reads as operand `slot` by a constant."""
        op = self.op(site)
        with ir.InsertionPoint(op), _location(op.operands[slot]):
            op.operands[slot] = scaled(op.operands[slot], factor)

    def round(self, name: str, element: str) -> None:
        """Round a value to a narrower type for everything that reads it; raises PassError where this CPU cannot."""
        check_storage(element)
        old = self._checked(name)
        with self._after(old):
            self._stand_in(name, old, list(rounded(old, element)))

    def shrink(self, site: str, run: Run) -> int:
        """Let a loop of a linalg op run over a part of its range; how many iterations it had."""
        op = self.op(site)
        maps = [ir.AffineMapAttr(m).value for m in linalg.get_indexing_maps(op) or []]  # pyright: ignore[reportAttributeAccessIssue]
        shapes = [list(ir.RankedTensorType(v.type).shape) for v in op.operands] if maps else []
        forms = [[linear(e.maybe_downcast()) for e in m.results] for m in maps]
        known: list[list[Linear]] = [[f for f in form if f is not None] for form in forms]
        if not forms or known != forms or run.loop >= maps[0].n_dims:
            raise EditDoesNotApply("edit", f"{site} has no loop {run.loop} that could be shrunk")
        sizes = _trips(known, shapes, maps[0].n_dims)
        parts = [part_of(form, shape, sizes, run) for form, shape in zip(known, shapes, strict=True)]
        if run.offset + (run.count - 1) * run.stride >= sizes[run.loop] or any(p is None for p in parts):
            raise EditDoesNotApply("edit", f"loop {run.loop} of {site} cannot run over {run}")
        for index, part in enumerate(p for p in parts if p is not None):
            with ir.InsertionPoint(op), _location(op.operands[index]):
                op.operands[index] = sliced(op.operands[index], part)
                maps[index] = _map(part.map, maps[index]) if list(part.map) != known[index] else maps[index]
        if op.name == "linalg.generic":
            op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps], op.context)
        return sizes[run.loop]

    def move(self, site: str, before: str, operands: Sequence[tuple[int, Use]], instead: Use | None) -> None:
        """Put the op at `site` just before the op at `before`, with new values for some operands; what reads its
        result before that place gets `instead`."""
        op, place = self.op(site), self.op(before)
        if instead is not None and op.is_before_in_block(place):
            result = self.value(f"{site}#0")
            new = self.fitted(instead, result.type, before=op)
            mine = self._stand_ins.get(site, [])
            for owner, index in _uses(result):
                if owner not in mine and self._outer(owner).is_before_in_block(place):
                    owner.operands[index] = new
        for slot, use in operands:
            op.operands[slot] = self.fitted(use, op.operands[slot].type, before=place)
        for each in [op, *self._stand_ins.get(site, [])]:
            each.move_before(place)
        self._bring_storage(op)

    def exchange(self, one: str, two: str) -> None:
        """Let what reads `one` behind the op that makes `two` read `two`, and the other way round."""
        first, second = self.value(one), self.value(two)
        if first.type != second.type or is_block_argument(second):
            raise EditDoesNotApply("edit", f"{one} and {two} cannot be exchanged")
        last = second.owner.operation
        behind = [(o, i, first) for o, i in _uses(second)] + [(o, i, second) for o, i in _uses(first)]
        for owner, index, new in behind:
            if last.is_before_in_block(self._outer(owner)):
                owner.operands[index] = new

    def fitted(self, use: Use, wanted: Any, before: Any) -> Any:
        """The value of `use` made a `wanted` (an MLIR tensor type), with repair ops placed before `before`."""
        value = self.value(use.value)
        made = producer(value)
        if made is not None and (made == before or not made.is_before_in_block(before)):
            raise EditDoesNotApply("edit", f"{use.value} does not dominate the place of its new use")
        have, want = tensor_type(value.type), tensor_type(wanted)
        if have is None or want is None or have.element != want.element:
            raise EditDoesNotApply("edit", f"{use.value} of type {value.type} cannot become {wanted}")
        if have == want:
            return value
        with ir.InsertionPoint(before), _location(value):
            return resize(value, have, want, use)

    def _checked(self, name: str) -> Any:
        """The value of an argument or of an op that is there."""
        if not name.startswith("arg"):
            self.op(name.partition("#")[0])
        return self.value(name)

    @contextmanager
    def _after(self, value: Any) -> Generator[None]:
        """Where ops that read `value` come before all others that may."""
        made = producer(value)
        point = ir.InsertionPoint.at_block_begin(self._block) if made is None else ir.InsertionPoint.after(made)
        with point, _location(value):
            yield

    def _stand_in(self, name: str, old: Any, made: Sequence[Any]) -> None:
        """Let the last of `made`, a chain that begins with a reader of `old`, be read and meant instead of `old`."""
        new, reader = made[-1], made[0].owner.operation
        old.replace_all_uses_with(new)
        reader.operands[0] = old
        self._stand_ins.setdefault(name.partition("#")[0], []).extend(_with_storage(made))
        self._rename(old, new)

    def _rename(self, old: Any, new: Any) -> None:
        self._values.update({name: new for name, value in self._values.items() if value == old})

    def _bring_storage(self, op: Any) -> None:
        """Give an op storage of its own, so that it may stand anywhere."""
        for index, operand in enumerate(op.operands):
            storage = producer(operand)
            if storage is not None and storage.name == "tensor.empty":
                own = storage.clone(ip=ir.InsertionPoint(op)).operation
                if SITE in own.attributes:
                    del own.attributes[SITE]
                op.operands[index] = own.results[0]

    def _outer(self, op: Any) -> Any:
        """The op of the block that `op` is, or is within."""
        while op.block != self._block:
            op = op.parent.operation
        return op


def _location(value: Any) -> Any:
    """Of what reads `value` and an edit inserts: that of the op that makes the value, or the argument's name."""
    made = producer(value)
    return ir.Location.name(f"arg{value.arg_number}", context=value.type.context) if made is None else made.location


def _uses(value: Any) -> list[tuple[Any, int]]:
    return [(use.owner.operation, use.operand_number) for use in value.uses]


def _with_storage(made: Sequence[Any]) -> list[Any]:
    """The ops that make values, each behind the storage that it writes to."""
    ops = [value.owner.operation for value in made]
    return [each for op in ops for each in (op.operands[1].owner.operation, op)]


def _trips(forms: Sequence[Sequence[Linear]], shapes: Sequence[Sequence[int]], count: int) -> list[int]:
    """Iterations of each of `count` loops, from the dimensions that a loop indexes alone."""
    sizes = [1] * count
    for form, shape in zip(forms, shapes, strict=True):
        for (loops, constant), size in zip(form, shape, strict=True):
            if constant == 0 and list(loops.values()) == [1]:
                sizes[next(iter(loops))] = size
    return sizes


def _map(forms: Sequence[Linear], like: Any) -> Any:
    """The affine map of linear forms."""
    made: list[Any] = []
    for loops, constant in forms:
        sum_: Any = ir.AffineConstantExpr.get(constant, like.context)
        for loop, coefficient in loops.items():
            dim = ir.AffineDimExpr.get(loop, like.context)
            sum_ = ir.AffineExpr.get_add(sum_, ir.AffineExpr.get_mul(dim, coefficient))
        made.append(sum_)
    return ir.AffineMap.get(like.n_dims, 0, made, like.context)
