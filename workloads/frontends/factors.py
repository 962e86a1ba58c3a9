"""The texts of functions for a Cholesky factor and for the solution of triangular systems, by loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NAN = {"f16": "0x7E00", "bf16": "0x7FC0", "f32": "0x7FC00000", "f64": "0x7FF8000000000000"}


class Loops:
    """Nested loops that carry one tensor, written as text; `%c0` and `%c1` are there."""

    def __init__(self, type_: str) -> None:
        self._type, self._count = type_, 0
        self.lines: list[str] = []

    def size(self, value: int) -> str:
        self._count += 1
        self.lines.append(f"%size{self._count} = arith.constant {value} : index")
        return f"%size{self._count}"

    def run(self, start: str, end: str, carried: str, body: Callable[[str, str], str]) -> str:
        """What `carried` has become after the loop; `body` gets the place and the tensor, and gives the new one."""
        self._count += 1
        n = self._count
        self.lines.append(
            f"%r{n} = scf.for %i{n} = {start} to {end} step %c1 iter_args(%t{n} = {carried}) -> ({self._type}) {{"
        )
        made = body(f"%i{n}", f"%t{n}")
        self.lines += [f"scf.yield {made} : {self._type}", "}"]
        return f"%r{n}"

    def over(self, sizes: tuple[int, ...], carried: str, body: Callable[[list[str], str], str]) -> str:
        """A loop a dimension; `body` gets all places."""

        def nest(places: list[str], tensor: str) -> str:
            if len(places) == len(sizes):
                return body(places, tensor)
            return self.run("%c0", self.size(sizes[len(places)]), tensor, lambda i, t: nest([*places, i], t))

        return nest([], carried)

    def op(self, text: str) -> str:
        self._count += 1
        self.lines.append(f"%v{self._count} = {text}")
        return f"%v{self._count}"

    def read(self, tensor: str, type_: str, *places: str) -> str:
        return self.op(f"tensor.extract {tensor}[{', '.join(places)}] : {type_}")

    def put(self, value: str, tensor: str, *places: str) -> str:
        return self.op(f"tensor.insert {value} into {tensor}[{', '.join(places)}] : {self._type}")


@dataclass(frozen=True)
class Cholesky:
    name: str
    shape: tuple[int, ...]
    element: str
    lower: bool


def cholesky_text(s: Cholesky) -> str:
    """A private function from symmetric matrices to their factors; all of a factor is NaN where there is none."""
    e, n = s.element, s.shape[-1]
    type_ = f"tensor<{''.join(f'{d}x' for d in s.shape)}{e}>"
    loops = Loops(type_)
    last = loops.op(f"arith.constant {n - 1} : index")
    nan = loops.op(f"arith.constant {NAN[e]} : {e}")
    zero = loops.op(f"arith.constant 0.0 : {e}")

    def factor(batch: list[str], tensor: str) -> str:
        def at(i: str, j: str) -> list[str]:
            return [*batch, i, j] if s.lower else [*batch, j, i]

        def column(j: str, tensor: str) -> str:
            def less(k: str, tensor: str, i: str) -> str:
                product = loops.op(
                    f"arith.mulf {loops.read(tensor, type_, *at(i, k))}, {loops.read(tensor, type_, *at(j, k))} : {e}"
                )
                rest = loops.op(f"arith.subf {loops.read(tensor, type_, *at(i, j))}, {product} : {e}")
                return loops.put(rest, tensor, *at(i, j))

            tensor = loops.run("%c0", j, tensor, lambda k, t: less(k, t, j))
            rest = loops.read(tensor, type_, *at(j, j))
            root = loops.op(f"math.sqrt {rest} : {e}")
            positive = loops.op(f"arith.cmpf ogt, {rest}, {zero} : {e}")
            pivot = loops.op(f"arith.select {positive}, {root}, {nan} : {e}")
            tensor = loops.put(pivot, tensor, *at(j, j))

            def row(i: str, tensor: str) -> str:
                tensor = loops.run("%c0", j, tensor, lambda k, t: less(k, t, i))
                value = loops.op(f"arith.divf {loops.read(tensor, type_, *at(i, j))}, {pivot} : {e}")
                return loops.put(value, tensor, *at(i, j))

            return loops.run(loops.op(f"arith.addi {j}, %c1 : index"), loops.size(n), tensor, row)

        tensor = loops.run("%c0", loops.size(n), tensor, column)
        end = loops.read(tensor, type_, *batch, last, last)  # NaN where any pivot before it was
        failed = loops.op(f"arith.cmpf uno, {end}, {end} : {e}")

        def keep(places: list[str], tensor: str) -> str:
            value = loops.read(tensor, type_, *batch, *places)
            return loops.put(loops.op(f"arith.select {failed}, {nan}, {value} : {e}"), tensor, *batch, *places)

        return loops.over((n, n), tensor, keep)

    result = loops.over(s.shape[:-2], "%x", factor)
    return _function(f"@{s.name}(%x: {type_}) -> {type_}", loops, result, type_)


@dataclass(frozen=True)
class TriangularSolve:
    """op(A) X = B, or X op(A) = B where `left` is false; op transposes where `transposed` is true."""

    name: str
    matrix: tuple[int, ...]
    other: tuple[int, ...]
    element: str
    left: bool
    lower: bool
    unit: bool
    transposed: bool


def triangular_solve_text(s: TriangularSolve) -> str:
    """A private function (A, B) -> X, by substitution."""
    e, n = s.element, s.matrix[-1]
    matrix, type_ = (f"tensor<{''.join(f'{d}x' for d in shape)}{e}>" for shape in (s.matrix, s.other))
    loops = Loops(type_)
    columns = s.other[-1] if s.left else s.other[-2]
    swapped = s.transposed == s.left
    down = s.lower != swapped  # from the first unknown to the last
    last = loops.op(f"arith.constant {n - 1} : index")

    def solve(batch: list[str], tensor: str) -> str:
        def unknown(i: str, c: str) -> list[str]:
            return [*batch, i, c] if s.left else [*batch, c, i]

        def factor(i: str, k: str) -> str:
            return loops.read("%a", matrix, *batch, *((k, i) if swapped else (i, k)))

        def place(step: str) -> str:
            return step if down else loops.op(f"arith.subi {last}, {step} : index")

        def row(step: str, tensor: str) -> str:
            i = place(step)

            def known(before: str, tensor: str) -> str:
                k = place(before)
                times = factor(i, k)

                def take(c: str, tensor: str) -> str:
                    product = loops.op(f"arith.mulf {times}, {loops.read(tensor, type_, *unknown(k, c))} : {e}")
                    rest = loops.op(f"arith.subf {loops.read(tensor, type_, *unknown(i, c))}, {product} : {e}")
                    return loops.put(rest, tensor, *unknown(i, c))

                return loops.run("%c0", loops.size(columns), tensor, take)

            tensor = loops.run("%c0", step, tensor, known)
            if s.unit:
                return tensor
            pivot = factor(i, i)

            def divide(c: str, tensor: str) -> str:
                value = loops.op(f"arith.divf {loops.read(tensor, type_, *unknown(i, c))}, {pivot} : {e}")
                return loops.put(value, tensor, *unknown(i, c))

            return loops.run("%c0", loops.size(columns), tensor, divide)

        return loops.run("%c0", loops.size(n), tensor, row)

    result = loops.over(s.matrix[:-2], "%b", solve)
    return _function(f"@{s.name}(%a: {matrix}, %b: {type_}) -> {type_}", loops, result, type_)


def _function(head: str, loops: Loops, result: str, type_: str) -> str:
    constants = ["%c0 = arith.constant 0 : index", "%c1 = arith.constant 1 : index"]
    return (
        "\n".join([f"func.func private {head} {{", *constants, *loops.lines, f"return {result} : {type_}", "}"]) + "\n"
    )
