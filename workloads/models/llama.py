"""`llama`: a small decoder (Touvron et al. 2023: RMSNorm, rotary places, SwiGLU), Adam, predicting the next byte
of Python's standard library."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workloads import Quality, Workload
from workloads.models.layers import adam, adam_state, cross_entropy, normal
from workloads.text import next_bytes

LAYERS, WIDTH, HEADS, LENGTH, HIDDEN = 2, 64, 4, 32, 176  # HIDDEN: 8/3 of the width, a multiple of 16
VOCABULARY = 256


def init(seed):
    rng = np.random.default_rng(seed)
    params = {"bytes": normal(rng, VOCABULARY, WIDTH)}
    for i in range(LAYERS):
        params[f"layer{i}"] = {
            **{name: normal(rng, WIDTH, WIDTH) for name in ("query", "key", "value", "out")},
            **{name: normal(rng, WIDTH, HIDDEN) for name in ("gate", "up")},
            "down": normal(rng, HIDDEN, WIDTH),
            "norm1": np.ones(WIDTH, np.float32),
            "norm2": np.ones(WIDTH, np.float32),
        }
    return adam_state({**params, "norm": np.ones(WIDTH, np.float32), "head": normal(rng, WIDTH, VOCABULARY)})


def rms_norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * scale


def rotate(x):
    """`x` (rows, length, heads, size) with each pair of channels turned by an angle that grows with the place."""
    length, half = x.shape[1], x.shape[3] // 2
    angle = jnp.arange(length)[:, None] * 10_000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def attention(x, p):
    rows, length, _ = x.shape
    query, key, value = ((x @ p[name]).reshape(rows, length, HEADS, -1) for name in ("query", "key", "value"))
    agreement = jnp.einsum("bqhd,bkhd->bhqk", rotate(query), rotate(key)) / (WIDTH // HEADS) ** 0.5
    past = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(past, agreement, -1e9))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(rows, length, WIDTH) @ p["out"]


def scores(params, x):
    h = params["bytes"][x]
    for i in range(LAYERS):
        p = params[f"layer{i}"]
        h = h + attention(rms_norm(h, p["norm1"]), p)
        n = rms_norm(h, p["norm2"])
        h = h + (jax.nn.silu(n @ p["gate"]) * (n @ p["up"])) @ p["down"]
    return rms_norm(h, params["norm"]) @ params["head"]


workload = Workload(
    init=init,
    # mean cross-entropy of the next byte, in nats; a guess among 256 has 5.55
    step=adam(lambda params, x, y: cross_entropy(scores(params, x), y), learning_rate=3e-3),
    predict=lambda state, x: scores(state["params"], x),
    data=partial(next_bytes, LENGTH),
    batch_size=4,
    eval_batch=4,
    quality=Quality(kind="loss", steps=100),
    storage=("f32", "f16", "bf16"),
)
