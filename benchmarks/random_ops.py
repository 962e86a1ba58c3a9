"""`draw(seed)`: the random program of a seed; and the expressions that it is drawn from.

A function here takes the Draw and a Value and returns an expression; it raises NoFit where the value does not suit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from random_programs import FIXED, NAME, Draw, Line, NoFit, Program, Value

Op = Callable[[Draw, Value], str]


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


# elementwise

SMOOTH = (
    "jnp.sin({x})", "jnp.cos({x})", "jnp.tanh({x})", "jnp.exp(jnp.clip({x}, -9, 5))", "jnp.exp(-jnp.abs({x}))",
    "jnp.log(jnp.abs({x}) + 0.1)", "jnp.sqrt(jnp.abs({x}) + 0.01)", "lax.rsqrt(jnp.abs({x}) + 0.1)", "jnp.square({x})",
    "1 / (1 + {x} * {x})", "jax.nn.gelu({x})", "jax.nn.sigmoid({x})", "jax.nn.silu({x})", "jax.nn.softplus({x})",
    "lax.erf({x})", "jnp.log1p(jnp.abs({x}))", "jnp.expm1(jnp.minimum({x}, 4))", "{x} ** 3", "jnp.arctan({x})",
    "jnp.sinh(jnp.clip({x}, -4, 4))", "(jnp.abs({x}) + 0.1) ** 1.5", "jnp.cbrt(jnp.abs({x}) + 0.5)", "{x} * 0.5 + 1",
    "jax.nn.relu({x})", "jnp.abs({x})", "jnp.clip({x}, -0.5, 0.75)", "jnp.where({x} > 0, {x}, 0.1 * {x})", "-{x}",
    "jnp.logaddexp({x}, 0.5)", "jax.nn.gelu({x}, approximate=False)", "jnp.exp2(jnp.clip({x}, -9, 5))", "jnp.arctan2({x}, 1.5)",
)  # fmt: skip
STEPS = (
    "jnp.sign({x})", "jnp.floor({x})", "jnp.ceil({x})", "jnp.round({x})", "jnp.trunc({x})", "jnp.nan_to_num({x})",
    "jnp.isnan({x})", "jnp.isfinite({x})", "{x} > 0.25", "{x} == jnp.round({x})", "jnp.signbit({x})", "jnp.exp({x})",
    "jnp.log({x})", "1 / {x}", "jnp.sqrt({x})", "jnp.heaviside({x}, 0.5)", "{x} % 2", "{x} // 3",
)  # fmt: skip
WHOLE = (
    "-{x}", "jnp.abs({x})", "jnp.sign({x})", "{x} >> 1", "{x} << 3", "{x} // 3", "{x} % 3", "{x} // -7", "{x} % 5", "{x} & 5",
    "{x} | 9", "{x} ^ 21", "~{x}", "lax.population_count({x})", "lax.clz({x})", "{x} ** 2", "jnp.clip({x}, 1, 7)",
    "{x} * 3 + 1", "{x} > 2", "{x} == 1", "{x} != 0", "lax.shift_right_logical({x}, jnp.ones_like({x}))",
)  # fmt: skip
BITS = ("~{x}", "jnp.logical_not({x})", "jnp.where({x}, 2.5, -1.0)", "jnp.where({x}, 3, 4)", "{x} ^ True")
PAIRS = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / (jnp.abs({y}) + 0.5)", "jnp.maximum({x}, {y})", "jnp.minimum({x}, {y})",
    "jnp.where({x} > {y}, {x}, {y})", "jnp.hypot({x}, {y})", "jnp.arctan2({x}, {y})", "{y} - {x}", "({x} - {y}) ** 2",
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
    "lax.rem({x}, jnp.broadcast_to({y}, {x}.shape))", "jnp.maximum({x}, {y})", "jnp.minimum({x}, {y})", "{x} & {y}", "{x} | {y}",
    "{x} ^ {y}", "{x} << {y}", "{x} >> {y}", "{x} < {y}", "{x} >= {y}", "{x} == {y}", "{x} / {y}",
)  # fmt: skip
PAIRS_OF_BITS = (
    "{x} & {y}",
    "{x} | {y}",
    "{x} ^ {y}",
    "jnp.where({x}, {y}, ~{x})",
    "{x} == {y}",
    "jnp.logical_or({x}, {y})",
)


def unary(d: Draw, x: Value) -> str:
    texts = BITS if x.dtype == "bool" else WHOLE if x.integers else STEPS if d.rng.random() < 0.2 else SMOOTH
    return d.rng.choice(texts).format(x=x.name)


def smooth(d: Draw, name: str) -> str:
    return d.rng.choice(SMOOTH).format(x=name)


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


# shapes


def slices(d: Draw, x: Value) -> str:
    parts: list[str] = []
    for n in x.shape:
        start, stop, step = d.rng.randrange(n), 0, d.rng.choice((1, 1, 2, 3))
        stop = d.rng.randint(start + 1, n)
        parts.append(d.rng.choice((":", f"{start}:{stop}:{step}", f"{start}:{stop}", "::-1", f"{start}:")))
    return f"{x.name}[{', '.join(parts) or '...'}]"


def reshape(d: Draw, x: Value) -> str:
    shape, left = [], x.size
    for _ in range(d.rng.randint(0, 3)):
        divisor = d.rng.choice([k for k in range(1, min(left, 64) + 1) if left % k == 0])
        shape.append(divisor)
        left //= divisor
    shape.append(left)
    d.rng.shuffle(shape)
    return f"{x.name}.reshape({tuple(shape)})"


def transpose(d: Draw, x: Value) -> str:
    need(x.rank > 1)
    return f"jnp.transpose({x.name}, {tuple(d.rng.sample(range(x.rank), x.rank))})"


def concatenate(d: Draw, x: Value) -> str:
    axis, parts = axis_of(d, x), [x.name]
    for _ in range(d.rng.randint(1, 2)):
        shape = list(x.shape)
        shape[axis] = d.rng.randint(1, 5)
        parts.append(d.rng.choice((d.operand(shape, x.dtype), f"{x.name}[::-1]" if axis == 0 else x.name)))
    d.rng.shuffle(parts)
    return f"jnp.concatenate([{', '.join(parts)}], {axis})"


def stack(d: Draw, x: Value) -> str:
    return f"jnp.stack([{x.name}, {d.operand(x.shape, x.dtype)}], {d.rng.randint(0, x.rank)})"


def pad(d: Draw, x: Value) -> str:
    need(x.rank > 0)
    if d.rng.random() < 0.4:
        widths = tuple((d.rng.randint(0, 3), d.rng.randint(0, 3)) for _ in x.shape)
        mode = d.rng.choice(("constant", "edge", "wrap", "reflect", "symmetric"))
        return f"jnp.pad({x.name}, {widths}, mode='{mode}')"
    widths = tuple((d.rng.randint(-1, 3), d.rng.randint(-1, 3), d.rng.choice((0, 0, 1, 2))) for _ in x.shape)
    value = "False" if x.dtype == "bool" else d.rng.choice(("0", "1"))
    return f"lax.pad({x.name}, jnp.asarray({value}, {x.name}.dtype), {widths})"


def arrange(d: Draw, x: Value) -> str:
    axis, n = axis_of(d, x), x.name
    k, length = d.rng.randint(-5, 5), x.shape[axis]
    choices = [
        f"jnp.roll({n}, {k}, {axis})", f"jnp.flip({n}, {axis})", f"jnp.repeat({n}, {d.rng.randint(2, 3)}, {axis})",
        f"jnp.tile({n}, {tuple(d.rng.choice((1, 2, 3)) for _ in x.shape)})", f"jnp.expand_dims({n}, {axis})",
        f"jnp.broadcast_to({n}, {(d.rng.randint(1, 4), *x.shape)})", f"jnp.moveaxis({n}, {axis}, 0)",
        f"jnp.split({n}, {[max(1, length // 2)]}, {axis})[0]", f"jnp.delete({n}, {d.rng.randrange(length)}, {axis})",
        f"jnp.squeeze({n})", f"jnp.ravel({n})", f"jnp.atleast_2d({n}).T", f"jnp.diff({n}, axis={axis})",
    ]  # fmt: skip
    if x.rank > 1:
        choices += [
            f"jnp.tril({n}, {k})",
            f"jnp.triu({n}, {k})",
            f"jnp.diagonal({n})",
            f"jnp.rot90({n})",
            f"jnp.trace({n})",
        ]
    return d.rng.choice(choices)


# gathers and scatters


def gather(d: Draw, x: Value) -> str:
    axis, n = axis_of(d, x), x.name
    length = x.shape[axis]
    rows = d.rng.choice(((d.length(),), (d.length(),), (d.length(),), (d.rng.randint(1, 5), d.rng.randint(1, 5)), ()))
    mode = d.rng.choice(("clip", "wrap", "fill"))
    before = ":, " * axis
    choices = [
        lambda: f"{n}[{before}{d.indices(rows, length)}]",
        lambda: f"{n}[{before}{d.indices(rows, length)}]",
        lambda: f"jnp.take({n}, {d.indices(rows, length)}, axis={axis}, mode='{mode}')",
        lambda: (
            f"{n}.at[{before}{d.indices(rows, length)}].get(mode='{d.rng.choice(('clip', 'fill', 'promise_in_bounds'))}')"
        ),
        lambda: f"{n}[{before}jnp.arange({d.rng.randint(1, length)})]",
        lambda: f"lax.dynamic_index_in_dim({n}, {d.indices((), length)}, {axis})",
    ]
    shape = list(x.shape)
    shape[axis] = d.rng.randint(1, 9)
    choices.append(lambda: f"jnp.take_along_axis({n}, {d.indices(shape, length)}, {axis})")
    if x.rank > 1:
        choices += [
            lambda: f"{n}[{d.indices(rows, x.shape[0])}, {d.indices(rows, x.shape[1])}]",
            lambda: f"{n}[jnp.arange({x.shape[0]}), {d.indices((x.shape[0],), x.shape[1])}]",
            lambda: f"{n}[{d.indices(rows, x.shape[0])}, 0:{d.rng.randint(1, x.shape[1])}]",
        ]
    ints = [v for v in d.values() if v.integers and 0 < v.rank < 3 and v.size < 200]
    if ints:
        i = d.rng.choice(ints).name
        choices += [
            lambda: f"{n}[{before}{i} % {min(length, 100)}]",
            lambda: f"jnp.take({n}, {i}, axis={axis}, mode='clip')",
        ]
    found = d.rng.choice(choices)()
    if "promise_in_bounds" in found:  # what is out of bounds then is anything
        raise NoFit
    return found


def dynamic(d: Draw, x: Value) -> str:
    need(x.rank > 0)
    sizes = tuple(d.rng.randint(1, n) for n in x.shape)
    starts = ", ".join(d.indices((), n) for n in x.shape)
    if d.rng.random() < 0.5:
        return f"lax.dynamic_slice({x.name}, ({starts},), {sizes})"
    return f"lax.dynamic_update_slice({x.name}, {d.operand(sizes, x.dtype)}, ({starts},))"


def scatter(d: Draw, x: Value) -> str:
    need(x.dtype != "bool")
    axis, n = axis_of(d, x), x.name
    length = x.shape[axis]
    how = d.rng.choice(("set", "add", "add", "max", "min", "multiply"))
    rows = d.length()
    if how == "set":  # which of several wins is not defined
        rows = min(rows, length)
        i = d.argument((rows,), "i32", f"R({d.seed()}).permutation({length})[:{rows}]").name
    else:
        i = d.indices((rows,), length)
    mode = d.rng.choice(("", "", ", mode='drop'", ", mode='clip'" if how != "set" else ""))
    if x.rank > 1 and axis == 0 and d.rng.random() < 0.4:
        j = d.rng.randrange(x.shape[1])
        stop = d.rng.randint(j + 1, x.shape[1])
        if d.rng.random() < 0.5:
            return f"{n}.at[{i}, {j}:{stop}].{how}({d.operand((rows, stop - j, *x.shape[2:]), x.dtype)}{mode})"
        k = d.indices((rows,), x.shape[1], out=how != "set")
        return f"{n}.at[{i}, {k}].{how}({d.operand((rows, *x.shape[2:]), x.dtype)}{mode})"
    shape = (*x.shape[:axis], rows, *x.shape[axis + 1 :])
    updates = d.rng.choice((d.operand(shape, x.dtype), "2"))
    return f"{n}.at[{':, ' * axis}{i}].{how}({updates}{mode})"


def segment(d: Draw, x: Value) -> str:
    need(x.rank > 0 and x.dtype != "bool")
    count = d.rng.randint(1, 12)
    kind = d.rng.choice(("sum", "sum", "max", "min", "prod"))
    return f"jax.ops.segment_{kind}({x.name}, {d.indices((x.shape[0],), count, out=False)}, {count})"


def put_slice(d: Draw, x: Value) -> str:
    need(x.rank > 0 and x.dtype != "bool")
    start = d.rng.randrange(x.shape[0])
    stop, how = d.rng.randint(start + 1, x.shape[0]), d.rng.choice(("set", "add", "max", "multiply"))
    return f"{x.name}.at[{start}:{stop}:{d.rng.choice((1, 2))}].{how}(2)"


# reductions


def reduction(d: Draw, x: Value) -> str:
    axes, keep = axes_of(d, x), d.rng.random() < 0.3
    if x.dtype == "bool":
        kind = d.rng.choice(("any", "all", "sum"))
    else:
        kind = d.rng.choice(
            (
                "sum",
                "sum",
                "max",
                "min",
                "mean",
                "prod",
                "var",
                "std",
                "any",
                "all",
                "logsumexp",
                "ptp",
                "count_nonzero",
            )
        )
    if kind == "logsumexp":
        need(x.floats)
        return f"jax.nn.logsumexp({x.name}, axis={axes}, keepdims={keep})"
    return f"jnp.{kind}({x.name}, axis={axes}, keepdims={keep})"


def extreme(d: Draw, x: Value) -> str:
    need(x.dtype != "bool")
    kind = d.rng.choice(("argmax", "argmin"))
    where = f", {axis_of(d, x)}" if d.rng.random() < 0.8 else ""
    return f"jnp.{kind}({x.name}{where})"


def cumulative(d: Draw, x: Value) -> str:
    axis = axis_of(d, x)
    need(x.shape[axis] <= 129)
    kind = d.rng.choice(("jnp.cumsum", "jnp.cumsum", "jnp.cumprod", "lax.cummax", "lax.cummin", "lax.cumlogsumexp"))
    need(x.dtype != "bool" and (x.floats or kind != "lax.cumlogsumexp"))
    reverse = ", reverse=True" if kind.startswith("lax") and d.rng.random() < 0.5 else ""
    return f"{kind}({x.name}, {axis}{reverse})"


def normalise(d: Draw, x: Value) -> str:
    need(x.floats)
    axis, n = axis_of(d, x), x.name
    return d.rng.choice(
        (
            f"jax.nn.softmax({n}, {axis})",
            f"jax.nn.log_softmax({n}, {axis})",
            f"({n} - jnp.mean({n}, {axis}, keepdims=True)) * lax.rsqrt(jnp.var({n}, {axis}, keepdims=True) + 0.01)",
            f"{n} * lax.rsqrt(jnp.mean({n} * {n}, {axis}, keepdims=True) + 0.01)",
            f"jax.nn.standardize({n}, {axis}, epsilon=0.01)",
            f"{n} / (jnp.sum(jnp.abs({n}), {axis}, keepdims=True) + 0.1)",
            f"jnp.sum({n} == jnp.max({n}, {axis}, keepdims=True), {axis})",
        )
    )


# products and windows


def product(d: Draw, x: Value) -> str:
    need(x.rank > 0 and x.dtype != "bool")
    n, columns = x.name, d.length()
    if x.rank == 1:
        return d.rng.choice(
            (
                f"jnp.dot({n}, {d.operand(x.shape, x.dtype)})",
                f"jnp.outer({n}, {d.operand((columns,), x.dtype)})",
                f"{n} @ {d.operand((*x.shape, columns), x.dtype)}",
            )
        )
    if x.rank == 2:
        y = d.operand((x.shape[1], columns), x.dtype)
        wide = (
            f"lax.dot_general({n}, {y}, (((1,), (0,)), ((), ())), preferred_element_type=f32)"
            if x.floats
            else f"{n} @ {y}"
        )
        return d.rng.choice(
            (
                f"{n} @ {y}",
                f"{n}.T @ {d.operand((x.shape[0], columns), x.dtype)}",
                f"{n} @ {n}.T",
                wide,
                f"jnp.einsum('ij,kj->ki', {n}, {d.operand((columns, x.shape[1]), x.dtype)})",
                f"{n} @ {d.operand((x.shape[1],), x.dtype)}",
            )
        )
    if x.rank == 3:
        b, i, j = x.shape
        return d.rng.choice(
            (
                f"{n} @ {d.operand((b, j, columns), x.dtype)}",
                f"{n} @ {d.operand((j, columns), x.dtype)}",
                f"jnp.einsum('bij,bkj->bik', {n}, {d.operand((b, columns, j), x.dtype)})",
                f"jnp.einsum('bij,bij->bi', {n}, {d.operand(x.shape, x.dtype)})",
                f"jnp.einsum('bij,ik->kbj', {n}, {d.operand((i, columns), x.dtype)})",
            )
        )
    b, q, h, k = (*x.shape, 1)[:4]
    need(x.rank == 4)
    return f"jnp.einsum('bqhd,bkhd->bhqk', {n}, {d.operand((b, d.rng.randint(1, 7), h, k), x.dtype)})"


def window(d: Draw, x: Value) -> str:
    need(0 < x.rank <= 4 and x.dtype != "bool")
    sizes = tuple(d.rng.randint(1, min(n, 4)) if d.rng.random() < 0.7 else 1 for n in x.shape)
    strides = tuple(d.rng.choice((1, 1, 2, 3)) if s > 1 else 1 for s in sizes)
    dilation = tuple(d.rng.choice((1, 1, 1, 2)) for _ in sizes)
    base = tuple(d.rng.choice((1, 1, 1, 1, 1, 2)) for _ in sizes)
    explicit = tuple((d.rng.randint(0, 2), d.rng.randint(0, 2)) if s > 1 else (0, 0) for s in sizes)
    padding = d.rng.choice(("'SAME'", "'VALID'", str(explicit)))
    kind = d.rng.choice(("lax.max", "lax.max", "lax.add", "lax.add", "lax.min", "lax.mul"))
    start = {"lax.add": "0", "lax.mul": "1"}.get(kind)
    if start is None:
        edge = "max" if kind == "lax.min" else "min"
        start = ("-jnp.inf" if edge == "min" else "jnp.inf") if x.floats else f"jnp.iinfo({x.dtype}).{edge}"
    extra = f", base_dilation={base}, window_dilation={dilation}" if d.rng.random() < 0.3 else ""
    return f"lax.reduce_window({x.name}, jnp.asarray({start}, {x.name}.dtype), {kind}, {sizes}, {strides}, {padding}{extra})"


def convolution(d: Draw, x: Value) -> str:
    need(x.floats)
    space = x.rank - 2
    if not 1 <= space <= 2:
        space = d.rng.choice((1, 2, 2))
        shape = (d.rng.randint(1, 3), *(d.rng.randint(1, 11) for _ in range(space)), d.rng.choice((1, 2, 3, 4, 6, 8)))
        x = d.argument(shape, "f32")
    channels, letters = x.shape[-1], "HW"[:space]
    need(channels <= 16)
    groups = d.rng.choice([g for g in (1, 1, 1, 2, 3, channels) if channels % g == 0])
    out = groups * d.rng.randint(1, 4)
    kernel = tuple(d.rng.randint(1, 4) for _ in range(space))
    strides = tuple(d.rng.choice((1, 1, 2, 3)) for _ in range(space))
    explicit = [(d.rng.randint(0, 3), d.rng.randint(0, 3)) for _ in range(space)]
    padding = d.rng.choice(("'SAME'", "'SAME'", "'VALID'", str(explicit)))
    extra = f", rhs_dilation={tuple(d.rng.choice((1, 2)) for _ in range(space))}" if d.rng.random() < 0.25 else ""
    extra += f", lhs_dilation={tuple(d.rng.choice((1, 2)) for _ in range(space))}" if d.rng.random() < 0.2 else ""
    w = d.operand((*kernel, channels // groups, out), x.dtype)
    names = f"('N{letters}C', '{letters}IO', 'N{letters}C')"
    if d.rng.random() < 0.2:
        batch = ", ".join(str(i) for i in (0, space + 1, *range(1, space + 1)))
        names = f"('NC{letters}', '{letters}IO', 'N{letters}C')"
        return f"lax.conv_general_dilated(jnp.transpose({x.name}, ({batch})), {w}, {strides}, {padding}, dimension_numbers={names}, feature_group_count={groups}{extra})"
    return f"lax.conv_general_dilated({x.name}, {w}, {strides}, {padding}, dimension_numbers={names}, feature_group_count={groups}{extra})"


def image(d: Draw) -> Value:
    shape = (d.rng.randint(1, 3), d.rng.randint(1, 11), d.rng.randint(1, 11), d.rng.randint(1, 6))
    return d.argument(shape, "f32")


def pool(d: Draw, x: Value) -> str:
    if x.rank != 4 or not x.floats:
        x = image(d)
    size, stride = d.rng.randint(1, 3), d.rng.randint(1, 3)
    padding = d.rng.choice(("'SAME'", "'VALID'"))
    kind = d.rng.choice((f"jnp.asarray(-jnp.inf, {x.name}.dtype), lax.max", f"jnp.asarray(0, {x.name}.dtype), lax.add"))
    return f"lax.reduce_window({x.name}, {kind}, (1, {size}, {size}, 1), (1, {stride}, {stride}, 1), {padding})"


# control flow and gradients


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
    return f"lax.scan(lambda a, b: (lambda c: (c, {out}))(({step}).astype({x.name}.dtype)), {start}, {x.name}, reverse={reverse})[{which}]"


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
    binary, select, slices, reshape, transpose, concatenate, pad, arrange, gather, gather, dynamic, scatter, scatter, segment,
    reduction, reduction, cumulative, normalise, product, product, window, convolution, convolution, pool, pool, branch, scan, vmapped,
    put_slice, unary,
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


def sorting(d: Draw, x: Value) -> str:
    axis = axis_of(d, x)
    need(x.dtype != "bool")
    return d.rng.choice(
        (
            f"jnp.sort({x.name}, {axis})",
            f"jnp.argsort({x.name}, {axis})",
            f"lax.top_k({x.name}, 1)[0]",
            f"jnp.median({x.name}, {axis})",
        )
    )


def made(d: Draw, x: Value) -> str:
    """Values that come from an index: iota, one_hot, masks."""
    axis, n = axis_of(d, x), x.name
    length = x.shape[axis]
    choices = [
        f"{n}.astype(f32) * lax.broadcasted_iota(f32, {x.shape}, {axis})",
        f"jnp.where(lax.broadcasted_iota(i32, {x.shape}, {axis}) < {d.rng.randint(0, length)}, {n}, 0)",
        f"jnp.linspace(0, 1, {length})[{d.indices((3,), length)}]",
    ]
    if x.integers and x.size < 200:
        choices.append(f"jax.nn.one_hot({n}, {d.rng.randint(1, 12)})")
    return d.rng.choice(choices)


OPS: tuple[tuple[Op, float], ...] = (
    (unary, 3), (binary, 3), (cast, 1.6), (select, 1), (slices, 1), (reshape, 0.8), (transpose, 0.8), (concatenate, 0.8), (stack, 0.4),
    (pad, 0.8), (arrange, 1.2), (gather, 2), (dynamic, 0.8), (scatter, 1.6), (segment, 0.5), (put_slice, 0.4), (reduction, 2.4),
    (extreme, 0.7), (cumulative, 0.6), (normalise, 1), (product, 1.6), (window, 0.8), (convolution, 1.2), (pool, 0.6), (branch, 0.5),
    (loop, 0.5), (scan, 0.5), (associative, 0.2), (vmapped, 1), (gradient, 3), (sorting, 0.15), (made, 0.5),
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
