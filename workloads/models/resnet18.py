"""`resnet18`: ResNet-18 for CIFAR's shape (He et al. 2016), 16 channels wide, SGD, on Fashion-MNIST in that shape.

The images get zeros around them to 32x32, and three equal channels.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from workloads import Quality, Workload
from workloads.data import fashion_mnist_32
from workloads.models.layers import (
    batch_norm,
    convolve,
    dense,
    normalised_filters,
    running_statistics,
    sgd_with_statistics,
)

WIDTH = 16
BLOCKS = tuple((WIDTH << stage, 2 if stage and not block else 1) for stage in range(4) for block in range(2))


def init(seed):
    rng = np.random.default_rng(seed)
    params = {"stem": normalised_filters(rng, 3, 3, 3, WIDTH)}
    inputs = WIDTH
    for i, (outputs, stride) in enumerate(BLOCKS):
        params[f"first{i}"] = normalised_filters(rng, 3, 3, inputs, outputs)
        params[f"second{i}"] = normalised_filters(rng, 3, 3, outputs, outputs)
        if stride > 1:
            params[f"shortcut{i}"] = normalised_filters(rng, 1, 1, inputs, outputs)
        inputs = outputs
    params["head"] = dense(rng, inputs, 10, "")
    return {"params": params, "running": running_statistics(params)}


def network(params, x, running=None):
    """Scores, and the statistics of each batch norm: those of the batch, or `running`."""
    used = {}

    def convolve_and_norm(h, name, stride=1):
        h, used[name] = batch_norm(convolve(h, params[name]["w"], stride), params[name], running and running[name])
        return h

    h = jax.nn.relu(convolve_and_norm(x, "stem"))
    for i, (_, stride) in enumerate(BLOCKS):
        change = jax.nn.relu(convolve_and_norm(h, f"first{i}", stride))
        change = convolve_and_norm(change, f"second{i}")
        h = jax.nn.relu(change + (convolve_and_norm(h, f"shortcut{i}", stride) if stride > 1 else h))
    return jnp.mean(h, (1, 2)) @ params["head"]["w"] + params["head"]["b"], used


workload = Workload(
    init=init,
    step=sgd_with_statistics(network, learning_rate=0.03),
    predict=lambda state, x: network(state["params"], x, state["running"])[0],
    data=partial(fashion_mnist_32, channels=3, validation_rows=300),
    batch_size=4,
    eval_batch=100,
    quality=Quality(kind="accuracy", steps=60),
    storage=("f32", "f16", "bf16"),
)
