"""The text of a function for a reduce_window whose windows are all that came before: a cumulative sum and its like."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.frontends.bodies import Body


@dataclass(frozen=True)
class Scan:
    """Arrays of one shape, and what joins (so far..., next...); `backward` runs from the last place to the first."""

    name: str
    shape: tuple[int, ...]
    elements: tuple[str, ...]
    dimension: int
    backward: bool
    join: Body


def scan_text(s: Scan) -> str:
    """A private function (arrays, initial values) -> arrays: one loop along the dimension, elements in order."""
    count, rank = len(s.elements), len(s.shape)
    wholes = [f"tensor<{''.join(f'{d}x' for d in s.shape)}{e}>" for e in s.elements]
    given = [f"%x{k}: {t}" for k, t in enumerate(wholes)] + [f"%z{k}: tensor<{e}>" for k, e in enumerate(s.elements)]
    types, of = ", ".join(wholes), f":{count}" if count > 1 else ""
    last = rank - 1 == s.dimension  # the value so far is a scalar then; else it is read where it was put
    lines = [
        f"func.func private @{s.name}({', '.join(given)}) -> ({types}) {{",
        "%c0 = arith.constant 0 : index",
        "%c1 = arith.constant 1 : index",
        f"%end = arith.constant {s.shape[s.dimension] - 1} : index",
        *(f"%first{k} = tensor.extract %z{k}[] : tensor<{e}>" for k, e in enumerate(s.elements)),
    ]
    carried = [f"%x{k}" for k in range(count)]  # each place holds its element until its sum is put there
    for d, size in enumerate(s.shape):
        inside = [f"%t{d}_{k}" for k in range(count)]
        pairs = ", ".join(f"{i} = {o}" for i, o in zip(inside, carried, strict=True))
        extra, extra_types = "", ""
        if last and d == s.dimension:
            extra = "".join(f", %sum{k} = %first{k}" for k in range(count))
            extra_types = "".join(f", {e}" for e in s.elements)
            of_here = f":{2 * count}"
        else:
            of_here = of
        lines.append(f"%size{d} = arith.constant {size} : index")
        lines.append(
            f"%r{d}{of_here} = scf.for %i{d} = %c0 to %size{d} step %c1"
            f" iter_args({pairs}{extra}) -> ({types}{extra_types}) {{"
        )
        if d == s.dimension:
            lines += _places(s, d)
        carried = inside
    at = ", ".join("%at" if d == s.dimension else f"%i{d}" for d in range(rank))
    before = ", ".join("%before" if d == s.dimension else f"%i{d}" for d in range(rank))
    so_far = [f"%sum{k}" for k in range(count)] if last else [f"%old{k}" for k in range(count)]
    for k, t in enumerate(wholes):
        lines.append(f"%v{k} = tensor.extract {carried[k]}[{at}] : {t}")
        if not last:
            lines.append(f"%read{k} = tensor.extract {carried[k]}[{before}] : {t}")
            lines.append(f"%old{k} = arith.select %begins, %first{k}, %read{k} : {s.elements[k]}")
    for k in range(count):
        lines.append(s.join.call(f"%new{k}", [*so_far, *(f"%v{j}" for j in range(count))], k))
    lines += [f"%put{k} = tensor.insert %new{k} into {carried[k]}[{at}] : {t}" for k, t in enumerate(wholes)]
    results = [f"%put{k}" for k in range(count)]
    for d in reversed(range(rank)):
        also = [f"%new{k}" for k in range(count)] if last and d == s.dimension else []
        also_types = [*wholes, *(s.elements if also else ())]
        lines += [f"scf.yield {', '.join([*results, *also])} : {', '.join(also_types)}", "}"]
        several = count > 1 or bool(also)
        results = [f"%r{d}#{k}" if several else f"%r{d}" for k in range(count)]
    lines += [f"return {', '.join(results)} : {types}", "}"]
    return "\n".join(lines) + "\n" + s.join.declarations()


def _places(s: Scan, d: int) -> list[str]:
    """Lines that name the place, the one before it (itself at the start), and whether it is the start."""
    lines = [f"%begins = arith.cmpi eq, %i{d}, %c0 : index"]
    if s.backward:
        lines += [f"%at = arith.subi %end, %i{d} : index", "%after = arith.addi %at, %c1 : index"]
        return [*lines, "%before = arith.minui %after, %end : index"]
    lines += [f"%at = arith.addi %i{d}, %c0 : index", f"%previous = arith.subi %i{d}, %c1 : index"]
    return [*lines, "%before = arith.select %begins, %at, %previous : index"]
