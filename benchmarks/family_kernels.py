"""The rows of `families.py`: kernels of training steps as tiny functions of JAX, NumPy and PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@dataclass(frozen=True)
class Kernel:
    """A row: the function on arrays, the same in NumPy and PyTorch where there is one, and its arithmetic."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]
    torch: Callable[..., Any] | None = None
    numpy: Callable[..., Any] | None = None
    flops: int | None = None  # None: as gevo counts it
    moved: int = 0  # bytes, where not all of an operand is touched


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def kernels() -> Iterator[Kernel]:
    yield from contractions()
    yield from elementwise()
    yield from images()
    yield from embeddings()


def contractions() -> Iterator[Kernel]:
    """The shapes of training steps: M, N, K, and which operand is stored transposed."""
    square = [(n, n, n, "") for n in (64, 256, 512, 1024)]
    steps = [(32, 128, 784, ""), (784, 128, 32, "A"), (128, 784, 32, "A"), (32, 784, 128, "B"), (64, 1024, 1024, "")]
    rest = [(64, 1024, 1024, "B"), (1024, 1024, 64, "A"), (32, 10, 128, ""), (100, 130, 70, "")]
    for m, n, k, transposed in square + steps + rest:
        a = normal(*((k, m) if transposed == "A" else (m, k)))
        b = normal(*((n, k) if transposed == "B" else (k, n)))
        dims = (((0 if transposed == "A" else 1,), (1 if transposed == "B" else 0,)), ((), ()))
        yield Kernel(
            f"matmul {m}x{n}x{k}" + (f" {transposed}^T" if transposed else ""),
            partial(lax.dot_general, dimension_numbers=dims),
            (a, b),
            torch=partial(_product, transposed, "matmul"),
            numpy=partial(_product, transposed, np.matmul),
            flops=2 * m * n * k,
        )


def _product(transposed: str, matmul: Any, a: Any, b: Any, **out: Any) -> Any:
    a, b = a.T if transposed == "A" else a, b.T if transposed == "B" else b
    return a @ b if matmul == "matmul" else matmul(a, b, **out)


def elementwise() -> Iterator[Kernel]:
    for shape in ((32, 16), (256, 512)):
        yield Kernel(f"softmax {_by(shape)}", jax.nn.softmax, (normal(*shape),), lambda x: x.softmax(-1))
    yield Kernel(
        "layernorm 256x512",
        _layernorm,
        (normal(256, 512), normal(512), normal(512)),
        lambda x, scale, shift: _torch().nn.functional.layer_norm(x, (512,), scale, shift),
    )
    for shape in ((32, 128), (512, 1024)):
        yield Kernel(
            f"gelu(x + bias) {_by(shape)}",
            lambda x, bias: jax.nn.gelu(x + bias),
            (normal(*shape), normal(shape[1])),
            lambda x, bias: _torch().nn.functional.gelu(x + bias, approximate="tanh"),
        )
    for shape in ((32, 128), (1024, 512)):
        yield Kernel(f"column sum {_by(shape)}", lambda x: x.sum(0), (normal(*shape),), lambda x: x.sum(0))
    yield Kernel("transpose 512x512", jnp.transpose, (normal(512, 512),), lambda x: x.t().contiguous())


def _layernorm(x: Any, scale: Any, shift: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift


def images() -> Iterator[Kernel]:
    """Images are NHWC; PyTorch sees them as NCHW in its channels-last form, which is the same memory."""
    for (n, h, w, inputs), outputs in (((8, 16, 16, 64), 64), ((8, 32, 32, 3), 32)):
        yield Kernel(
            f"conv3x3 {_by((n, h, w, inputs))}->{outputs}",
            partial(_convolve, groups=1),
            (normal(n, h, w, inputs), normal(3, 3, inputs, outputs)),
            partial(_torch_convolve, groups=1),
            flops=2 * n * h * w * inputs * outputs * 9,
        )
    yield Kernel(
        "depthwise3x3 8x16x16x64",
        partial(_convolve, groups=64),
        (normal(8, 16, 16, 64), normal(3, 3, 1, 64)),
        partial(_torch_convolve, groups=64),
        flops=2 * 8 * 16 * 16 * 64 * 9,
    )
    image, pooled = normal(8, 32, 32, 32), normal(8, 16, 16, 32)
    yield Kernel("max-pool 8x32x32x32", _pool, (image,), _torch_pool)
    yield Kernel(
        "max-pool gradient 8x32x32x32", lambda x, g: jax.vjp(_pool, x)[1](g)[0], (image, pooled), _torch_unpool
    )


def _convolve(x: Any, filters: Any, groups: int) -> Any:
    form = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, filters, (1, 1), "SAME", dimension_numbers=form, feature_group_count=groups)


def _pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _torch_convolve(x: Any, filters: Any, groups: int) -> Any:
    filters = filters.permute(3, 2, 0, 1)
    return _torch().nn.functional.conv2d(x.permute(0, 3, 1, 2), filters, padding=1, groups=groups)


def _torch_pool(x: Any) -> Any:
    return _torch().nn.functional.max_pool2d(x.permute(0, 3, 1, 2), 2)


def _torch_unpool(x: Any, g: Any) -> Any:
    """With the forward part, which finds the places that PyTorch's gradient needs."""
    x = x.permute(0, 3, 1, 2)
    _, places = _torch().ops.aten.max_pool2d_with_indices(x, [2, 2])
    g = g.permute(0, 3, 1, 2)
    return _torch().ops.aten.max_pool2d_with_indices_backward(g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, places)


def embeddings() -> Iterator[Kernel]:
    table, rows = normal(4096, 128), normal(512, 128)
    tokens = np.random.default_rng(0).integers(0, 4096, 512).astype(np.int32)
    ids, touched = tokens.nbytes, 2 * rows.nbytes
    yield Kernel(
        "gather 512 of 4096x128", lambda t, i: t[i], (table, tokens), _torch_gather, flops=0, moved=touched + ids
    )
    yield Kernel(
        "scatter-add 512 to 4096x128",
        lambda g, i: jnp.zeros(table.shape).at[i].add(g),
        (rows, tokens),
        _torch_scatter,
        flops=rows.size,
    )


def _torch_gather(table: Any, tokens: Any) -> Any:
    return _torch().nn.functional.embedding(tokens, table)


def _torch_scatter(rows: Any, tokens: Any) -> Any:
    return _torch().zeros(4096, 128).index_add_(0, tokens, rows)


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _torch() -> Any:
    import torch  # pyright: ignore[reportMissingImports]

    return torch
