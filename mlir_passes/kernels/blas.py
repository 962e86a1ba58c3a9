"""Matrix products by the OpenBLAS that comes with NumPy: one call, by its symbol, so that objects can be kept.

Plain products only, in all transposition cases. The library is looked for where NumPy's wheels have it; a NumPy
that was built otherwise has none, and then nothing here applies.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from mlir_passes.kernels.nest import Access, Apply, Constant, Load, Nest, NotCovered, Total

# By the names of NumPy 2's own wheels, then of others. Sizes are passed as 64 bits, which 32-bit forms read too.
_SYMBOLS = ("scipy_cblas_sgemm64_", "cblas_sgemm64_", "scipy_cblas_sgemm", "cblas_sgemm")
_ONE_THREAD = (
    "scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads",
    "openblas_set_num_threads",
)  # fmt: skip
_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112  # of cblas.h


@dataclass(frozen=True)
class _Library:
    handle: c.CDLL
    symbol: str


def symbol() -> str:
    """The library's function for f32 products, "" where there is no library; the code calls it by this name."""
    found = _library()
    return found.symbol if found else ""


def serves(functions: Iterable[str]) -> bool:
    """Whether the library has all of these ("" is none of its); if so, code that is loaded later finds them."""
    wanted = {name for name in functions if name}
    return not wanted or wanted == {symbol()}


@cache
def _library() -> _Library | None:
    """The library, its symbols visible to code that is loaded later. One thread: a step has threads of its own."""
    for path in _paths():
        try:
            handle = c.CDLL(str(path), mode=c.RTLD_GLOBAL)
        except OSError:
            continue
        name = next((s for s in _SYMBOLS if _has(handle, s)), "")
        if name:
            setter = next((s for s in _ONE_THREAD if _has(handle, s)), "")
            if setter:
                getattr(handle, setter)(1)
            return _Library(handle, name)
    return None


def _paths() -> Iterator[Path]:
    spec = find_spec("numpy")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted((Path(folder).parent / "numpy.libs").glob("*openblas*"))


def _has(handle: c.CDLL, name: str) -> bool:
    try:
        getattr(handle, name)
    except AttributeError:
        return False
    return True


@dataclass(frozen=True)
class Product:
    """C[m, n] = sum over k of A * B: the arguments and offsets of A, B, C, and what `cblas_sgemm` is told of them."""

    arguments: tuple[int, int, int]
    offsets: tuple[int, int, int]
    transposed: tuple[bool, bool]
    sizes: tuple[int, int, int]
    leading: tuple[int, int, int]


def product(nest: Nest) -> Product | None:
    """The matrix product that the kernel is, None if it is more, less, or something else."""
    if nest.rows or len(nest.phases) != 1 or len(nest.phases[0].reductions) != 1 or len(nest.phases[0].stores) != 1:
        return None
    phase = nest.phases[0]
    found, (store,) = nest.reductions[phase.reductions[0]], phase.stores
    loops, start = nest.parallel(phase), nest.nodes[found.start]
    term = nest.nodes[found.term] if found.term >= 0 else None
    total = nest.nodes[store.node]
    plain = (
        found.combiner == "arith.addf"
        and found.element == "f32"
        and isinstance(start, Constant)
        and float(start.text) == 0.0
        and isinstance(total, Total)
        and store.condition < 0
        and isinstance(term, Apply)
        and term.name == "arith.mulf"
        and len(loops) == 2
        and len(found.loops) == 1
    )
    if not plain or not isinstance(term, Apply):
        return None
    reads = [nest.nodes[o] for o in term.operands]
    if not all(isinstance(r, Load) for r in reads):
        return None
    accesses = [r.access for r in reads if isinstance(r, Load)]
    return _matched(nest, accesses, store.access, loops, found.loops[0])


def _matched(nest: Nest, reads: list[Access], to: Access, loops: tuple[int, ...], k: int) -> Product | None:
    for m, n in (loops, loops[::-1]):
        for a, b in (reads, reads[::-1]):
            made = _product(nest, a, b, to, (m, n, k))
            if made is not None:
                return made
    return None


def _product(nest: Nest, a: Access, b: Access, to: Access, mnk: tuple[int, int, int]) -> Product | None:
    m, n, k = mnk
    left, right, out = _layout(nest, a, m, k), _layout(nest, b, k, n), _layout(nest, to, m, n)
    arrays = [nest.arrays[x.array] for x in (a, b, to)]
    if left is None or right is None or out is None or out[0]:
        return None
    if any(array.argument < 0 or array.element != "f32" for array in arrays):
        return None
    first, second, third = (array.argument for array in arrays)
    return Product(
        arguments=(first, second, third),
        offsets=(a.offset, b.offset, to.offset),
        transposed=(left[0], right[0]),
        sizes=(nest.sizes[m], nest.sizes[n], nest.sizes[k]),
        leading=(left[1], right[1], out[1]),
    )


def _layout(nest: Nest, access: Access, row: int, column: int) -> tuple[bool, int] | None:
    """Whether a matrix of `row` by `column` is stored transposed, and its leading dimension; None if it is neither."""
    if access.nodes or {loop for loop, _ in access.strides} != {row, column}:
        return None
    for transposed, outer, inner in ((False, row, column), (True, column, row)):
        if access.stride(inner) == 1 and access.stride(outer) >= nest.sizes[inner]:
            return transposed, access.stride(outer)
    return None


def llvm_ir(nest: Nest, name: str) -> str:
    """The kernel as LLVM IR that calls the library; raises NotCovered if it is no product or there is no library."""
    found, function = product(nest), symbol()
    if found is None or not function:
        raise NotCovered("no matrix product" if function else "no BLAS library")
    count = len(nest.arguments)
    parameters = ", ".join([*(f"ptr %a{i}" for i in range(count)), "i64 %begin", "i64 %end"])
    places = "\n".join(
        f"  %p{i} = getelementptr float, ptr %a{argument}, i64 {offset}"
        for i, (argument, offset) in enumerate(zip(found.arguments, found.offsets, strict=True))
    )
    forms = [_TRANSPOSED if t else _PLAIN for t in found.transposed]
    given = [f"i32 {value}" for value in (_ROW_MAJOR, *forms)] + [f"i64 {size}" for size in found.sizes]
    lda, ldb, ldc = found.leading
    given += ["float 1.0", "ptr %p0", f"i64 {lda}", "ptr %p1", f"i64 {ldb}", "float 0.0", "ptr %p2", f"i64 {ldc}"]
    types = ", ".join(g.split()[0] for g in given)
    return f"""declare void @{function}({types})
define void @{name}({parameters}) {{
{places}
  call void @{function}({", ".join(given)})
  ret void
}}
"""
