"""Small trainings in the types that users have: bytes as images, NumPy's int64 labels, parameters in 16 bits."""

import jax
import jax.numpy as jnp
import numpy as np

from workloads import Quality, Workload

PIXELS, HIDDEN, CLASSES, ROWS = 37, 19, 5, 12


def data():
    """uint8 images and int64 labels: which fifth of the image is the brightest."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (96, PIXELS), np.uint8)
    y = np.stack([part.sum(1) for part in np.array_split(x.astype(np.int64), CLASSES, axis=1)], 1).argmax(1)
    return {"train": (x[:48], y[:48]), "validation": (x[48:72], y[48:72]), "test": (x[72:], y[72:])}


def init(dtype):
    def made(seed):
        rng = np.random.default_rng(seed)
        first, second = rng.standard_normal((PIXELS, HIDDEN)) * 0.3, rng.standard_normal((HIDDEN, CLASSES)) * 0.3
        return {"first": jnp.asarray(first, dtype), "second": jnp.asarray(second, dtype)}

    return made


def predict_in(dtype):
    def predict(params, x):
        hidden = jnp.tanh((x.astype(dtype) / 255) @ params["first"].astype(dtype))
        return (hidden @ params["second"].astype(dtype)).astype(jnp.float32)

    return predict


def step_in(dtype):
    predict = predict_in(dtype)

    def step(params, batch):
        x, y = batch

        def loss(params):
            scores = jax.nn.log_softmax(predict(params, x))
            return -jnp.mean(jnp.take_along_axis(scores, y[:, None], 1))

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.5 * g, params, grads), {"loss": value}

    return step


def training(state, compute):
    return Workload(
        init=init(state), data=data, step=step_in(compute), predict=predict_in(compute), batch_size=ROWS, eval_batch=24,
        quality=Quality(steps=30),
    )  # fmt: skip


images = training(jnp.float32, jnp.float32)
mixed = training(jnp.float32, jnp.bfloat16)
brain = training(jnp.bfloat16, jnp.bfloat16)
half = training(jnp.float16, jnp.float16)

NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16", "bfloat16", "float32")


def numbers(name, seed, *shape):
    rng = np.random.default_rng(seed)
    if "float" in name:
        return rng.standard_normal(shape).astype(jnp.dtype(name))
    limits = (0, 2) if name == "bool" else (np.iinfo(name).min // 2**33, np.iinfo(name).max // 2**33)
    limits = limits if name in ("bool", "int64") else (np.iinfo(name).min, np.iinfo(name).max)
    return rng.integers(*limits, shape).astype(name)


def every_data():
    """A leaf of each type."""
    return {split: tuple(numbers(name, seed, 7, 11) for name in NAMES)
            for seed, split in enumerate(("train", "validation", "test"))}  # fmt: skip


def every_step(state, batch):
    """Exact arithmetic on leaves of each type: what the step reads and writes as NumPy gave it."""
    new, metrics = {}, {}
    for name, x in zip(NAMES, batch, strict=True):
        s = state[name]
        new[name] = s ^ x if name == "bool" else s + x if "float" not in name else jnp.maximum(s, x)
        metrics[name] = new[name].max(0)
        metrics[f"{name}_is"] = (new[name] > x).sum(1).astype(new[name].dtype)
    return new, {"a_loss": state["float32"].max(), **metrics}


every = Workload(
    init=lambda seed: {name: numbers(name, seed + 9, 7, 11) for name in NAMES},
    step=every_step, data=every_data, batch_size=7, eval_batch=7, quality=Quality(kind="loss", steps=3),
)  # fmt: skip
