"""Steps of a few ops drawn at random, written by `exact_steps`: what groups, fusion and emitters meet in no test."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from exact_steps import Element, Step, Tensor

SIZES = (1, 2, 3, 4, 7, 8, 9, 16, 17)
MOST = 4096  # elements of a value
LOW = float("-inf")


@dataclass
class RandomStep:
    """A step under construction. state: arguments that get a new value; values: what later ops may read."""

    rng: random.Random
    step: Step = field(default_factory=Step)
    sizes: list[int] = field(default_factory=list[int])
    state: list[Tensor] = field(default_factory=list[Tensor])
    values: list[Tensor] = field(default_factory=list[Tensor])

    def numbers(self, *shape: int) -> np.ndarray:
        found = np.random.default_rng(self.rng.getrandbits(32)).standard_normal(shape)
        return found.astype(np.float32)

    def argument(self, *shape: int) -> Tensor:
        made = self.step.argument(self.numbers(*shape))
        self.values.append(made)
        return made

    def shape(self, rank: int) -> list[int]:
        return [self.rng.choice(self.sizes) for _ in range(rank)]

    def value(self, least: int = 0) -> Tensor:
        """A value of at least so many dimensions; recent ones are likelier."""
        known = [v for v in self.values if len(v.shape) >= least]
        if not known:
            return self.argument(*self.shape(max(least, 2)))
        return self.rng.choice(known if self.rng.random() < 0.4 else known[-3:])

    def like(self, shape: tuple[int, ...]) -> Tensor:
        """A value of this shape, an argument where there is none or by chance."""
        known = [v for v in self.values if v.shape == shape]
        return self.rng.choice(known) if known and self.rng.random() < 0.7 else self.argument(*shape)


def _unary(r: RandomStep) -> Tensor:
    bodies: list[Callable[[Element], Element]] = [
        lambda x: x.maximum(0.0), lambda x: x.tanh(), lambda x: -x, lambda x: x.abs(), lambda x: x * 0.5 + 1.0,
        lambda x: x.tanh().exp(), lambda x: (x.abs() + 1.0).log(), lambda x: (x.abs() + 0.5).rsqrt(),
        lambda x: x.tanh() * x.tanh(), lambda x: x.compare("gt", 0.0).choose(x, x * 0.1),
    ]  # fmt: skip
    return r.step.map(r.rng.choice(bodies), r.value())


_BINARY: list[Callable[[Element, Element], Element]] = [
    lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y.tanh(), lambda x, y: x.maximum(y),
    lambda x, y: x / (y.abs() + 1.0), lambda x, y: y.compare("gt", 0.0).choose(x, x.of(0.0)),
]  # fmt: skip


def _binary(r: RandomStep) -> Tensor:
    x = r.value()
    return r.step.map(r.rng.choice(_BINARY), x, r.like(x.shape))


def _broadcast(r: RandomStep) -> Tensor:
    """A value with another of fewer dimensions."""
    x = r.value(1)
    kept = sorted(r.rng.sample(range(len(x.shape)), r.rng.randint(0, len(x.shape) - 1)))
    y = r.like(tuple(x.shape[k] for k in kept))
    pair = (y, ", ".join(f"d{k}" for k in kept))
    body = r.rng.choice(_BINARY)
    if r.rng.random() < 0.3:
        return r.step.map(lambda p, q: body(q, p), x, pair)
    return r.step.map(body, x, pair)


def _moved(r: RandomStep) -> Tensor:
    """A value with another one read backwards, transposed or both."""
    x = r.value(1)
    order = list(range(len(x.shape)))
    r.rng.shuffle(order)
    y = r.like(tuple(x.shape[k] for k in order))
    dims = [f"{x.shape[k] - 1} - d{k}" if r.rng.random() < 0.3 else f"d{k}" for k in order]
    return r.step.map(r.rng.choice(_BINARY), x, (y, ", ".join(dims)))


def _reduce(r: RandomStep) -> Tensor:
    x = r.value(1)
    axes = r.rng.sample(range(len(x.shape)), r.rng.randint(1, len(x.shape)))
    if r.rng.random() < 0.3:
        return r.step.reduce(x, axes, "maximumf", LOW)
    body = r.rng.choice([lambda p: p, lambda p: p * p, lambda p: p.tanh()])
    return r.step.reduce(x, axes, body=body)


def _matmul(r: RandomStep) -> Tensor:
    x = r.value(2)
    while len(x.shape) > 2:
        x = r.step.collapse(x, [[0, 1], *([k] for k in range(2, len(x.shape)))])
    n = r.rng.choice(r.sizes)
    left, other = r.rng.choice(["mk", "km"]), r.rng.choice(["kn", "nk"])
    m, k = x.shape if left == "mk" else x.shape[::-1]
    y = r.like((k, n) if other == "kn" else (n, k))
    loops = {"m": "d0", "n": "d1", "k": "d2"}
    maps = [", ".join(loops[c] for c in word) for word in (left, other, "mn")]
    return r.step.product(x, y, (m, n, k), "ppr", maps)


def _transpose(r: RandomStep) -> Tensor:
    x = r.value(2)
    order = list(range(len(x.shape)))
    r.rng.shuffle(order)
    return r.step.transpose(x, order)


def _reshape(r: RandomStep) -> Tensor:
    x = r.value(1)
    if len(x.shape) > 1:
        k = r.rng.randrange(len(x.shape) - 1)
        groups = [*([i] for i in range(k)), [k, k + 1], *([i] for i in range(k + 2, len(x.shape)))]
        return r.step.collapse(x, groups)
    parts = [d for d in range(1, x.shape[0] + 1) if x.shape[0] % d == 0]
    d = r.rng.choice(parts)
    return r.step.expand(x, [[0, 1]], (d, x.shape[0] // d))


def _repeat(r: RandomStep) -> Tensor:
    x = r.value()
    axis, size = r.rng.randint(0, len(x.shape)), r.rng.choice(r.sizes)
    return r.step.broadcast(x, [*x.shape[:axis], size, *x.shape[axis:]], [axis])


def _cut(r: RandomStep) -> Tensor:
    x = r.value(1)
    if r.rng.random() < 0.5:
        low, high = ([r.rng.randint(0, 2) for _ in x.shape] for _ in "lh")
        return r.step.pad(x, low, high, r.rng.choice([0.0, 1.5]))
    offsets = [r.rng.randrange(s) for s in x.shape]
    strides = [r.rng.randint(1, 2) for _ in x.shape]
    sizes = [r.rng.randint(1, (s - o - 1) // t + 1) for s, o, t in zip(x.shape, offsets, strides, strict=True)]
    part = r.step.slice(x, offsets, sizes, strides)
    if r.rng.random() < 0.5:
        return part
    return r.step.insert(part, r.like(x.shape), offsets, sizes, strides)


def _concatenate(r: RandomStep) -> Tensor:
    x = r.value(1)
    return r.step.concatenate([x, r.like(x.shape), x][: r.rng.randint(2, 3)], r.rng.randrange(len(x.shape)))


def _softmax(r: RandomStep) -> Tensor:
    x = r.value(2)
    rank = len(x.shape)
    rows = ", ".join(f"d{k}" for k in range(rank - 1))
    largest = r.step.reduce(x, [rank - 1], "maximumf", LOW)
    raised = r.step.map(lambda p, m: (p - m).exp(), x, (largest, rows))
    return r.step.map(lambda p, t: p / t, raised, (r.step.reduce(raised, [rank - 1]), rows))


def _norm(r: RandomStep) -> Tensor:
    """A layer norm, or statistics by columns."""
    x = r.value(2)
    rank = len(x.shape)
    axis = r.rng.choice([0, rank - 1])
    others = ", ".join(f"d{k}" for k in range(rank) if k != axis)
    count = float(x.shape[axis])
    mean = r.step.map(lambda p: p / count, r.step.reduce(x, [axis]))
    off = r.step.map(lambda p, m: p - m, x, (mean, others))
    square = r.step.reduce(off, [axis], body=lambda p: p * p)
    return r.step.map(lambda p, q: p * (q / count + 1.0).rsqrt(), off, (square, others))


OPS = {
    _unary: 3, _binary: 3, _broadcast: 3, _moved: 1, _reduce: 3, _matmul: 3, _transpose: 1, _reshape: 1, _repeat: 1,
    _cut: 1, _concatenate: 0.5, _softmax: 1, _norm: 1,
}  # fmt: skip


def random_step(seed: int) -> tuple[Step, int, list[Tensor]]:
    """A step of 3 to 8 ops, its number of states, and its results: new states first."""
    rng = random.Random(seed)
    r = RandomStep(rng)
    r.sizes = rng.sample(SIZES, 3)
    states = [r.argument(*r.shape(rng.randint(1, 2))) for _ in range(rng.randint(0, 2))]
    r.argument(*r.shape(rng.choice([1, 2, 2, 3])))
    made: list[Tensor] = []
    for _ in range(rng.randint(3, 8)):
        (op,) = rng.choices(list(OPS), list(OPS.values()))
        found = op(r)
        if found.exact.size <= MOST and np.all(found.error < 1e3) and np.all(np.abs(found.exact) < 1e6):
            r.values.append(found)
            made.append(found)
    new = [r.step.map(lambda p, g: p - g * 0.1, s, r.like(s.shape)) for s in states]
    results = [*rng.sample(made, min(2, len(made))), *made[-1:]]
    return r.step, len(states), [*new, *{id(t): t for t in results}.values()]


def random_graph(seed: int, ops: int) -> tuple[Step, list[Tensor]]:
    """Many ops on square matrices, each reading any two values before: what groups may join in many ways."""
    rng, step = random.Random(seed), Step()
    n = rng.choice([3, 5, 8])
    arrays = np.random.default_rng(seed).standard_normal((3, n, n)).astype(np.float32)
    values = [step.argument(a) for a in arrays]
    made: list[Tensor] = []
    for _ in range(ops):
        x, y = (rng.choice(values[-6:]) if rng.random() < 0.7 else rng.choice(values) for _ in "xy")
        kind = rng.choice(["same", "same", "same", "transposed", "rows", "rows", "columns", "total", "product", "view"])
        if kind == "same":
            found = step.map(rng.choice(_BINARY), x, y)
        elif kind == "transposed":
            found = step.map(rng.choice(_BINARY), x, (y, "d1, d0"))
        elif kind == "rows":
            found = step.map(lambda p, s: p.tanh() - s * 0.1, x, (step.reduce(y, [1]), "d0"))
        elif kind == "columns":
            found = step.map(lambda p, s: p.tanh() * s * 0.1, x, (step.reduce(y, [0], body=lambda p: p.tanh()), "d1"))
        elif kind == "total":
            found = step.map(lambda p, s: p + s.tanh(), x, (step.reduce(y, [0, 1]), ""))
        elif kind == "product":
            found = step.map(lambda p: p * 0.25, step.matmul(x, y))
        else:
            flat = step.map(lambda p: p.tanh(), step.collapse(x, [[0, 1]]))
            found = step.map(lambda p, q: p + q, step.expand(flat, [[0, 1]], (n, n)), y)
        values.append(found)
        made.append(found)
    return step, [*rng.sample(made, 2), made[-1]]
