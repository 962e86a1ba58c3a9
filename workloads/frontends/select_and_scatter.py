"""The text of a function that does what one `stablehlo.select_and_scatter` does: the gradient of a pool."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.frontends.bodies import Body


@dataclass(frozen=True)
class SelectAndScatter:
    """Shapes of the pooled operand and of the source (the gradient of the result), window, strides, low padding.

    select: whether the first of two elements stays the best; join: what a place has with what is added to it.
    """

    name: str
    operand: tuple[int, ...]
    source: tuple[int, ...]
    element: str
    window: tuple[int, ...]
    strides: tuple[int, ...]
    padding_low: tuple[int, ...]
    select: Body
    join: Body


def select_and_scatter_text(s: SelectAndScatter) -> str:
    """A private function (operand, source, init) -> operand's type; windows may overlap, and each goes to one place."""
    rank = len(s.operand)
    whole, source = (f"tensor<{''.join(f'{d}x' for d in shape)}{s.element}>" for shape in (s.operand, s.source))
    best_types = ", ".join([s.element, *["index"] * rank, "i1"])
    lines = [
        f"func.func private @{s.name}(%x: {whole}, %s: {source}, %init: tensor<{s.element}>) -> {whole} {{",
        "%c0 = arith.constant 0 : index",
        "%c1 = arith.constant 1 : index",
        f"%first = tensor.extract %init[] : tensor<{s.element}>",
        f"%empty = tensor.empty() : {whole}",
        f"%filled = linalg.fill ins(%first : {s.element}) outs(%empty : {whole}) -> {whole}",
        "%none = arith.constant false",
        "%some = arith.constant true",
    ]
    carried = "%filled"
    for d, size in enumerate(s.source):
        lines.append(f"%n{d} = arith.constant {size} : index")
        lines.append(f"%r{d} = scf.for %u{d} = %c0 to %n{d} step %c1 iter_args(%t{d} = {carried}) -> ({whole}) {{")
        carried = f"%t{d}"
    best = ["%first", *["%c0"] * rank, "%none"]
    for d, size in enumerate(s.window):
        start = ", ".join(f"%best{d}_{k} = {value}" for k, value in enumerate(best))
        lines.append(f"%size{d} = arith.constant {size} : index")
        lines.append(
            f"%found{d}:{rank + 2} = scf.for %w{d} = %c0 to %size{d} step %c1 iter_args({start}) -> ({best_types}) {{"
        )
        best = [f"%best{d}_{k}" for k in range(rank + 2)]
    lines += _compare(s, whole, best, best_types)
    result = "%better"
    for d in reversed(range(rank)):
        lines += [f"scf.yield {', '.join(f'{result}#{k}' for k in range(rank + 2))} : {best_types}", "}"]
        result = f"%found{d}"
    at = ", ".join(f"{result}#{k + 1}" for k in range(rank))
    lines += [
        f"%add = tensor.extract %s[{', '.join(f'%u{d}' for d in range(rank))}] : {source}",
        f"%old = tensor.extract {carried}[{at}] : {whole}",
        s.join.call("%joined", ["%old", "%add"]),
        f"%new = arith.select {result}#{rank + 1}, %joined, %old : {s.element}",  # else all of it was padding
        f"%put = tensor.insert %new into {carried}[{at}] : {whole}",
    ]
    result = "%put"
    for d in reversed(range(rank)):
        lines += [f"scf.yield {result} : {whole}", "}"]
        result = f"%r{d}"
    declared = s.select.declarations() + s.join.declarations()
    return "\n".join([*lines, f"return {result} : {whole}", "}"]) + "\n" + declared


def _compare(s: SelectAndScatter, whole: str, best: list[str], best_types: str) -> list[str]:
    """Lines that yield the better of `best` and the element under the window, as %better."""
    rank = len(s.operand)
    lines: list[str] = []
    inside = ""
    for d in range(rank):
        lines += [
            f"%stride{d} = arith.constant {s.strides[d]} : index",
            f"%low{d} = arith.constant {s.padding_low[d]} : index",
            f"%corner{d} = arith.muli %u{d}, %stride{d} : index",
            f"%padded{d} = arith.addi %corner{d}, %w{d} : index",
            f"%at{d} = arith.subi %padded{d}, %low{d} : index",
            f"%dim{d} = arith.constant {s.operand[d]} : index",
            f"%fits{d} = arith.cmpi ult, %at{d}, %dim{d} : index",
        ]
        if inside:
            lines.append(f"%in{d} = arith.andi {inside}, %fits{d} : i1")
        inside = f"%in{d}" if inside else f"%fits{d}"
    return [
        *lines,
        f"%better:{rank + 2} = scf.if {inside} -> ({best_types}) {{",
        f"%value = tensor.extract %x[{', '.join(f'%at{d}' for d in range(rank))}] : {whole}",
        s.select.call("%stays", [best[0], "%value"]),
        f"%keep = arith.andi {best[-1]}, %stays : i1",
        f"%max = arith.select %keep, {best[0]}, %value : {s.element}",
        *(f"%max{d} = arith.select %keep, {best[d + 1]}, %at{d} : index" for d in range(rank)),
        f"scf.yield {', '.join(['%max', *(f'%max{d}' for d in range(rank)), '%some'])} : {best_types}",
        "} else {",
        f"scf.yield {', '.join(best)} : {best_types}",
        "}",
    ]
