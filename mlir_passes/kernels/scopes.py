"""What is known where: each value is made once, in the scope that asks for it first."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from mlir_passes.kernels.code import Code
from mlir_passes.kernels.nest import (
    Carried,
    Nest,
)
from mlir_passes.kernels.pieces import SCALAR, Offsets, Piece


class Scopes:
    """The code under construction, the values of each open block of it, and where the loops stand."""

    def __init__(self, nest: Nest) -> None:
        self._nest = nest
        self._code = Code()
        self._scopes: list[dict[object, str]] = [{}]
        self._at: dict[int, str | int] = {}  # where each loop is: a name, or a number
        self._inside_body = False  # of a reduction that is no plain sum: the innermost scope holds its accumulators

    @contextmanager
    def _scope(self) -> Generator[None]:
        self._scopes.append({})
        yield
        self._scopes.pop()

    def _known(self, key: object) -> str | None:
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        return None

    def _once(self, key: object, make: Callable[[], str]) -> str:
        known = self._known(key)
        if known is None:
            known = make()
            self._scopes[-2 if self._inside_body else -1][key] = known
        return known

    def _home(self, node: int) -> dict[object, str]:
        """The scope that keeps a node's value: not the one of accumulators where it does not depend on them."""
        inner = not self._inside_body or any(isinstance(self._nest.nodes[n], Carried) for n in self._nest.reach([node]))
        return self._scopes[-1 if inner else -2]

    def _key(self, node: int, offsets: Offsets, piece: Piece, loop: int) -> tuple[object, ...]:
        loops = self._nest.loops_of(node)
        own = tuple(sorted((k, v) for k, v in offsets.items() if k in loops and v))
        return (node, own, piece if loop in loops else SCALAR)

    def _shifted(self, strides: tuple[tuple[int, int], ...], shift: int) -> str:
        """shift + sum of stride * loop, as an index."""
        code, moving = self._code, []
        for loop, stride in strides:
            at = self._at[loop]
            if isinstance(at, int):
                shift += at * stride
            else:
                moving.append((at, stride))
        base = ""
        for at, stride in moving:
            term = at if stride == 1 else self._once(("scaled", at, stride), lambda a=at, s=stride: code.op(
                "arith.muli", (a, code.index(s)), "index"))  # fmt: skip
            base = term if not base else self._once(("sum", base, term), lambda b=base, t=term: code.op(
                "arith.addi", (b, t), "index"))  # fmt: skip
        if not base:
            return code.index(shift)
        if not shift:
            return base
        return self._once(("sum", base, shift), lambda: code.op("arith.addi", (base, code.index(shift)), "index"))
