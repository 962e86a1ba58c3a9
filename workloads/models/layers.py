"""The few layers that the shipped models share."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def he_normal(rng, *shape):
    """Random weights of `shape`, the last dim the outputs (He et al. 2015); NumPy's, for nothing is compiled then."""
    return rng.standard_normal(shape, np.float32) * np.float32((2 / np.prod(shape[:-1])) ** 0.5)


def normal(rng, *shape):
    """Random weights of `shape` that keep the size of what they multiply (LeCun et al. 1998)."""
    return rng.standard_normal(shape, np.float32) * np.float32(np.prod(shape[:-1]) ** -0.5)


def dense(rng, inputs, outputs, name):
    """A dense layer's parameters: weights w<name>, zero biases b<name>."""
    return {f"w{name}": he_normal(rng, inputs, outputs), f"b{name}": np.zeros(outputs, np.float32)}


def cross_entropy(scores, labels):
    """Mean cross-entropy of integer labels, by one-hot: it leaves no scatter in the gradient."""
    one_hot = jax.nn.one_hot(labels, scores.shape[-1])
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(scores) * one_hot, axis=-1))


def sgd(scores, learning_rate):
    """A training step that takes one plain gradient step on the cross-entropy of `scores(params, x)`."""

    def step(params, batch):
        x, y = batch
        loss, grads = jax.value_and_grad(lambda p: cross_entropy(scores(p, x), y))(params)
        return jax.tree.map(lambda p, g: p - learning_rate * g, params, grads), {"loss": loss}

    return step


def convolve(x, filters, stride=1, groups=1, padding="SAME"):
    return lax.conv_general_dilated(
        x,
        filters,
        (stride, stride),
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def normalised_filters(rng, *shape):
    """The parameters of a convolution with batch normalisation after it, which makes a bias of its own superfluous."""
    outputs = shape[-1]
    return {"w": he_normal(rng, *shape), "scale": np.ones(outputs, np.float32), "shift": np.zeros(outputs, np.float32)}


def running_statistics(params):
    """Those of `params`' normalised filters before any training."""
    return {
        name: {"mean": np.zeros_like(p["shift"]), "variance": np.ones_like(p["scale"])}
        for name, p in params.items()
        if "scale" in p
    }


def moments(x, axes):
    """Mean and variance as E[x^2] - E[x]^2, so that one pass over `x` gives both, and one pass their gradients.

    Its rounding error is about 1e-7 of the squared mean, which is harmless while means are of the size of the
    deviations, as those of a convolution's results are.
    """
    mean = jnp.mean(x, axes, keepdims=True)
    return mean, jnp.mean(x * x, axes, keepdims=True) - mean * mean


def normalise(x, mean, variance, p, epsilon=1e-5):
    return (x - mean) * lax.rsqrt(variance + epsilon) * p["scale"] + p["shift"]


def batch_norm(x, p, statistics=None):
    """`x` (..., channels) normalised by `statistics`, or by its own; and the statistics it was normalised by."""
    if statistics is None:
        mean, variance = moments(x, tuple(range(x.ndim - 1)))
        statistics = {"mean": mean.reshape(-1), "variance": variance.reshape(-1)}
    return normalise(x, statistics["mean"], statistics["variance"], p), statistics


def layer_norm_parameters(width):
    return {"scale": np.ones(width, np.float32), "shift": np.zeros(width, np.float32)}


def layer_norm(x, p):
    return normalise(x, *moments(x, -1), p)


def sgd_with_statistics(network, learning_rate, momentum=0.8):
    """As `sgd`, for a `network(params, x)` that gives scores and the statistics of its batch norms.

    Their running mean is kept in the state, for predictions; its momentum suits trainings of some 60 steps.
    """

    def loss_and_statistics(params, x, y):
        scores, statistics = network(params, x)
        return cross_entropy(scores, y), statistics

    def step(state, batch):
        gradient = jax.value_and_grad(loss_and_statistics, has_aux=True)
        (loss, seen), grads = gradient(state["params"], *batch)
        params = jax.tree.map(lambda p, g: p - learning_rate * g, state["params"], grads)
        running = jax.tree.map(lambda r, s: momentum * r + (1 - momentum) * s, state["running"], seen)
        return {"params": params, "running": running}, {"loss": loss}

    return step


def adam_state(params):
    """The state of a training by `adam` before its first step."""
    zeros = jax.tree.map(np.zeros_like, params)
    return {"params": params, "m": zeros, "v": zeros, "t": np.float32(0)}


def adam(loss, learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """A training step of Adam (its defaults are Kingma and Ba's, 2015) on `loss(params, *batch)`."""

    def step(state, batch):
        value, grads = jax.value_and_grad(loss)(state["params"], *batch)
        t = state["t"] + 1
        m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state["m"], grads)
        v = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state["v"], grads)
        scale1, scale2 = 1 - beta1**t, 1 - beta2**t

        def update(p, m, v):
            return p - learning_rate * (m / scale1) / (jnp.sqrt(v / scale2) + epsilon)

        params = jax.tree.map(update, state["params"], m, v)
        return {"params": params, "m": m, "v": v, "t": t}, {"loss": value}

    return step
