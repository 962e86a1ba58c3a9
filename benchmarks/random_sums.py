"""Expressions for random programs that join elements: reductions, products, windows."""

from __future__ import annotations

from random_elementwise import axes_of, axis_of, need
from random_programs import Draw, Value


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
    need(x.rank == 4)
    b, _, h, k = x.shape
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
    start = f"jnp.asarray({start}, {x.name}.dtype)"
    return f"lax.reduce_window({x.name}, {start}, {kind}, {sizes}, {strides}, {padding}{extra})"


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
    names, images = f"('N{letters}C', '{letters}IO', 'N{letters}C')", x.name
    if d.rng.random() < 0.2:
        order = ", ".join(str(i) for i in (0, space + 1, *range(1, space + 1)))
        names, images = f"('NC{letters}', '{letters}IO', 'N{letters}C')", f"jnp.transpose({x.name}, ({order}))"
    rest = f"dimension_numbers={names}, feature_group_count={groups}{extra}"
    return f"lax.conv_general_dilated({images}, {w}, {strides}, {padding}, {rest})"


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
