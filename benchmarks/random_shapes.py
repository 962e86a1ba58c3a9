"""Expressions for random programs that move elements: slices, joins, gathers, scatters."""

from __future__ import annotations

from random_elementwise import axis_of, need
from random_programs import Draw, Value


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
        lambda: f"{n}.at[{before}{d.indices(rows, length)}].get(mode='{d.rng.choice(('clip', 'fill'))}')",
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
    return d.rng.choice(choices)()


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
