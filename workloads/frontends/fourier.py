"""Fourier transforms as products with constant matrices, on a real and an imaginary part.

Lengths up to `DIRECT` are one product; longer ones are split by a divisor (Cooley and Tukey 1965); what has none is a
convolution with a chirp (Bluestein 1970).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxlib.mlir import ir

from workloads.frontends.ops import constant, create, shape, splat, tensor

DIRECT = 64
Pair = tuple[Any, Any]  # real and imaginary part


def transform(kind: str, lengths: tuple[int, ...], real: Any, imaginary: Any | None) -> list[Any]:
    """The parts of an FFT, IFFT, RFFT or IRFFT over the last dimensions: two, or one that is real."""
    rank = len(shape(real))
    others = range(rank - len(lengths), rank - 1)
    if kind == "RFFT":
        parts = _half(_along(real, None, rank - 1, -1), lengths[-1] // 2 + 1)
        for d in others:
            parts = _along(*parts, d, -1)
        return list(parts)
    assert imaginary is not None
    sign = 1 if kind in ("IFFT", "IRFFT") else -1
    parts = real, imaginary
    for d in others:
        parts = _along(*parts, d, sign)
    if kind == "IRFFT":
        parts = _mirrored(parts, lengths[-1])
    parts = _along(*parts, rank - 1, sign)
    if sign > 0:
        parts = _scaled(parts, 1 / float(np.prod(lengths)))
    return [parts[0]] if kind == "IRFFT" else list(parts)


def _along(real: Any, imaginary: Any | None, d: int, sign: int) -> Pair:
    """The transform along dimension `d`, without the factor of an inverse."""
    order = [k for k in range(len(shape(real))) if k != d] + [d]
    moved = [None if x is None else _transpose(x, order) for x in (real, imaginary)]
    back = [order.index(k) for k in range(len(order))]
    re, im = _last(moved[0], moved[1], sign)
    return _transpose(re, back), _transpose(im, back)


def _last(re: Any, im: Any | None, sign: int) -> Pair:
    """The transform along the last dimension."""
    *batch, n = shape(re)
    if n <= DIRECT:
        return _product(re, im, _roots(np.outer(range(n), range(n)), n, sign))
    first = max(k for k in range(1, DIRECT + 1) if n % k == 0)
    if first == 1:
        return _chirp(re, im if im is not None else splat(0, re.type), sign)
    second = n // first
    rank = len(batch)
    swap = [*range(rank), rank + 1, rank]

    def fold(x: Any) -> Any:
        return _transpose(_reshape(x, (*batch, first, second)), swap)

    re, im = _last(fold(re), None if im is None else fold(im), sign)
    turned = _times(re, im, _roots(np.outer(range(second), range(first)), n, sign))
    re, im = _last(_transpose(turned[0], swap), _transpose(turned[1], swap), sign)
    return _reshape(_transpose(re, swap), (*batch, n)), _reshape(_transpose(im, swap), (*batch, n))


def _chirp(re: Any, im: Any, sign: int) -> Pair:
    """The transform of any length n as a convolution of 2^k >= 2n - 1 places, by transforms of that length."""
    n = shape(re)[-1]
    size = 1 << (2 * n - 2).bit_length()
    chirp = np.exp(sign * 1j * np.pi * (np.arange(n) ** 2 % (2 * n)) / n)
    kernel = np.zeros(size, complex)
    kernel[:n] = chirp.conj()
    kernel[size - n + 1 :] = chirp.conj()[1:][::-1]
    re, im = _times(re, im, chirp)
    re, im = _last(_pad(re, size - n), _pad(im, size - n), -1)
    parts = _last(*_times(re, im, np.fft.fft(kernel) / size), 1)
    return _times(*_half(parts, n), chirp)


def _roots(turns: Any, n: int, sign: int) -> Any:
    """e^(sign 2 pi i turns / n)."""
    return np.exp(sign * 2j * np.pi * (turns % n) / n)


def _product(re: Any, im: Any | None, matrix: Any) -> Pair:
    """[..., n] times a complex constant of n x m."""
    cosine, sine = _constant(matrix.real, re), _constant(matrix.imag, re)
    if im is None:
        return _dot(re, cosine), _dot(re, sine)
    return _subtract(_dot(re, cosine), _dot(im, sine)), _add(_dot(re, sine), _dot(im, cosine))


def _times(re: Any, im: Any, factors: Any) -> Pair:
    """Elementwise product with a complex constant over the last dimensions."""
    rank, own = len(shape(re)), factors.ndim
    dims = ir.DenseI64ArrayAttr.get(list(range(rank - own, rank)))
    a, b = (
        create("stablehlo.broadcast_in_dim", [_constant(part, re)], re.type, broadcast_dimensions=dims)
        for part in (factors.real, factors.imag)
    )
    return _subtract(_multiply(re, a), _multiply(im, b)), _add(_multiply(re, b), _multiply(im, a))


def _mirrored(parts: Pair, n: int) -> Pair:
    """All n values of the transform of something real, from the first n // 2 + 1 of them."""
    re, im = _half(parts, n // 2 + 1)
    rest = [_reversed(_slice(x, 1, (n + 1) // 2)) for x in (re, im)] if n > 2 else []
    if not rest:
        return re, im
    return _join(re, rest[0]), _join(im, create("stablehlo.negate", [rest[1]], rest[1].type))


def _half(parts: Pair, count: int) -> Pair:
    return _slice(parts[0], 0, count), _slice(parts[1], 0, count)


def _scaled(parts: Pair, factor: float) -> Pair:
    re, im = (_multiply(x, splat(factor, x.type)) for x in parts)
    return re, im


def _of(x: Any, sizes: tuple[int, ...]) -> Any:
    return ir.RankedTensorType.get(sizes, tensor(x).element_type)


def _constant(values: Any, x: Any) -> Any:
    """A constant with the elements of `x`'s type."""
    kind = np.float64 if str(tensor(x).element_type) == "f64" else np.float32
    return constant(values.astype(kind))


def _dot(x: Any, matrix: Any) -> Any:
    rank = len(shape(x))
    numbers = f"lhs_contracting_dimensions = [{rank - 1}], rhs_contracting_dimensions = [0]"
    attribute = ir.Attribute.parse(f"#stablehlo.dot<{numbers}>")
    type_ = _of(x, (*shape(x)[:-1], shape(matrix)[1]))
    return create("stablehlo.dot_general", [x, matrix], type_, dot_dimension_numbers=attribute)


def _add(a: Any, b: Any) -> Any:
    return create("stablehlo.add", [a, b], a.type)


def _subtract(a: Any, b: Any) -> Any:
    return create("stablehlo.subtract", [a, b], a.type)


def _multiply(a: Any, b: Any) -> Any:
    return create("stablehlo.multiply", [a, b], a.type)


def _reshape(x: Any, sizes: tuple[int, ...]) -> Any:
    return create("stablehlo.reshape", [x], _of(x, sizes))


def _transpose(x: Any, order: list[int]) -> Any:
    if order == sorted(order):
        return x
    sizes = tuple(shape(x)[k] for k in order)
    return create("stablehlo.transpose", [x], _of(x, sizes), permutation=ir.DenseI64ArrayAttr.get(order))


def _slice(x: Any, start: int, end: int) -> Any:
    """Places `start` to `end` of the last dimension."""
    *batch, n = shape(x)
    if (start, end) == (0, n):
        return x
    bounds = {
        "start_indices": [0] * len(batch) + [start],
        "limit_indices": [*batch, end],
        "strides": [1] * len(shape(x)),
    }
    attributes = {name: ir.DenseI64ArrayAttr.get(value) for name, value in bounds.items()}
    return create("stablehlo.slice", [x], _of(x, (*batch, end - start)), **attributes)


def _pad(x: Any, count: int) -> Any:
    """Zeros after the last dimension."""
    *batch, n = shape(x)
    zero = splat(0, _of(x, ()))
    none = [0] * len(shape(x))
    sizes = {"edge_padding_low": none, "edge_padding_high": [*none[1:], count], "interior_padding": none}
    attributes = {name: ir.DenseI64ArrayAttr.get(value) for name, value in sizes.items()}
    return create("stablehlo.pad", [x, zero], _of(x, (*batch, n + count)), **attributes)


def _reversed(x: Any) -> Any:
    return create("stablehlo.reverse", [x], x.type, dimensions=ir.DenseI64ArrayAttr.get([len(shape(x)) - 1]))


def _join(a: Any, b: Any) -> Any:
    *batch, n = shape(a)
    dimension = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(batch))
    return create("stablehlo.concatenate", [a, b], _of(a, (*batch, n + shape(b)[-1])), dimension=dimension)
