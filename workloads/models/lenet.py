"""`lenet`: LeNet-5 with max-pooling and relu (LeCun et al. 1998 has sub-sampling and tanh), SGD, on Fashion-MNIST."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workloads import Quality, Workload
from workloads.data import fashion_mnist
from workloads.models.layers import convolve, dense, he_normal, sgd


def init(seed):
    rng = np.random.default_rng(seed)
    filters = {"c1": he_normal(rng, 5, 5, 1, 6), "c2": he_normal(rng, 5, 5, 6, 16)}
    return {**filters, **dense(rng, 400, 120, "1"), **dense(rng, 120, 84, "2"), **dense(rng, 84, 10, "3")}


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def scores(params, x):
    h = pool(jax.nn.relu(convolve(x, params["c1"])))
    h = pool(jax.nn.relu(convolve(h, params["c2"], padding="VALID")))
    h = h.reshape(h.shape[0], -1)
    h = jax.nn.relu(h @ params["w1"] + params["b1"])
    h = jax.nn.relu(h @ params["w2"] + params["b2"])
    return h @ params["w3"] + params["b3"]


workload = Workload(
    init=init,
    step=sgd(scores, learning_rate=0.05),
    predict=scores,
    # 2,000 validation rows, for a convolution over 10,000 would take longer than the training
    data=partial(fashion_mnist, images=True, validation_rows=2_000),
    batch_size=16,
    eval_batch=500,
    quality=Quality(kind="accuracy", steps=150),
    storage=("f32", "f16", "bf16"),
)
