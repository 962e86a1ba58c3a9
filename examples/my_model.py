"""Your own model in about 15 lines; run it with: gevo search examples/my_model.py:workload"""

import jax
import jax.numpy as jnp
import numpy as np

from workloads import Quality, Workload
from workloads.data import digits


def init(seed):
    w = np.random.default_rng(seed).standard_normal((64, 10), np.float32) / 8
    return {"w": w, "b": np.zeros(10, np.float32)}


def predict(state, x):
    return x @ state["w"] + state["b"]


def step(state, batch):
    x, y = batch

    def cross_entropy(state):
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(predict(state, x)), y[:, None], axis=1))

    loss, grads = jax.value_and_grad(cross_entropy)(state)
    return jax.tree.map(lambda p, g: p - 0.1 * g, state, grads), {"loss": loss}


workload = Workload(
    init=init, step=step, predict=predict, data=digits, batch_size=32, eval_batch=360, quality=Quality(steps=300)
)
