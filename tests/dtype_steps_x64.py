"""A training in 64 bits: its file turns jax_enable_x64 on, for the process that imports it."""

import jax
import jax.numpy as jnp
import numpy as np

from workloads import Quality, Workload

jax.config.update("jax_enable_x64", True)


def init(seed):
    weights = np.random.default_rng(seed).standard_normal((9, 4)) * 0.3
    return {"count": np.int64(2**40), "keys": np.array([seed, 2**63], np.uint64), "weights": weights}


def data():
    """float64 rows; labels far beyond 32 bits, of which the remainder counts."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 9))
    y = x[:, :4].argmax(1) + 4 * rng.integers(2**40, 2**50, 64)
    return {"train": (x[:32], y[:32]), "validation": (x[32:48], y[32:48]), "test": (x[48:], y[48:])}


def predict(state, x):
    return jnp.tanh(x) @ state["weights"]


def step(state, batch):
    x, y = batch

    def loss(weights):
        scores = jax.nn.log_softmax(predict({"weights": weights}, x))
        return -jnp.mean(jnp.sum(jax.nn.one_hot(y % 4, 4, dtype=x.dtype) * scores, 1))

    value, grads = jax.value_and_grad(loss)(state["weights"])
    new = {"count": state["count"] * 3, "keys": state["keys"] >> 1, "weights": state["weights"] - 0.1 * grads}
    return new, {"loss": value, "top": y.max()}


workload = Workload(
    init=init, data=data, step=step, predict=predict, batch_size=8, eval_batch=16, quality=Quality(steps=30)
)
