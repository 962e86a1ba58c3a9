"""Lines of MLIR text with fresh names: what a kernel's emitter writes into."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager


def vector(element: str, lanes: int) -> str:
    """The type of `lanes` elements; one lane is the scalar type."""
    return element if lanes == 1 else f"vector<{lanes}x{element}>"


def element_of(type_text: str) -> str:
    """The element type of a vector type, a scalar type itself."""
    return type_text[:-1].rpartition("x")[2] if type_text.startswith("vector<") else type_text


def like(type_text: str, element: str) -> str:
    """The type with as many lanes as `type_text` and other elements."""
    return type_text[: type_text.rindex("x") + 1] + element + ">" if type_text.startswith("vector<") else element


class Code:
    """A function body under construction. Values are SSA names ("%7"), types are MLIR text.

    Constants are made once, at the head of the function.
    """

    def __init__(self) -> None:
        self._count = 0
        self._indent = 1
        self._constants: dict[tuple[str, str], str] = {}
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """Constants first, then all lines in order."""
        made = self._constants.items()
        head = [f"  {name} = arith.constant {_literal(value, type_)}" for (value, type_), name in made]
        return "\n".join(head + self._lines)

    def name(self) -> str:
        self._count += 1
        return f"%{self._count}"

    def line(self, text: str) -> None:
        self._lines.append("  " * self._indent + text)

    def op(self, name: str, operands: Sequence[str], type_: str, attributes: str = "") -> str:
        """An op whose operands and result have one type: `%n = name operands attributes : type`."""
        made = self.name()
        self.line(f"{made} = {name} {', '.join(operands)}{' ' + attributes if attributes else ''} : {type_}")
        return made

    def convert(self, name: str, operand: str, from_: str, to: str) -> str:
        """A cast: `%n = name operand : from to to`."""
        made = self.name()
        self.line(f"{made} = {name} {operand} : {from_} to {to}")
        return made

    def constant(self, value: str | float | int, type_: str) -> str:
        """A scalar constant, or a vector with it in every lane. Text is taken as it stands (hex bits of a float)."""
        found = value if isinstance(value, str) else _number(value, element_of(type_))
        return self._constants.setdefault((found, type_), f"%c{len(self._constants)}")

    def index(self, value: int) -> str:
        return self.constant(value, "index")

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Generator[None]:
        """Lines between `head {` and `tail`, indented."""
        self.line(head + " {")
        self._indent += 1
        yield
        self._indent -= 1
        self.line(tail)


def _literal(value: str, type_: str) -> str:
    return f"dense<{value}> : {type_}" if type_.startswith("vector<") else f"{value} : {type_}"


def _number(value: float | int, element: str) -> str:
    if element.startswith(("i", "index")):
        return str(int(value))
    return repr(float(value)) if "e" not in repr(float(value)) else _with_point(repr(float(value)))


def _with_point(text: str) -> str:
    """MLIR reads 1.0e-08, not 1e-08."""
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"
