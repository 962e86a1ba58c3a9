"""`digits`: a 64-128-10 MLP trained by Adam in plain jnp on scikit-learn's handwritten digits."""

import jax
import jax.numpy as jnp
import numpy as np

from workloads import Quality, Workload
from workloads.data import digits
from workloads.models.layers import cross_entropy, dense

LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8  # Adam's defaults, Kingma and Ba 2015


def init(seed):
    rng = np.random.default_rng(seed)
    params = {**dense(rng, 64, 128, "1"), **dense(rng, 128, 10, "2")}
    zeros = jax.tree.map(np.zeros_like, params)
    return {"params": params, "m": zeros, "v": zeros, "t": np.float32(0)}


def scores(params, x):
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def step(state, batch):
    x, y = batch
    loss, grads = jax.value_and_grad(lambda p: cross_entropy(scores(p, x), y))(state["params"])
    t = state["t"] + 1
    m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, state["v"], grads)
    scale1, scale2 = 1 - BETA1**t, 1 - BETA2**t

    def update(p, m, v):
        return p - LEARNING_RATE * (m / scale1) / (jnp.sqrt(v / scale2) + EPSILON)

    params = jax.tree.map(update, state["params"], m, v)
    return {"params": params, "m": m, "v": v, "t": t}, {"loss": loss}


workload = Workload(
    init=init,
    step=step,
    predict=lambda state, x: scores(state["params"], x),
    data=digits,
    batch_size=32,
    eval_batch=360,
    quality=Quality(kind="accuracy", steps=300),
)
