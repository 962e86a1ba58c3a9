"""Fewer and longer loops: drop those of one trip, merge those that every access walks as one."""

from __future__ import annotations

from dataclasses import replace

from mlir_passes.kernels.nest import Access, Index, Load, Nest, Phase, Reduction, Store


def collapse(nest: Nest) -> Nest:
    """The same kernel with loops dropped and merged; `nest` is used up."""
    for loop, size in enumerate(nest.sizes):
        if size == 1 and not _indexed(nest, loop):
            nest = _without(nest, loop)
    while (pair := _mergeable(nest)) is not None:
        outer, inner = pair
        nest.sizes[inner] *= nest.sizes[outer]
        nest = _without(nest, outer)
    return nest


def _indexed(nest: Nest, loop: int) -> bool:
    return any(isinstance(n, Index) and n.loop == loop for n in nest.nodes)


def _groups(nest: Nest) -> list[tuple[int, ...]]:
    """Sets of loops that may be merged with each other: rows, and each phase's parallel and reduction loops."""
    found = [nest.rows]
    for phase in nest.phases:
        found += [nest.parallel(phase), nest.reduced(phase)]
    return found


def _mergeable(nest: Nest) -> tuple[int, int] | None:
    accesses = _accesses(nest)
    for group in _groups(nest):
        for outer in group:
            for inner in group:
                if outer == inner or _indexed(nest, outer) or _indexed(nest, inner):
                    continue
                if all(a.stride(outer) == a.stride(inner) * nest.sizes[inner] for a in accesses):
                    return outer, inner
    return None


def _accesses(nest: Nest) -> list[Access]:
    loads = [n.access for n in nest.nodes if isinstance(n, Load)]
    return loads + [s.access for p in nest.phases for s in p.stores]


def _without(nest: Nest, loop: int) -> Nest:
    """The nest without a loop that always stands at 0."""

    def shorter(loops: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(other for other in loops if other != loop)

    def access(a: Access) -> Access:
        return replace(a, strides=tuple(p for p in a.strides if p[0] != loop))

    def store(s: Store) -> Store:
        return replace(s, access=access(s.access))

    def reduction(r: Reduction) -> Reduction:
        return replace(r, loops=shorter(r.loops))

    made = Nest(
        sizes=nest.sizes,
        rows=shorter(nest.rows),
        phases=[Phase(shorter(p.loops), p.reductions, tuple(map(store, p.stores))) for p in nest.phases],
        reductions=list(map(reduction, nest.reductions)),
        arrays=nest.arrays,
        arguments=nest.arguments,
    )
    for node in nest.nodes:  # every node keeps its number, so no merging of equal ones here
        made.nodes.append(replace(node, access=access(node.access)) if isinstance(node, Load) else node)
    made.index_nodes()
    return made
