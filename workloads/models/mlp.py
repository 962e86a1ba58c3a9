"""`mlp`: three dense layers (784-512-512-10), SGD, on Fashion-MNIST."""

from functools import partial

import jax
import numpy as np

from workloads import Quality, Workload
from workloads.data import fashion_mnist
from workloads.models.layers import dense, sgd


def init(seed):
    rng = np.random.default_rng(seed)
    return {**dense(rng, 784, 512, "1"), **dense(rng, 512, 512, "2"), **dense(rng, 512, 10, "3")}


def scores(params, x):
    h = jax.nn.relu(x @ params["w1"] + params["b1"])
    h = jax.nn.relu(h @ params["w2"] + params["b2"])
    return h @ params["w3"] + params["b3"]


workload = Workload(
    init=init,
    step=sgd(scores, learning_rate=0.05),
    predict=scores,
    data=partial(fashion_mnist, validation_rows=2_000),
    batch_size=64,
    eval_batch=500,
    quality=Quality(kind="accuracy", steps=150),
    storage=("f32", "f16", "bf16"),
)
