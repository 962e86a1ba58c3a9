"""`mobilenet`: a small MobileNetV2 (Sandler et al. 2018), SGD, on Fashion-MNIST with zeros around it to 32x32."""

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

BLOCKS = ((16, 24, 2), (24, 24, 1), (24, 32, 2))  # inverted residuals: channels in, channels out, stride
EXPANSION = 2


def init(seed):
    rng = np.random.default_rng(seed)
    params = {"stem": normalised_filters(rng, 3, 3, 1, 16)}
    for i, (inputs, outputs, _) in enumerate(BLOCKS):
        hidden = EXPANSION * inputs
        params[f"expand{i}"] = normalised_filters(rng, 1, 1, inputs, hidden)
        params[f"depthwise{i}"] = normalised_filters(rng, 3, 3, 1, hidden)
        params[f"project{i}"] = normalised_filters(rng, 1, 1, hidden, outputs)
    params["head"] = dense(rng, 32, 10, "")
    return {"params": params, "running": running_statistics(params)}


def network(params, x, running=None):
    """Scores, and the statistics of each batch norm: those of the batch, or `running`."""
    used = {}

    def convolve_and_norm(h, name, stride=1, groups=1):
        h = convolve(h, params[name]["w"], stride, groups)
        h, used[name] = batch_norm(h, params[name], running and running[name])
        return h

    h = jax.nn.relu6(convolve_and_norm(x, "stem"))
    for i, (inputs, _, stride) in enumerate(BLOCKS):
        wide = jax.nn.relu6(convolve_and_norm(h, f"expand{i}"))
        wide = jax.nn.relu6(convolve_and_norm(wide, f"depthwise{i}", stride, groups=EXPANSION * inputs))
        narrow = convolve_and_norm(wide, f"project{i}")
        h = h + narrow if narrow.shape == h.shape else narrow
    return jnp.mean(h, (1, 2)) @ params["head"]["w"] + params["head"]["b"], used


workload = Workload(
    init=init,
    step=sgd_with_statistics(network, learning_rate=0.3),
    predict=lambda state, x: network(state["params"], x, state["running"])[0],
    data=partial(fashion_mnist_32, validation_rows=1_000),
    batch_size=8,
    eval_batch=250,
    quality=Quality(kind="accuracy", steps=60),
    storage=("f32", "f16", "bf16"),
)
