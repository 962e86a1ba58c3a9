"""Let a reduction loop run over a part of its range: every s-th index, or a range."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlir_passes.edits import plausible
from mlir_passes.edits.base import Edit, Name, is_float, unless_same
from mlir_passes.edits.loops import Part, Run, part_of, read_map, spelled
from mlir_passes.space import GONE, Space, SpaceOp, TensorType, part

if TYPE_CHECKING:
    from mlir_passes.repair import Editor

_SUMS = ("linalg.matmul", "linalg.batch_matmul", "linalg.conv_", "linalg.depthwise_conv_", "linalg.pooling_nhwc_sum")


@dataclass(frozen=True)
class Shrink(Edit):
    """Run reduction loop `loop` of the op at `site` for `count` indices from `offset` on, `stride` apart.

    The operands are cut to what is still read. A window loop of a convolution may not have gaps (stride 1). With
    `rescaled` the result is multiplied by old/new count, so that sums keep their size.
    """

    kind: ClassVar[str] = "shrink"
    site: str
    loop: int
    offset: int
    count: int
    stride: int
    rescaled: bool

    @staticmethod
    def draw(space: Space, rng: random.Random) -> Shrink | None:
        found = [(op, loop) for op in space.ops for loop in _loops(op)]
        if not found:
            return None
        weights = [float(op.volume) for op, _ in found] if plausible.semantic("shrink", rng) else [1.0] * len(found)
        op, loop = plausible.by_weight(found, weights, rng) or found[0]
        return _drawn(space, op, loop, rng)

    def perturb(self, space: Space, rng: random.Random) -> Shrink | None:
        """The same loop, over another part."""
        if not self.applies(space):
            return None
        return unless_same(self, _drawn(space, space.by_site[self.site], self.loop, rng))

    def words(self, name: Name) -> str:
        if self.stride > 1:
            which = (
                f"{self.count} indices of its reduction loop {self.loop}, every {self.stride}. from {self.offset} on"
            )
        else:
            which = f"{self.count} indices of its reduction loop {self.loop}, from {self.offset} on"
        rescaled = ", and its result is scaled by the old over the new count" if self.rescaled else ""
        return f"{name(self.site)} runs over {which}{rescaled}"

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.site,)

    @property
    def run(self) -> Run:
        return Run(self.loop, self.offset, self.count, self.stride)

    def applies(self, space: Space) -> bool:
        op = space.by_site.get(self.site)
        if op is None or self.loop not in _loops(op) or (self.rescaled and not is_float(space, op.results[0])):
            return False
        last = self.offset + (self.count - 1) * self.stride
        if not (self.offset >= 0 and self.stride >= 1 and 1 <= self.count < op.sizes[self.loop]):
            return False
        return last < op.sizes[self.loop] and _parts(space, op, self.run) is not None

    def extend(self, space: Space) -> Space:
        op = space.by_site[self.site]
        operands, maps, types = list(op.operands), list(op.maps), dict[str, TensorType]()
        for index, cut in (_parts(space, op, self.run) or {}).items():
            maps[index] = spelled(cut.map)
            made = TensorType(cut.sizes, space.types[operands[index]].element)
            if made != space.types[operands[index]]:
                operands[index] = part(operands[index], made)
                types[operands[index]] = made
        sizes = tuple(self.count if loop == self.loop else size for loop, size in enumerate(op.sizes))
        return space.change(replace(op, operands=tuple(operands), maps=tuple(maps), sizes=sizes), types)

    def apply(self, editor: Editor) -> None:
        old = editor.shrink(self.site, self.run)
        if self.rescaled:
            editor.scale(f"{self.site}#0", old / self.count)


def _loops(op: SpaceOp) -> list[int]:
    """Reduction loops of an op that may be shrunk: of one result, and no body that asks for an index."""
    if op.name == GONE or not op.editable or len(op.results) != 1 or not op.maps:
        return []
    if any(inner.name == "linalg.index" for inner in op.body) or any("?" in m for m in op.maps):
        return []
    return [i for i, kind in enumerate(op.loops) if kind == "r" and op.sizes[i] > 1]


def _parts(space: Space, op: SpaceOp, run: Run) -> dict[int, Part] | None:
    """What each operand with a known type keeps; None where one of them would have to leave gaps, or where a named op
    would need another map."""
    parts: dict[int, Part] = {}
    for index, text in enumerate(op.maps):
        map_ = read_map(text)
        if map_ is None:
            return None
        if op.operands[index] not in space.types:  # storage, or the window of a pooling: only its shape is read
            continue
        cut = part_of(map_, space.types[op.operands[index]].shape, op.sizes, run)
        if cut is None or (op.name != "linalg.generic" and cut.map != map_):
            return None
        parts[index] = cut
    return parts


def _drawn(space: Space, op: SpaceOp, loop: int, rng: random.Random) -> Shrink | None:
    size = op.sizes[loop]
    strides = {s: w for s, w in plausible.STRIDE.items() if s < size or (s == 2 and size == 2)}
    gaps = _parts(space, op, Run(loop, 0, (size + 1) // 2, 2)) is not None
    rescaled = _sums(space, op) and rng.random() < plausible.SHRINK_RESCALED
    if gaps and strides and rng.random() < plausible.SUBSET_STRIDED:
        stride = plausible.pick(strides, rng)
        offset = rng.randrange(stride)
        edit = Shrink(op.site, loop, offset, (size - offset + stride - 1) // stride, stride, rescaled)
    else:
        count = rng.choice([(size + 1) // 2, size - 1, rng.randint(1, size - 1)])
        edit = Shrink(op.site, loop, rng.randint(0, size - count), count, 1, rescaled)
    return edit if edit.applies(space) else None


def _sums(space: Space, op: SpaceOp) -> bool:
    if not is_float(space, op.results[0]):
        return False
    inputs = len(op.operands) - len(op.results)
    return op.name.startswith(_SUMS) or any(i.name == "arith.addf" and f"a{inputs}" in i.operands for i in op.body)
