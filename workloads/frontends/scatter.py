"""The text of a function that does what one `stablehlo.scatter` does, in core dialects."""

from __future__ import annotations

from dataclasses import dataclass

REDUCTION_ROWS = 1024  # the reduction form does rows x updates work: up to here its parallel form pays
FLOAT = {"add": "addf", "multiply": "mulf", "maximum": "maximumf", "minimum": "minimumf"}
SIGNED = {"add": "addi", "multiply": "muli", "maximum": "maxsi", "minimum": "minsi"}
UNSIGNED = SIGNED | {"maximum": "maxui", "minimum": "minui"}


@dataclass(frozen=True)
class Scatter:
    """Shapes and dimension numbers of a scatter, named as the StableHLO specification has them.

    window: update_window_dims; inserted: inserted_window_dims; operand_batching, indices_batching: the batching
    dims; scattered: scatter_dims_to_operand_dims; vector: index_vector_dim. combine: add, multiply, maximum,
    minimum or replace.
    """

    name: str
    operand: tuple[int, ...]
    indices: tuple[int, ...]
    updates: tuple[int, ...]
    element: str
    index_element: str
    unsigned: bool
    combine: str
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
        """The arith op that joins old and new; None to replace."""
        names = FLOAT if self.element[0] in "fb" else UNSIGNED if self.unsigned else SIGNED
        return names.get(self.combine)

    def type(self, shape: tuple[int, ...], element: str | None = None) -> str:
        return f"tensor<{''.join(f'{d}x' for d in shape)}{element or self.element}>"


def scatter_text(s: Scatter) -> str:
    """A private function (operand, indices, updates) -> operand: one reduction where that is possible, else loops."""
    return _reduction(s) if _is_reduction(s) else _loops(s)


def _is_reduction(s: Scatter) -> bool:
    """A float sum over one index dim, with whole windows beside it, of not too many rows."""
    one_index = len(s.scattered) == 1 and s.scattered[0] in s.inserted
    whole = all(s.updates[w] == s.operand[o] for w, o in zip(s.window, s.operand_window_dims, strict=True))
    return s.arithmetic == "addf" and one_index and whole and s.operand[s.scattered[0]] <= REDUCTION_ROWS


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
    of_index = {i: at[u] for u, i in number.items()} | {s.vector: "0"}

    dims = [f"d{k}" for k in range(rank + len(reduced))]
    space = f"affine_map<({', '.join(dims)}) -> "
    indices = ", ".join(of_index[d] for d in range(len(s.indices)))
    updates = ", ".join(at[d] for d in range(len(s.updates)))
    iterators = ", ".join(['"parallel"'] * rank + ['"reduction"'] * len(reduced))
    return f"""{_head(s)}
  %zero = arith.constant 0.0 : {s.element}
  %r = linalg.generic {{
      indexing_maps = [{space}({indices})>, {space}({updates})>, {space}({", ".join(dims[:rank])})>],
      iterator_types = [{iterators}]}}
      ins(%i, %u : {s.type(s.indices, s.index_element)}, {s.type(s.updates)}) outs(%o : {s.type(s.operand)}) {{
  ^bb0(%index: {s.index_element}, %update: {s.element}, %sum: {s.element}):
    %row = linalg.index {s.scattered[0]} : index
    %number = arith.index_cast %row : index to {s.index_element}
    %here = arith.cmpi eq, %index, %number : {s.index_element}
    %add = arith.select %here, %update, %zero : {s.element}
    %new = arith.addf %sum, %add : {s.element}
    linalg.yield %new : {s.element}
  }} -> {s.type(s.operand)}
  return %r : {s.type(s.operand)}
}}
"""


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
    if s.arithmetic:
        lines.append(f"%old = tensor.extract {carried}[{at}] : {whole}")
        lines.append(f"%joined = arith.{s.arithmetic} %old, %new : {s.element}")
    lines.append(f"%put = tensor.insert {'%joined' if s.arithmetic else '%new'} into {carried}[{at}] : {whole}")
    lines += [f"scf.yield %put : {whole}", "} else {", f"scf.yield {carried} : {whole}", "}"]
    result = "%next"
    for d in reversed(range(len(s.updates))):
        lines += [f"scf.yield {result} : {whole}", "}"]
        result = f"%r{d}"
    return "\n".join([*lines, f"return {result} : {whole}", "}"]) + "\n"


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
