"""Elementwise expressions for random programs; and what all kinds of expressions share.

A kind is a function of the Draw and a Value that returns an expression of that value; it raises NoFit where the value
does not suit.
"""

from __future__ import annotations

from collections.abc import Callable

from random_programs import FIXED, Draw, NoFit, Value

Op = Callable[[Draw, Value], str]

SMOOTH = (
    "jnp.sin({x})", "jnp.cos({x})", "jnp.tanh({x})", "jnp.exp(jnp.clip({x}, -9, 5))", "jnp.exp(-jnp.abs({x}))",
    "jnp.log(jnp.abs({x}) + 0.1)", "jnp.sqrt(jnp.abs({x}) + 0.01)", "lax.rsqrt(jnp.abs({x}) + 0.1)", "jnp.square({x})",
    "1 / (1 + {x} * {x})", "jax.nn.gelu({x})", "jax.nn.sigmoid({x})", "jax.nn.silu({x})", "jax.nn.softplus({x})",
    "lax.erf({x})", "jnp.log1p(jnp.abs({x}))", "jnp.expm1(jnp.minimum({x}, 4))", "{x} ** 3", "jnp.arctan({x})",
    "jnp.sinh(jnp.clip({x}, -4, 4))", "(jnp.abs({x}) + 0.1) ** 1.5", "jnp.cbrt(jnp.abs({x}) + 0.5)", "{x} * 0.5 + 1",
    "jax.nn.relu({x})", "jnp.abs({x})", "jnp.clip({x}, -0.5, 0.75)", "jnp.where({x} > 0, {x}, 0.1 * {x})", "-{x}",
    "jnp.logaddexp({x}, 0.5)", "jax.nn.gelu({x}, approximate=False)", "jnp.exp2(jnp.clip({x}, -9, 5))",
    "jnp.arctan2({x}, 1.5)",
)  # fmt: skip
STEPS = (
    "jnp.sign({x})", "jnp.floor({x})", "jnp.ceil({x})", "jnp.round({x})", "jnp.trunc({x})", "jnp.nan_to_num({x})",
    "jnp.isnan({x})", "jnp.isfinite({x})", "{x} > 0.25", "{x} == jnp.round({x})", "jnp.signbit({x})", "jnp.exp({x})",
    "jnp.log({x})", "1 / {x}", "jnp.sqrt({x})", "jnp.heaviside({x}, 0.5)", "{x} % 2", "{x} // 3",
)  # fmt: skip
WHOLE = (
    "-{x}", "jnp.abs({x})", "jnp.sign({x})", "{x} >> 1", "{x} << 3", "{x} // 3", "{x} % 3", "{x} // -7", "{x} % 5",
    "{x} & 5", "{x} | 9", "{x} ^ 21", "~{x}", "lax.population_count({x})", "lax.clz({x})", "{x} ** 2",
    "jnp.clip({x}, 1, 7)", "{x} * 3 + 1", "{x} > 2", "{x} == 1", "{x} != 0",
    "lax.shift_right_logical({x}, jnp.ones_like({x}))",
)  # fmt: skip
BITS = ("~{x}", "jnp.logical_not({x})", "jnp.where({x}, 2.5, -1.0)", "jnp.where({x}, 3, 4)", "{x} ^ True")
PAIRS = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / (jnp.abs({y}) + 0.5)", "jnp.maximum({x}, {y})",
    "jnp.minimum({x}, {y})", "jnp.where({x} > {y}, {x}, {y})", "jnp.hypot({x}, {y})", "jnp.arctan2({x}, {y})",
    "{y} - {x}", "({x} - {y}) ** 2",
)  # fmt: skip
PAIRS_OF_STEPS = (
    "{x} < {y}",
    "{x} >= {y}",
    "{x} == {y}",
    "{x} != {y}",
    "jnp.fmod({x}, {y})",
    "{x} / {y}",
    "jnp.copysign({x}, {y})",
)
PAIRS_WHOLE = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} // {y}", "{x} % {y}", "lax.div({x}, jnp.broadcast_to({y}, {x}.shape))",
    "lax.rem({x}, jnp.broadcast_to({y}, {x}.shape))", "jnp.maximum({x}, {y})", "jnp.minimum({x}, {y})", "{x} & {y}",
    "{x} | {y}", "{x} ^ {y}", "{x} << {y}", "{x} >> {y}", "{x} < {y}", "{x} >= {y}", "{x} == {y}", "{x} / {y}",
)  # fmt: skip
PAIRS_OF_BITS = (
    "{x} & {y}",
    "{x} | {y}",
    "{x} ^ {y}",
    "jnp.where({x}, {y}, ~{x})",
    "{x} == {y}",
    "jnp.logical_or({x}, {y})",
)


def need(fits: bool) -> None:
    if not fits:
        raise NoFit


def axis_of(d: Draw, x: Value) -> int:
    need(x.rank > 0)
    return d.rng.randrange(x.rank)


def axes_of(d: Draw, x: Value) -> tuple[int, ...]:
    need(x.rank > 0)
    return tuple(sorted(d.rng.sample(range(x.rank), d.rng.randint(1, x.rank))))


def other(d: Draw, x: Value) -> str:
    """A second operand of `x`'s dtype: of its shape, of one that broadcasts to it, or a number."""
    alike = [v for v in d.values() if v.shape == x.shape and v.dtype == x.dtype and v.name != x.name]
    pick = d.rng.random()
    if alike and pick < 0.4:
        return d.rng.choice(alike).name
    if pick < 0.5 and x.dtype != "bool":
        return d.rng.choice(("2", "3", "-1", "7"))
    shape = [1 if d.rng.random() < 0.25 else n for n in x.shape]
    return d.operand(shape[d.rng.randint(0, len(shape)) :] if d.rng.random() < 0.2 else shape, x.dtype)


def unary(d: Draw, x: Value) -> str:
    texts = BITS if x.dtype == "bool" else WHOLE if x.integers else STEPS if d.rng.random() < 0.2 else SMOOTH
    return d.rng.choice(texts).format(x=x.name)


def binary(d: Draw, x: Value) -> str:
    texts = (
        PAIRS_OF_BITS
        if x.dtype == "bool"
        else PAIRS_WHOLE
        if x.integers
        else PAIRS_OF_STEPS
        if d.rng.random() < 0.2
        else PAIRS
    )
    return d.rng.choice(texts).format(x=x.name, y=other(d, x))


def cast(d: Draw, x: Value) -> str:
    to = d.rng.choice([t for t in ("f32", "f32", "f16", "bf16", *FIXED, "bool") if t != x.dtype])
    return f"{x.name}.astype({to})"


def select(d: Draw, x: Value) -> str:
    bits = [v for v in d.values() if v.dtype == "bool" and v.shape == x.shape]
    condition = d.rng.choice(bits).name if bits else d.argument(x.shape, "bool").name
    return f"jnp.where({condition}, {x.name}, {other(d, x)})"
