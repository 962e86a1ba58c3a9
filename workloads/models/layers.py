"""The few layers that the shipped models share."""

import jax
import jax.numpy as jnp


def dense(key, inputs, outputs, name):
    """A dense layer's parameters, w<name> and b<name>: He-normal weights, zero biases."""
    weights = jax.random.normal(key, (inputs, outputs)) * (2 / inputs) ** 0.5
    return {f"w{name}": weights, f"b{name}": jnp.zeros(outputs)}


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
