"""`digits`: a 64-128-10 MLP trained by Adam in plain jnp on scikit-learn's handwritten digits."""

import jax
import numpy as np

from workloads import Quality, Workload
from workloads.data import digits
from workloads.models.layers import adam, adam_state, cross_entropy, dense


def init(seed):
    rng = np.random.default_rng(seed)
    return adam_state({**dense(rng, 64, 128, "1"), **dense(rng, 128, 10, "2")})


def scores(params, x):
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def loss(params, x, y):
    return cross_entropy(scores(params, x), y)


workload = Workload(
    init=init,
    step=adam(loss),
    predict=lambda state, x: scores(state["params"], x),
    data=digits,
    batch_size=32,
    eval_batch=360,
    quality=Quality(kind="accuracy", steps=300),
    storage=("f32", "f16", "bf16"),
)
