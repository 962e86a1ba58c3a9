"""The few layers that the shipped models share."""

import jax
import jax.numpy as jnp
import numpy as np


def he_normal(rng, *shape):
    """Random weights of `shape`, the last dim the outputs (He et al. 2015); NumPy's, for nothing is compiled then."""
    return rng.standard_normal(shape, np.float32) * np.float32((2 / np.prod(shape[:-1])) ** 0.5)


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
