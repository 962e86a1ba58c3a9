"""Random JAX functions as plain data: `random_ops.draw` gives that of a seed, `Program.source()` is its text as Python.

A program is a list of lines `name = expression`. Expressions name dtypes f32, f16 and bf16, so that the same lines run
in float64 where these three names mean float64. Arguments are f32, i32 or bool; other dtypes come by astype.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

NARROW = {"f32": jnp.float32, "f16": jnp.float16, "bf16": jnp.bfloat16}
WIDE = dict.fromkeys(NARROW, jnp.float64)
FIXED = {"i8": jnp.int8, "i16": jnp.int16, "i32": jnp.int32, "u8": jnp.uint8, "u16": jnp.uint16, "u32": jnp.uint32}
NAMES: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": lax, "np": np, "bool": jnp.bool_, **FIXED}
FLOATS = tuple(NARROW)
DTYPE_NAMES = {np.dtype(t): name for name, t in {**NARROW, **FIXED, "bool": jnp.bool_}.items()}
NAME = re.compile(r"\bv\d+\b")
LENGTHS = (*range(1, 41), 63, 64, 65, 127, 128, 129, 999, 1000, 1001)
MOST_ELEMENTS = 6000
HEAD = "import jax, jax.numpy as jnp, numpy as np\nfrom jax import lax\n"


class NoFit(Exception):
    """A draw that no operand fits; another one is drawn."""


@dataclass(frozen=True)
class Value:
    """A name with its shape and the short name of its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def floats(self) -> bool:
        return self.dtype in FLOATS

    @property
    def integers(self) -> bool:
        return self.dtype in FIXED


@dataclass(frozen=True)
class Argument:
    """A value with the NumPy expression of its data, in which R is numpy.random.default_rng."""

    value: Value
    text: str

    def array(self) -> np.ndarray:
        found = eval(self.text, {"np": np, "R": np.random.default_rng})
        return np.asarray(found, NAMES.get(self.value.dtype) or np.float32).reshape(self.value.shape)


@dataclass(frozen=True)
class Line:
    """`value.name = text`."""

    value: Value
    text: str


@dataclass(frozen=True)
class Program:
    """A function of `arguments` that returns `outputs`, each as f32, i32 or bool."""

    arguments: tuple[Argument, ...]
    lines: tuple[Line, ...]
    outputs: tuple[Value, ...]

    @property
    def dtypes(self) -> set[str]:
        """What it computes in, as far as its lines say."""
        named = {name for line in self.lines for name in re.findall(r"\b(?:b?f16|f32)\b", line.text)}
        return named | {line.value.dtype for line in self.lines}

    def function(
        self, wide: bool = False, after: Callable[[Line, Any], Any] = lambda _, value: value
    ) -> Callable[..., list[Any]]:
        """The program as a function to trace; `wide`: with float64 for all floats. after: what becomes of the value of
        each line."""
        floats = WIDE if wide else NARROW

        def run(*arrays: Any) -> list[Any]:
            scope: dict[str, Any] = {**NAMES, **floats}
            for argument, array in zip(self.arguments, arrays, strict=True):
                dtype = argument.value.dtype
                scope[argument.value.name] = array.astype(floats[dtype]) if dtype in floats else array
            for line in self.lines:
                value = jnp.asarray(eval(line.text, scope))
                scope[line.value.name] = after(line, value.astype(scope[line.value.dtype]))
            return [scope[v.name].astype(scope[_stored(v.dtype)]) for v in self.outputs]

        return run

    def arrays(self) -> list[np.ndarray]:
        return [argument.array() for argument in self.arguments]

    def source(self) -> str:
        """The program as Python that runs by itself."""
        dtypes = {**{n: f"jnp.{t.dtype.name}" for n, t in {**NARROW, **FIXED}.items()}}
        used = [n for n in dtypes if re.search(rf"\b{n}\b", " ".join(line.text for line in self.lines))]
        names = "".join(f"{n} = {dtypes[n]}\n" for n in used)
        data = "".join(f"{a.value.name} = {_shown(a)}\n" for a in self.arguments)
        body = "".join(f"    {line.value.name} = {line.text}\n" for line in self.lines)
        outputs = ", ".join(
            v.name if _stored(v.dtype) == v.dtype else f"{v.name}.astype({NUMPY[_stored(v.dtype)]})"
            for v in self.outputs
        )
        parameters = ", ".join(a.value.name for a in self.arguments)
        random_data = "R = np.random.default_rng\n" if "R(" in data else ""
        return f"{HEAD}{names}{random_data}{data}\ndef function({parameters}):\n{body}    return {outputs}\n"

    def without(self, name: str, data: str) -> Program:
        """The program whose line `name` has become an argument with this data, without what nobody needs then."""
        at = next(i for i, line in enumerate(self.lines) if line.value.name == name)
        given = Argument(self.lines[at].value, data)
        kept = self.lines[:at] + self.lines[at + 1 :]
        return replace(self, arguments=(*self.arguments, given), lines=kept).pruned()

    def pruned(self) -> Program:
        """The program without lines and arguments that no output needs."""
        needed, lines = {v.name for v in self.outputs}, list[Line]()
        for line in reversed(self.lines):
            if line.value.name in needed:
                lines.append(line)
                needed |= set(NAME.findall(line.text))
        arguments = tuple(a for a in self.arguments if a.value.name in needed)
        return replace(self, arguments=arguments, lines=tuple(reversed(lines)))


NUMPY = {"f32": "jnp.float32", "i32": "jnp.int32", "bool": "bool"}


def _stored(dtype: str) -> str:
    """The dtype that leaves the program."""
    return "f32" if dtype in FLOATS else "i32" if dtype in FIXED else "bool"


def _shown(argument: Argument) -> str:
    dtype = {"bool": "bool"}.get(
        argument.value.dtype, f"np.{np.dtype(NAMES.get(argument.value.dtype, np.float32)).name}"
    )
    return f"np.asarray({argument.text}, {dtype})"


@dataclass
class Draw:
    """A program in the making: what has been drawn so far, and the generator."""

    rng: random.Random
    arguments: list[Argument] = field(default_factory=list[Argument])
    lines: list[Line] = field(default_factory=list[Line])
    count: int = 0

    def shape(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        """A shape of some rank from `least` to `most`."""
        while True:
            rank = self.rng.choice([r for r in (0, 1, 1, 2, 2, 2, 3, 3, 4) if least <= r <= most])
            found = tuple(self.length() for _ in range(rank))
            if math.prod(found) <= MOST_ELEMENTS:
                return found

    def length(self) -> int:
        return self.rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 9)) if self.rng.random() < 0.6 else self.rng.choice(LENGTHS)

    def argument(self, shape: Sequence[int], dtype: str, text: str | None = None) -> Value:
        """A new argument of f32, i32 or bool."""
        value = Value(self.fresh(), tuple(shape), dtype)
        self.arguments.append(Argument(value, text or self._data(tuple(shape), dtype)))
        return value

    def operand(self, shape: Sequence[int], dtype: str) -> str:
        """A new argument, cast to any dtype."""
        if dtype in ("f32", "i32", "bool"):
            return self.argument(shape, dtype).name
        return f"{self.argument(shape, 'f32' if dtype in FLOATS else 'i32').name}.astype({dtype})"

    def indices(self, shape: Sequence[int], extent: int, out: bool = True) -> str:
        """Indices into `extent` elements, some of them negative or out of bounds where `out` says so."""
        low, high = (0, extent) if not out or self.rng.random() < 0.7 else (-extent - 2, extent + 2)
        return self.argument(shape, "i32", f"R({self.seed()}).integers({low}, {high}, {tuple(shape)})").name

    def seed(self) -> int:
        return self.rng.randrange(1000)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count - 1}"

    def _data(self, shape: tuple[int, ...], dtype: str) -> str:
        pick, r = self.rng.random(), f"R({self.seed()})"
        if dtype == "bool":
            return f"{r}.random({shape}) < {self.rng.choice((0.1, 0.5, 0.9))}"
        if dtype == "i32":
            if pick < 0.1:
                return (
                    f"{r}.choice([-2**31, 2**31 - 1, -65536, -129, -128, -1, 0, 1, 2, 31, 32, 127, 128, 255], {shape})"
                )
            return f"{r}.integers({'-9, 10' if pick < 0.7 else '-1000, 1001'}, {shape})"
        if pick < 0.06:
            return f"{r}.choice([0.0, -0.0, 1, -1, 0.5, np.inf, -np.inf, np.nan, 1e18, 1e-30], {shape})"
        if pick < 0.2:
            return f"{r}.integers(-3, 4, {shape})"
        return f"{r}.standard_normal({shape})" + (" * 50" if pick > 0.92 else "")

    def values(self) -> list[Value]:
        return [a.value for a in self.arguments] + [line.value for line in self.lines]

    def of(self, text: str, extra: Sequence[Value] = ()) -> Value:
        """The type of an expression; raises NoFit where JAX refuses it or it is too large."""
        known = {v.name: v for v in [*self.values(), *extra]}
        reads = [known[name] for name in sorted(set(NAME.findall(text)) & set(known))]
        forms = [jax.ShapeDtypeStruct(v.shape, {**NAMES, **NARROW}[v.dtype]) for v in reads]
        code = compile(text, "line", "eval")

        def run(*arrays: Any) -> Any:
            return jnp.asarray(
                eval(code, {**NAMES, **NARROW, **dict(zip((v.name for v in reads), arrays, strict=True))})
            )

        try:
            form = jax.eval_shape(run, *forms)
        except (TypeError, ValueError, NotImplementedError, IndexError, ZeroDivisionError, AssertionError) as error:
            raise NoFit(str(error)) from error
        dtype = DTYPE_NAMES.get(np.dtype(form.dtype))
        if dtype is None or math.prod(form.shape) > MOST_ELEMENTS or len(form.shape) > 5 or 0 in form.shape:
            raise NoFit(f"{form}")
        return Value("", form.shape, dtype)
