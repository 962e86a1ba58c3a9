"""`mobilenet_predict`: the prediction of a trained MobileNetV2 (Sandler et al. 2018), and the training it comes from.

On Fashion-MNIST with zeros around it to 32x32: CIFAR-10, which the papers use, is not to be had offline. Narrower and
shorter than theirs, with their expansion and as large a share of residual blocks: 7 of 11 here, 10 of 17 there. What is
tuned has its batch norms folded into the filters before them, as one does for use. It is trained with stochastic
depth (Huang et al. 2016, arXiv 1603.09382), drawn for each image: a network that learned to do without some of its
residual branches leaves a search something to leave out.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from workloads import Quality, Workload, trained
from workloads.data import fashion_mnist_32
from workloads.models.layers import (
    batch_norm,
    convolve,
    cross_entropy,
    dense,
    normalised_filters,
    running_statistics,
)

STEM, LAST = 16, 64
BLOCKS = (  # inverted residuals: channels in, channels out, stride, expansion
    (16, 16, 1, 2),
    (16, 24, 2, 6),
    (24, 24, 1, 6),
    (24, 24, 1, 6),
    (24, 32, 2, 6),
    (32, 32, 1, 6),
    (32, 32, 1, 6),
    (32, 48, 1, 6),
    (48, 48, 1, 6),
    (48, 48, 1, 6),
    (48, 64, 1, 6),
)
RESIDUAL = tuple(i for i, (inputs, outputs, stride, _) in enumerate(BLOCKS) if (stride, inputs) == (1, outputs))
DROPPED = 0.5  # how often the last block's branch would be; those before it less, in proportion to their depth
EPSILON = 1e-5
STEPS, BATCH = 4_700, 64  # six times over the training images
RATE, MOMENTUM, DECAY, KEPT = 0.1, 0.9, 1e-4, 0.99


def init(seed):
    rng = np.random.default_rng(seed)
    params = {"stem": normalised_filters(rng, 3, 3, 1, STEM)}
    for i, (inputs, outputs, _, expansion) in enumerate(BLOCKS):
        hidden = expansion * inputs
        params[f"expand{i}"] = normalised_filters(rng, 1, 1, inputs, hidden)
        params[f"depthwise{i}"] = normalised_filters(rng, 3, 3, 1, hidden)
        params[f"project{i}"] = normalised_filters(rng, 1, 1, hidden, outputs)
    params["head"] = dense(rng, LAST, 10, "")
    velocity = jax.tree.map(np.zeros_like, params)
    key = np.array([0, seed], np.uint32)
    return {
        "params": params,
        "running": running_statistics(params),
        "velocity": velocity,
        "key": key,
        "t": np.float32(0),
    }


def network(layer, head, x, branch=lambda i, h: h):
    """Scores. layer: (values, name, stride, groups) -> the convolution of that name with what follows it.

    branch: (block, values) -> what is added of a residual branch.
    """
    h = jax.nn.relu6(layer(x, "stem", 2, 1))
    for i, (inputs, _, stride, expansion) in enumerate(BLOCKS):
        wide = jax.nn.relu6(layer(h, f"expand{i}", 1, 1))
        wide = jax.nn.relu6(layer(wide, f"depthwise{i}", stride, expansion * inputs))
        narrow = layer(wide, f"project{i}", 1, 1)
        h = h + branch(i, narrow) if i in RESIDUAL else narrow
    return jnp.mean(h, (1, 2)) @ head["w"] + head["b"]


def branches_kept(key, t, batch):
    """By residual block, the factors (batch,) of its branch at step `t`: 0, or what keeps the mean as it was."""
    key = jax.random.fold_in(jax.random.wrap_key_data(key), t.astype(jnp.uint32))
    drawn = jax.random.uniform(key, (len(RESIDUAL), batch))
    keep = [1 - DROPPED * (i + 1) / len(BLOCKS) for i in RESIDUAL]
    return {i: jnp.where(row < kept, 1 / kept, 0) for i, row, kept in zip(RESIDUAL, drawn, keep, strict=True)}


def trained_network(params, x, running=None, kept=None):
    """Scores, and the statistics of each batch norm: those of the batch, or `running`; kept: see `branches_kept`."""
    used = {}

    def layer(h, name, stride, groups):
        h = convolve(h, params[name]["w"], stride, groups)
        h, used[name] = batch_norm(h, params[name], running and running[name])
        return h

    def branch(i, h):
        return h * kept[i][:, None, None, None] if kept else h

    return network(layer, params["head"], x, branch), used


def step(state, batch):
    """SGD with momentum; its rate falls to 0 along half a cosine (Loshchilov and Hutter 2017)."""

    def loss_and_statistics(params, x, y):
        scores, statistics = trained_network(params, x, kept=branches_kept(state["key"], state["t"], len(x)))
        return cross_entropy(scores, y), statistics

    gradient = jax.value_and_grad(loss_and_statistics, has_aux=True)
    (loss, seen), grads = gradient(state["params"], *batch)
    rate = 0.5 * RATE * (1 + jnp.cos(jnp.pi * jnp.minimum(state["t"] / STEPS, 1)))
    velocity = jax.tree.map(lambda v, g, p: MOMENTUM * v + g + DECAY * p, state["velocity"], grads, state["params"])
    params = jax.tree.map(lambda p, v: p - rate * v, state["params"], velocity)
    running = jax.tree.map(lambda r, s: KEPT * r + (1 - KEPT) * s, state["running"], seen)
    changed = {"params": params, "running": running, "velocity": velocity, "t": state["t"] + 1}
    return {**state, **changed}, {"loss": loss}


training = Workload(
    init=init,
    step=step,
    predict=lambda state, x: trained_network(state["params"], x, state["running"])[0],
    data=partial(fashion_mnist_32, validation_rows=5_000, train_rows=50_000, test_rows=10_000),
    batch_size=BATCH,
    eval_batch=250,
    quality=Quality(kind="accuracy", steps=STEPS),
)


def folded(params, running):
    """Filters w and biases b that do what convolution and batch norm together did; computed in float64."""

    def fold(p, statistics):
        w, scale, shift = (np.float64(p[name]) for name in ("w", "scale", "shift"))
        factor = scale / np.sqrt(np.float64(statistics["variance"]) + EPSILON)
        return {"w": np.float32(w * factor), "b": np.float32(shift - np.float64(statistics["mean"]) * factor)}

    return {name: fold(p, running[name]) if name in running else p for name, p in params.items()}


def trained_weights(seed):
    """Those of the one training that is kept, whatever the seed."""
    state = trained("mobilenet_training")
    return folded(state["params"], state["running"])


def predict(params, x):
    def layer(h, name, stride, groups):
        return convolve(h, params[name]["w"], stride, groups) + params[name]["b"]

    return network(layer, params["head"], x)


workload = Workload(
    init=trained_weights,
    predict=predict,
    data=partial(fashion_mnist_32, train_rows=2_000, validation_rows=5_000, test_rows=10_000),
    batch_size=BATCH,
    quality=Quality(kind="accuracy"),
    storage=("f32", "f16", "bf16"),
)
