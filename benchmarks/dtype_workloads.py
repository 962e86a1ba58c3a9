"""Trainings of one network in the types that users have, in two sizes: what `benchmarks/dtypes.py` measures."""

import jax
import jax.numpy as jnp
import numpy as np

from workloads import Quality, Workload

CLASSES = 10
SIZES = {"": (784, 512, 128), "small_": (37, 19, 12)}  # pixels, hidden units, rows of a batch


def made(pixels, hidden, rows, state, compute, images=np.uint8, labels=np.int64, sorts=False):
    """A training of three layers: data of the types `images` and `labels`, parameters and momentum in `state`,
    arithmetic in `compute`. sorts: of the last hidden layer an eighth stays, by top_k, and the rows of the largest
    losses are left out, by sort."""

    def init(seed):
        rng = np.random.default_rng(seed)
        shapes = {"a": (pixels, hidden), "b": (hidden, hidden), "c": (hidden, CLASSES)}
        weights = {n: jnp.asarray(rng.standard_normal(s) / np.sqrt(s[0]), state) for n, s in shapes.items()}
        return {"weights": weights, "momentum": {n: jnp.zeros_like(w) for n, w in weights.items()}}

    def data():
        rng = np.random.default_rng(0)
        x = rng.integers(0, 256, (8 * rows, pixels))
        x = x.astype(images) if images == np.uint8 else (x / 255).astype(images)
        parts = np.array_split(x.astype(np.float64), CLASSES, axis=1)
        y = np.stack([part.mean(1) for part in parts], 1).argmax(1).astype(labels)
        return {name: (x, y) for name in ("train", "validation", "test")}

    def predict(state, x):
        a, b, c = (state["weights"][n].astype(compute) for n in "abc")
        x = x.astype(compute) / 255 if images == np.uint8 else x.astype(compute)
        h = jax.nn.gelu(jnp.tanh(x @ a) @ b)
        if sorts:
            h = jnp.where(h >= jax.lax.top_k(h, max(1, hidden // 8))[0][:, -1:], h, 0)
        return (h @ c).astype(jnp.float32)

    def loss_of(state, x, y):
        losses = -jnp.sum(jax.nn.one_hot(y, CLASSES) * jax.nn.log_softmax(predict(state, x)), 1)
        return jnp.mean(jnp.sort(losses)[: -(rows // 8)] if sorts else losses)

    def step(state, batch):
        value, grads = jax.value_and_grad(lambda w: loss_of({"weights": w}, *batch))(state["weights"])
        momentum = jax.tree.map(lambda m, g: (0.9 * m + g).astype(m.dtype), state["momentum"], grads)
        weights = jax.tree.map(lambda w, m: w - 0.05 * m, state["weights"], momentum)
        return {"weights": weights, "momentum": momentum}, {"loss": value}

    return Workload(init=init, data=data, step=step, predict=predict, batch_size=rows, eval_batch=rows,
                    quality=Quality(steps=30))  # fmt: skip


TYPES = {
    "plain": (jnp.float32, jnp.float32, np.float32, np.int32),
    "images": (jnp.float32, jnp.float32),
    "mixed": (jnp.float32, jnp.bfloat16),
    "brain": (jnp.bfloat16, jnp.bfloat16),
    "half": (jnp.float16, jnp.float16),
    "sorted": (jnp.float32, jnp.float32, np.uint8, np.int64, True),
}
globals().update({p + name: made(*size, *types) for p, size in SIZES.items() for name, types in TYPES.items()})
