"""Contractions: a register tile of accumulators, rows by vectors, that reads each operand once a step.

Matrix products in all transposition cases, batched ones, convolutions and their gradients by weights and by input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mlir_passes.kernels.machine import Machine, contiguous, in_tiles, trips, vector_loop
from mlir_passes.kernels.nest import Access, Load, Nest, Phase
from mlir_passes.kernels.schedule import Schedule

# Heights of a tile by its vectors, best first, for 16 and for 32 registers. Two FMA units of 4 cycles want 8
# accumulators, and a few more give slack; 12 leave room for the operands (measured on Zen 3).
_ROWS_16 = {1: (8, 7, 6), 2: (6, 5, 4), 3: (4, 3), 4: (3, 2)}
_ROWS_32 = {1: (16, 14, 12), 2: (12, 10, 8), 3: (8, 6), 4: (6, 5, 4)}
_SLACK = 1.1  # a tile with just 8 accumulators is this much slower than its work
_REST = 1.3  # what a tile of what is left over costs, as it is code of its own
_FULL = 0.8  # share of lanes in use below which vectors along the sum serve a transposed operand better
_SHORT = 5  # trips of a reduction loop that are worth unrolling
_REUSE = 8  # tiles of rows that make packing the vectors' operand worth it
_FAR = 512  # elements between vectors of one panel that make caches and prefetchers fail
_MOST_PANEL = 1 << 15  # elements of a packed panel
_NEAR = 1 << 13  # elements of the vectors' operand that stay in the nearest cache anyway
_MANY_TILES = 8  # that many along the vector loop make it the outermost one
_LONG = 8  # vectors of a reduction that make it worth putting lanes together at the end
_DOTS_16 = ((3, 4), (4, 3), (2, 4), (4, 2), (3, 3), (2, 3), (3, 2), (2, 2), (1, 8), (8, 1))
_DOTS_32 = ((4, 4), (4, 6), (6, 4), (3, 6), (2, 4), (4, 2))


def reuse_loops(nest: Nest, phase: Phase) -> tuple[int, ...]:
    """Parallel loops that an operand of the sum does not depend on, while another one does.

    Only where both sides have one: else rows side by side share nothing.
    """
    operands = [load for load in _summed(nest, phase)]
    reduced = set(nest.reduced(phase))
    moving = [nest.access_loops(load.access) for load in operands]
    moving = [loops for loops in moving if loops & reduced]
    found: list[int] = []
    for loop in nest.parallel(phase):
        reads = [loop in loops for loops in moving]
        if any(reads) and not all(reads) and nest.sizes[loop] > 1:
            found.append(loop)
    shared = any(all(loop not in loops for loop in found) for loops in moving)
    return tuple(found) if len(found) > 1 and not shared else ()


def _summed(nest: Nest, phase: Phase) -> list[Load]:
    bodies = [nest.reductions[r].body for r in phase.reductions]
    return [n for i in nest.reach(bodies) if isinstance(n := nest.nodes[i], Load)]


def schedules(nest: Nest, phase: Phase, machine: Machine) -> list[Schedule]:
    """Register tiles with the vectors along the result; where an operand is transposed, along the reduction too."""
    lanes, loop = machine.lanes(nest, phase), vector_loop(nest, phase)
    along = _along_result(nest, phase, machine, loop, lanes)
    along = _with_panels(nest, phase, along, loop)
    dots = _along_sum(nest, phase, machine, lanes)
    if loop >= 0 and (_reads_well(nest, phase, loop) or (along[0].pack and _filled(nest.sizes[loop], lanes) > _FULL)):
        return [*along, *dots]
    return [*dots, *_in_blocks(nest, phase, along, loop, lanes), *along]


def _filled(size: int, lanes: int) -> float:
    """Share of lanes that a loop of this size fills, 1 where its remainder is a power of two: shorter vectors then."""
    rest = size % lanes
    return 1.0 if rest.bit_count() <= 1 or rest <= lanes // 2 else size / (size + lanes - rest)


def _in_blocks(nest: Nest, phase: Phase, along: Sequence[Schedule], loop: int, lanes: int) -> list[Schedule]:
    """Tiles that take a whole vector of the reduction at once, so that a transposed operand is read in blocks."""
    found: list[Schedule] = []
    for k in nest.reduced(phase):
        strided = [n for n in _summed(nest, phase) if n.access.stride(loop) > 1 and n.access.stride(k) == 1]
        if strided and nest.sizes[k] >= lanes:
            found += [replace(s, unroll=(*s.unroll, (k, lanes))) for s in along if s.columns <= 2]
    return sorted(found, key=lambda s: s.columns)


def _reads_well(nest: Nest, phase: Phase, loop: int) -> bool:
    return all(load.access.stride(loop) in (0, 1) for load in _summed(nest, phase))


def _along_result(nest: Nest, phase: Phase, machine: Machine, loop: int, lanes: int) -> list[Schedule]:
    heights = _ROWS_32 if machine.registers >= 32 else _ROWS_16
    width = nest.sizes[loop] if loop >= 0 else 1
    rows = _row_loops(nest, phase, loop)
    short = tuple((k, nest.sizes[k]) for k in nest.reduced(phase)[-1:] if 1 < nest.sizes[k] <= _SHORT)
    found: list[Schedule] = []
    for columns in (2, 1, 3, 4):
        if columns > -(-width // lanes):
            continue
        for row in rows[:2] or [-1]:
            best = _height(nest.sizes[row], columns, heights[columns], machine) if row >= 0 else 1
            for height in dict.fromkeys((best, *heights[columns])):
                if row >= 0 and height > nest.sizes[row] and height != best:
                    continue
                unroll = (((row, height),) if row >= 0 and height > 1 else ()) + short
                made = Schedule(loop, lanes, columns, unroll, _order(nest, phase, loop, lanes * columns, row))
                found.append(made)
                other = _other_order(made, loop)
                if other is not None:
                    found.append(other)
    return found or [Schedule()]


def _height(size: int, columns: int, heights: tuple[int, ...], machine: Machine) -> int:
    """The height of a tile that covers `size` rows in the least time; a remainder costs as if it were latency-bound."""
    floor = (16 if machine.registers >= 32 else 8) * _SLACK

    def cost(height: int) -> float:
        full, left = divmod(size, height)
        return full * max(height * columns, floor) + (_REST * max(left * columns, floor) if left else 0)

    return min((h for h in range(1, max(heights) + 1) if h <= size), key=lambda h: (cost(h), -h))


def _with_panels(nest: Nest, phase: Phase, along: Sequence[Schedule], loop: int) -> list[Schedule]:
    """The schedules, and those that read the vectors' operand from a packed panel: first where it lies badly and
    many rows read it."""
    reads = [n.access for n in _summed(nest, phase) if loop >= 0 and n.access.stride(loop)]
    reduced = nest.reduced(phase)
    panel = max((trips(nest, tuple(k for k in reduced if a.stride(k))) for a in reads), default=0)
    if not reads or not panel:
        return list(along)
    far = any(a.stride(loop) != 1 or max(a.stride(k) for k in reduced) >= _FAR for a in reads)
    far = far or _filled(nest.sizes[loop], along[0].lanes) < 1  # a panel needs no masks
    packed: list[Schedule] = []
    for made in along:
        tile = made.lanes * made.columns
        order = _panel_order(nest, made, reads, loop)
        inside = order[order.index(loop) + 1 :]
        reuse = trips(nest, inside) / math.prod(made.tile(p) for p in inside)
        if tile * panel <= _MOST_PANEL and reuse >= 2 and all(not any(a.stride(p) for p in inside) for a in reads):
            packed.append(replace(made, order=order, pack=True))
    first = bool(packed) and far and _reuse(nest, packed[0], loop) >= _REUSE
    both = [*packed, *along] if first else [*along, *packed]
    return list(dict.fromkeys(both))


def _reuse(nest: Nest, made: Schedule, loop: int) -> float:
    """Tiles that read one panel."""
    inside = made.order[made.order.index(loop) + 1 :]
    return trips(nest, inside) / math.prod(made.tile(p) for p in inside)


def _panel_order(nest: Nest, made: Schedule, reads: Sequence[Access], loop: int) -> tuple[int, ...]:
    """Loops that the panel depends on, then one more where there are few tiles of vectors to share out; the vectors;
    the others."""
    others = [p for p in made.order if p != loop]
    batch = [p for p in others if any(a.stride(p) for a in reads)]
    rest = [p for p in others if p not in batch]
    tiles = -(-nest.sizes[loop] // made.tile(loop))
    share = 1 if tiles < _MANY_TILES and len(rest) > 1 else 0
    return tuple([*batch, *rest[:share], loop, *rest[share:]])


def _row_loops(nest: Nest, phase: Phase, loop: int) -> list[int]:
    """Loops whose tiles read the vectors again, the best first: those that leave no small remainder, the inner ones."""
    parallel = [other for other in nest.parallel(phase) if other != loop]
    vectors = [n.access for n in _summed(nest, phase) if n.access.stride(loop)]
    sharing = [row for row in parallel if nest.sizes[row] > 1 and any(not a.stride(row) for a in vectors)]

    def waste(row: int) -> float:
        size = nest.sizes[row]
        height = in_tiles(size, (4, 5, 3, 8))
        return -(-size // height) * 4 / size if height >= 3 else 4 / size

    return sorted(sharing, key=lambda row: (waste(row), -parallel.index(row)))


def _order(nest: Nest, phase: Phase, loop: int, tile: int, row: int) -> tuple[int, ...]:
    """Loops that every operand depends on; the vectors where they are many tiles of a large operand, so that one
    panel of it is read by all rows; the others; the rows."""
    parallel = list(nest.parallel(phase))
    vectors = [n.access for n in _summed(nest, phase) if n.access.stride(loop)]
    batch = [p for p in parallel if p not in (loop, row) and all(a.stride(p) for a in vectors)]
    rest = [p for p in parallel if p not in (*batch, loop, row)]
    tail = [row] if row >= 0 else []
    if loop < 0:
        return tuple([*batch, *rest, *tail])
    panel = nest.sizes[loop] * trips(nest, nest.reduced(phase))
    many = -(-nest.sizes[loop] // tile) >= _MANY_TILES and panel > _NEAR
    if many:
        return tuple([*batch, loop, *rest, *tail])
    return tuple([*batch, *rest[:1], loop, *rest[1:], *tail]) if rest or panel > _NEAR else tuple([*batch, *tail, loop])


def _other_order(made: Schedule, loop: int) -> Schedule | None:
    """The same tile with the vector loop innermost instead."""
    if loop < 0 or len(made.order) < 2 or made.order[-1] == loop:
        return None
    return replace(made, order=(*(p for p in made.order if p != loop), loop))


def _along_sum(nest: Nest, phase: Phase, machine: Machine, lanes: int) -> list[Schedule]:
    """Vectors along a reduction loop that all operands are contiguous in: a transposed right side."""
    if any(not nest.reductions[r].combiner for r in phase.reductions):
        return []
    reads = _summed(nest, phase)
    loops = [k for k in nest.reduced(phase) if all(r.access.stride(k) in (0, 1) for r in reads)
             and any(r.access.stride(k) for r in reads) and contiguous(nest, phase, k)]  # fmt: skip
    whole = trips(nest, nest.reduced(phase))
    loops = [k for k in loops if _full(nest.sizes[k], lanes) and whole >= lanes * _LONG]
    left, right = _sides(nest, phase)
    if not loops or left == right:
        return []
    loop = max(loops, key=lambda k: nest.sizes[k])
    short = tuple((k, nest.sizes[k]) for k in nest.reduced(phase)[-2:] if k != loop and nest.sizes[k] <= _SHORT)[-1:]
    found: list[Schedule] = []
    for counts in _DOTS_32 if machine.registers >= 32 else _DOTS_16:
        sizes = [in_tiles(nest.sizes[p], tuple(range(c, 0, -1))) for p, c in zip((left, right), counts, strict=True)]
        unroll = tuple((p, s) for p, s in zip((left, right), sizes, strict=True) if s > 1) + short
        order = (*(p for p in nest.parallel(phase) if p not in (left, right)), right, left)
        found.append(Schedule(loop, lanes, 1, unroll, order))
    found.sort(key=lambda s: -math.prod(count for _, count in s.unroll))
    return list(dict.fromkeys(found))


def _full(size: int, lanes: int) -> bool:
    """Whether vectors along a loop of this size have few empty lanes."""
    return size % lanes == 0 or size > 4 * lanes


def _sides(nest: Nest, phase: Phase) -> tuple[int, int]:
    """A loop that one operand depends on alone, and one that the other does: the two sides of a tile of dots."""
    loops = reuse_loops(nest, phase)
    reads = [nest.access_loops(n.access) for n in _summed(nest, phase)]
    sides = [frozenset(i for i, moving in enumerate(reads) if p in moving) for p in loops]
    for i in range(len(loops) - 1, -1, -1):
        for j in range(len(loops) - 1, -1, -1):
            if not sides[i] & sides[j]:
                return loops[j], loops[i]
    return 0, 0
