"""`bert`: a small encoder (Devlin et al. 2019), Adam, predicting hidden bytes of Python's standard library.

Normalisation is before each part, not after it, which needs no warm-up of the learning rate (Xiong et al. 2020).
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from workloads import Quality, Workload
from workloads.models.layers import adam, adam_state, dense, layer_norm, layer_norm_parameters, normal
from workloads.text import MASK, masked_bytes

LAYERS, WIDTH, HEADS, LENGTH = 2, 64, 4, 32


def init(seed):
    rng = np.random.default_rng(seed)
    params = {"bytes": normal(rng, MASK + 1, WIDTH), "places": normal(rng, LENGTH, WIDTH)}
    for i in range(LAYERS):
        params[f"layer{i}"] = {
            "norm1": layer_norm_parameters(WIDTH),
            "qkv": normal(rng, WIDTH, 3 * WIDTH),
            "out": normal(rng, WIDTH, WIDTH),
            "norm2": layer_norm_parameters(WIDTH),
            **dense(rng, WIDTH, 4 * WIDTH, "1"),
            **dense(rng, 4 * WIDTH, WIDTH, "2"),
        }
    return adam_state({**params, "norm": layer_norm_parameters(WIDTH), "head": normal(rng, WIDTH, MASK)})


def attention(x, p):
    rows, length, _ = x.shape
    query, key, value = jnp.moveaxis((x @ p["qkv"]).reshape(rows, length, 3, HEADS, -1), 2, 0)
    agreement = jnp.einsum("bqhd,bkhd->bhqk", query, key) / (WIDTH // HEADS) ** 0.5
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(agreement), value)
    return mixed.reshape(rows, length, WIDTH) @ p["out"]


def scores(params, x):
    h = params["bytes"][x] + params["places"]
    for i in range(LAYERS):
        p = params[f"layer{i}"]
        h = h + attention(layer_norm(h, p["norm1"]), p)
        wide = jax.nn.gelu(layer_norm(h, p["norm2"]) @ p["w1"] + p["b1"], approximate=False)
        h = h + wide @ p["w2"] + p["b2"]
    return layer_norm(h, params["norm"]) @ params["head"]


def loss(params, x, y):
    """Mean cross-entropy of the hidden bytes, in nats; a guess among 256 has 5.55."""
    asked = jax.nn.one_hot(y, MASK)
    return -jnp.sum(jax.nn.log_softmax(scores(params, x)) * asked) / jnp.sum(asked)


workload = Workload(
    init=init,
    step=adam(loss, learning_rate=3e-3),
    predict=lambda state, x: scores(state["params"], x),
    data=partial(masked_bytes, LENGTH),
    batch_size=4,
    eval_batch=4,
    quality=Quality(kind="loss", steps=100),
    storage=("f32", "f16", "bf16"),
)
