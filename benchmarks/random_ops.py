"""`draw(seed)`: the random program of a seed; and the expressions that have functions in them: loops, gradients."""

from __future__ import annotations

import random
from dataclasses import replace

from random_elementwise import Op, binary, cast, need, select, unary
from random_programs import NAME, Draw, Line, NoFit, Program, Value
from random_shapes import (
    arrange,
    concatenate,
    dynamic,
    gather,
    made,
    pad,
    put_slice,
    reshape,
    scatter,
    segment,
    slices,
    stack,
    transpose,
)  # fmt: skip
from random_sums import convolution, cumulative, extreme, normalise, pool, product, reduction, sorting, window


def keeping(d: Draw, name: str, x: Value) -> str:
    """An expression of `x`'s own shape and dtype in a local name."""
    if x.dtype == "bool":
        return d.rng.choice((f"~{name}", f"{name} ^ {x.name}", name))
    if x.integers:
        return d.rng.choice((f"{name} + 1", f"{name} * 3", f"{name} ^ {x.name}", f"jnp.maximum({name}, 2) - 1"))
    return d.rng.choice(
        (
            f"jnp.sin({name}) * 0.5",
            f"{name} * 0.5 + {x.name}",
            f"jnp.tanh({name})",
            f"{name} - 0.25",
            f"-{name}",
            f"jnp.maximum({name}, 0.1)",
        )
    )


def branch(d: Draw, x: Value) -> str:
    ones, twos = (f"lambda a: {keeping(d, 'a', x)}" for _ in range(2))
    if d.rng.random() < 0.5:
        condition = (
            f"jnp.sum({x.name}) > 0" if x.dtype != "bool" and d.rng.random() < 0.3 else d.argument((), "bool").name
        )
        return f"lax.cond({condition}, {ones}, {twos}, {x.name})"
    return (
        f"lax.switch({d.argument((), 'i32', str(d.rng.randint(-1, 4))).name}, [{ones}, {twos}, lambda a: a], {x.name})"
    )


def loop(d: Draw, x: Value) -> str:
    body, count = keeping(d, "a", x), d.rng.randint(0, 5)
    if d.rng.random() < 0.5:
        return f"lax.fori_loop(0, {count}, lambda k, a: {body}, {x.name})"
    limit = d.argument((), "i32", str(count)).name if d.rng.random() < 0.5 else str(count)
    return f"lax.while_loop(lambda s: s[0] < {limit}, lambda s: (s[0] + 1, (lambda a: {body})(s[1])), (0, {x.name}))[1]"


def scan(d: Draw, x: Value) -> str:
    need(x.rank > 0 and x.dtype != "bool" and x.shape[0] <= 65)
    start = f"jnp.zeros({x.shape[1:]}, {x.name}.dtype)"
    step = (
        d.rng.choice(("a + b", "jnp.maximum(a, b)", "a * 2 - b"))
        if x.integers
        else d.rng.choice(("jnp.tanh(a + b)", "a * 0.5 + b", "jnp.maximum(a, b)", "jnp.where(b > a, b, a * 0.9)"))
    )
    out = d.rng.choice(("c", "a", "c * 2", "c + b"))
    which, reverse = d.rng.randint(0, 1), d.rng.random() < 0.3
    body = f"lambda a, b: (lambda c: (c, {out}))(({step}).astype({x.name}.dtype))"
    return f"lax.scan({body}, {start}, {x.name}, reverse={reverse})[{which}]"


def associative(d: Draw, x: Value) -> str:
    need(x.rank > 0 and x.dtype != "bool" and x.shape[0] <= 40)
    return f"lax.associative_scan({d.rng.choice(('jnp.add', 'jnp.maximum', 'jnp.multiply'))}, {x.name})"


def vmapped(d: Draw, x: Value) -> str:
    need(x.rank > 1)
    inner = Value(d.fresh(), x.shape[1:], x.dtype)
    text = d.rng.choice((unary, reduction, gather, slices, normalise, extreme, cumulative, scatter, arrange))(d, inner)
    if d.rng.random() < 0.75:
        return f"jax.vmap(lambda {inner.name}: {text})({x.name})"
    need(x.shape[0] <= 40)
    return f"lax.map(lambda {inner.name}: {text}, {x.name})"


DIFFERENTIABLE: tuple[Op, ...] = (
    binary, select, slices, reshape, transpose, concatenate, pad, arrange, gather, gather, dynamic, scatter, scatter,
    segment, reduction, reduction, cumulative, normalise, product, product, window, convolution, convolution, pool,
    pool, branch, scan, vmapped, put_slice, unary,
)  # fmt: skip


def chain(d: Draw, x: Value, ops: tuple[Op, ...]) -> str:
    """One op of `x`, or two of which the second reads the first."""
    first = d.rng.choice(ops)(d, x)
    if d.rng.random() < 0.5:
        return first
    inner = replace(d.of(first, (x,)), name=d.fresh())
    return f"(lambda {inner.name}: {d.rng.choice(ops)(d, inner)})({first})"


def gradient(d: Draw, x: Value) -> str:
    need(x.dtype == "f32")
    before = len(d.arguments)
    text = chain(d, x, DIFFERENTIABLE)
    wanted = [x, *(a.value for a in d.arguments[before:] if a.value.dtype == "f32")]
    if x.name not in text:
        wanted = wanted[1:]
    need(bool(wanted))
    w = d.rng.choice(wanted).name
    loss = f"jnp.sum(jnp.sin(({text}).astype(f32)))" if d.rng.random() < 0.7 else f"jnp.sum(({text}).astype(f32) ** 2)"
    return f"jax.grad(lambda {w}: {loss})({w})"


OPS: tuple[tuple[Op, float], ...] = (
    (unary, 3), (binary, 3), (cast, 1.6), (select, 1), (slices, 1), (reshape, 0.8), (transpose, 0.8),
    (concatenate, 0.8), (stack, 0.4), (pad, 0.8), (arrange, 1.2), (gather, 2), (dynamic, 0.8), (scatter, 1.6),
    (segment, 0.5), (put_slice, 0.4), (reduction, 2.4), (extreme, 0.7), (cumulative, 0.6), (normalise, 1),
    (product, 1.6), (window, 0.8), (convolution, 1.2), (pool, 0.6), (branch, 0.5), (loop, 0.5), (scan, 0.5),
    (associative, 0.2), (vmapped, 1), (gradient, 3), (sorting, 0.15), (made, 0.5),
)  # fmt: skip


def draw_line(d: Draw, x: Value) -> str:
    """An expression that reads `x`, or for some kinds of window another new argument."""
    op = d.rng.choices([op for op, _ in OPS], [weight for _, weight in OPS])[0]
    return op(d, x)


def draw(seed: int) -> Program:
    """The program of a seed: one to six lines."""
    state = Draw(random.Random(f"functions {seed}"))
    for _ in range(state.rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6))):
        values = state.values()
        lines = [line.value for line in state.lines]
        for _ in range(40):
            before = len(state.arguments), state.count
            try:
                if not values or state.rng.random() < 0.15:
                    x = state.argument(state.shape(), state.rng.choice(("f32", "f32", "f32", "f32", "i32", "bool")))
                else:
                    x = state.rng.choice(lines[-2:] if lines and state.rng.random() < 0.75 else values)
                text = draw_line(state, x)
                value = replace(state.of(text), name=state.fresh())
            except NoFit:
                del state.arguments[before[0] :]
                state.count = before[1]
                continue
            state.lines.append(Line(value, text))
            break
    read = set[str]().union(*(NAME.findall(line.text) for line in state.lines))
    outputs = [line.value for line in state.lines if line.value.name not in read or state.rng.random() < 0.15]
    return Program(tuple(state.arguments), tuple(state.lines), tuple(outputs)).pruned()
