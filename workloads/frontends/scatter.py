"""The text of a function that does what one `stablehlo.scatter` does, in core dialects."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from workloads.frontends.bodies import Body

REDUCTION_PLACES = 1024  # the reduction does places x updates work: up to here its parallel form pays
FLOAT = {"add": "addf", "multiply": "mulf", "maximum": "maximumf", "minimum": "minimumf"}
SIGNED = {"add": "addi", "multiply": "muli", "maximum": "maxsi", "minimum": "minsi"}
UNSIGNED = SIGNED | {"maximum": "maxui", "minimum": "minui"}


@dataclass(frozen=True)
class Scatter:
    """Shapes and dimension numbers of a scatter, named as the StableHLO specification has them.

    window: update_window_dims; inserted: inserted_window_dims; operand_batching, indices_batching: the batching
    dims; scattered: scatter_dims_to_operand_dims; vector: index_vector_dim. combine: add, multiply, maximum,
    minimum, replace, or a function of (old, new).
    """

    name: str
    operand: tuple[int, ...]
    indices: tuple[int, ...]
    updates: tuple[int, ...]
    element: str
    index_element: str
    unsigned: bool
    combine: str | Body
    window: tuple[int, ...]
    inserted: tuple[int, ...]
    operand_batching: tuple[int, ...]
    indices_batching: tuple[int, ...]
    scattered: tuple[int, ...]
    vector: int

    @property
    def update_scatter_dims(self) -> list[int]:
        """Dims of the updates that number the scatters, in order."""
        return [d for d in range(len(self.updates)) if d not in self.window]

    @property
    def operand_window_dims(self) -> list[int]:
        """Dims of the operand that the window dims of the updates run along, in order."""
        return [d for d in range(len(self.operand)) if d not in (*self.inserted, *self.operand_batching)]

    @property
    def index_dims(self) -> list[int]:
        """Dims of the indices that number the scatters, in order: those but the vector dim."""
        return [d for d in range(len(self.indices)) if d != self.vector]

    @property
    def arithmetic(self) -> str | None:
        """The arith op that joins old and new; None where there is none."""
        if isinstance(self.combine, Body):
            return None
        names = FLOAT if self.element[0] in "fb" else UNSIGNED if self.unsigned else SIGNED
        return names.get(self.combine)

    def type(self, shape: tuple[int, ...], element: str | None = None) -> str:
        return f"tensor<{''.join(f'{d}x' for d in shape)}{element or self.element}>"


def scatter_text(s: Scatter) -> str:
    """A private function (operand, indices, updates) -> operand: one reduction where that is possible, else loops."""
    return _reduction(s) if _is_reduction(s) else _loops(s)


def _is_reduction(s: Scatter) -> bool:
    """A float sum of whole windows, or of single elements, into not too many places."""
    indexed = bool(s.scattered) and all(d in s.inserted for d in s.scattered)
    whole = all(s.updates[w] == s.operand[o] for w, o in zip(s.window, s.operand_window_dims, strict=True))
    return s.arithmetic == "addf" and indexed and whole and prod(s.operand[d] for d in s.scattered) <= REDUCTION_PLACES


def _head(s: Scatter) -> str:
    indices = s.type(s.indices, s.index_element)
    return (
        f"func.func private @{s.name}(%o: {s.type(s.operand)}, %i: {indices}, %u: {s.type(s.updates)})"
        f" -> {s.type(s.operand)} {{"
    )


def _reduction(s: Scatter) -> str:
    """out[o...] = operand[o...] + sum over scatters of (index == o ? update : 0): parallel, in a fixed order."""
    rank = len(s.operand)
    number = dict(zip(s.update_scatter_dims, s.index_dims, strict=True))
    reduced = [u for u, i in number.items() if i not in s.indices_batching]
    at = {u: f"d{rank + k}" for k, u in enumerate(reduced)}
    at |= {
        u: f"d{s.operand_batching[s.indices_batching.index(i)]}" for u, i in number.items() if i in s.indices_batching
    }
    at |= {w: f"d{o}" for w, o in zip(s.window, s.operand_window_dims, strict=True)}
    dims = [f"d{k}" for k in range(rank + len(reduced))]
    coordinates = range(len(s.scattered))

    def read_index(k: int) -> list[str]:
        of_dim = {i: at[u] for u, i in number.items()} | {s.vector: str(k)}
        return [of_dim[d] for d in range(len(s.indices))]

    results = [*map(read_index, coordinates), [at[d] for d in range(len(s.updates))], dims[:rank]]
    maps = ", ".join(f"affine_map<({', '.join(dims)}) -> ({', '.join(r)})>" for r in results)
    iterators = ", ".join(['"parallel"'] * rank + ['"reduction"'] * len(reduced))
    index_type = s.type(s.indices, s.index_element)
    inputs = ", ".join(["%i"] * len(s.scattered) + ["%u"])
    types = ", ".join([index_type] * len(s.scattered) + [s.type(s.updates)])
    elements = ", ".join(f"%index{k}: {s.index_element}" for k in coordinates)
    lines = [
        _head(s),
        f"%zero = arith.constant 0.0 : {s.element}",
        f"%r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}",
        f"ins({inputs} : {types}) outs(%o : {s.type(s.operand)}) {{",
        f"^bb0({elements}, %update: {s.element}, %sum: {s.element}):",
    ]
    here = ""
    for k, d in enumerate(s.scattered):
        lines.append(f"%place{k} = linalg.index {d} : index")
        lines.append(f"%number{k} = arith.index_cast %place{k} : index to {s.index_element}")
        lines.append(f"%equal{k} = arith.cmpi eq, %index{k}, %number{k} : {s.index_element}")
        if here:
            lines.append(f"%all{k} = arith.andi {here}, %equal{k} : i1")
        here = f"%all{k}" if here else f"%equal{k}"
    lines += [
        f"%add = arith.select {here}, %update, %zero : {s.element}",
        f"%new = arith.addf %sum, %add : {s.element}",
        f"linalg.yield %new : {s.element}",
        f"}} -> {s.type(s.operand)}",
        f"return %r : {s.type(s.operand)}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _loops(s: Scatter) -> str:
    """One loop a dim of the updates; an update whose place is outside the operand is skipped."""
    whole, rank = s.type(s.operand), len(s.operand)
    lines = [_head(s), "%c0 = arith.constant 0 : index", "%c1 = arith.constant 1 : index", "%in = arith.constant true"]
    carried = "%o"
    for d, size in enumerate(s.updates):
        lines.append(f"%n{d} = arith.constant {size} : index")
        lines.append(f"%r{d} = scf.for %u{d} = %c0 to %n{d} step %c1 iter_args(%t{d} = {carried}) -> ({whole}) {{")
        carried = f"%t{d}"
    terms = _index_terms(s, lines)
    place: list[str] = []
    inside = "%in"
    for d in range(rank):
        value = "%c0"
        for k, term in enumerate(terms.get(d, [])):
            lines.append(f"%sum{d}_{k} = arith.addi {value}, {term} : index")
            value = f"%sum{d}_{k}"
        place.append(value)
        lines.append(f"%size{d} = arith.constant {s.operand[d]} : index")
        lines.append(f"%fits{d} = arith.cmpi ult, {value}, %size{d} : index")
        lines.append(f"%in{d} = arith.andi {inside}, %fits{d} : i1")
        inside = f"%in{d}"
    at = ", ".join(place)
    update = ", ".join(f"%u{d}" for d in range(len(s.updates)))
    lines.append(f"%new = tensor.extract %u[{update}] : {s.type(s.updates)}")
    lines.append(f"%next = scf.if {inside} -> ({whole}) {{")
    if s.combine != "replace":
        lines.append(f"%old = tensor.extract {carried}[{at}] : {whole}")
    if isinstance(s.combine, Body):
        lines.append(s.combine.call("%joined", ["%old", "%new"]))
    elif s.arithmetic:
        lines.append(f"%joined = arith.{s.arithmetic} %old, %new : {s.element}")
    joined = "%new" if s.combine == "replace" else "%joined"
    lines.append(f"%put = tensor.insert {joined} into {carried}[{at}] : {whole}")
    lines += [f"scf.yield %put : {whole}", "} else {", f"scf.yield {carried} : {whole}", "}"]
    result = "%next"
    for d in reversed(range(len(s.updates))):
        lines += [f"scf.yield {result} : {whole}", "}"]
        result = f"%r{d}"
    declared = s.combine.declarations() if isinstance(s.combine, Body) else ""
    return "\n".join([*lines, f"return {result} : {whole}", "}"]) + "\n" + declared


def _index_terms(s: Scatter, lines: list[str]) -> dict[int, list[str]]:
    """The values whose sum is the place along each operand dim; appends the lines that read the indices."""
    terms: dict[int, list[str]] = {}
    number = dict(zip(s.index_dims, s.update_scatter_dims, strict=True))
    for k, d in enumerate(s.scattered):
        lines.append(f"%k{k} = arith.constant {k} : index")
        at = ", ".join(f"%k{k}" if i == s.vector else f"%u{number[i]}" for i in range(len(s.indices)))
        lines.append(f"%read{k} = tensor.extract %i[{at}] : {s.type(s.indices, s.index_element)}")
        lines.append(f"%start{k} = arith.index_cast %read{k} : {s.index_element} to index")
        terms.setdefault(d, []).append(f"%start{k}")
    for d, i in zip(s.operand_batching, s.indices_batching, strict=True):
        terms.setdefault(d, []).append(f"%u{number[i]}")
    for u, d in zip(s.window, s.operand_window_dims, strict=True):
        terms.setdefault(d, []).append(f"%u{u}")
    return terms
