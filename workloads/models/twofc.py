"""`twofc`: the two dense layers of GEVO-ML's 2fcNet (784-128-10), SGD, on Fashion-MNIST.

GEVO-ML does not publish its learning rate. 0.01 is the default of SGD in Keras, which came with the TensorFlow that its
authors used; it is too low for so few steps, as theirs seems to have been: they report that a larger one was found.
"""

from functools import partial

import jax
import numpy as np

from workloads import Quality, Workload
from workloads.data import fashion_mnist
from workloads.models.layers import dense, sgd


def init(seed):
    rng = np.random.default_rng(seed)
    return {**dense(rng, 784, 128, "1"), **dense(rng, 128, 10, "2")}


def scores(params, x):
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


workload = Workload(
    init=init,
    step=sgd(scores, learning_rate=0.01),
    predict=scores,
    data=partial(fashion_mnist, validation_rows=4_000),
    batch_size=32,
    eval_batch=500,
    quality=Quality(kind="accuracy", steps=250, seeds=(0, 1)),
    storage=("f32", "f16", "bf16"),
)
