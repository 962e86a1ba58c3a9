"""How likely draws are: every weight of the edit kinds in one table, each with its reason.

No draw is impossible, so that a search can still find what nobody expects. Where a reason is a measurement, the command
is named; the others are choices.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

SAME_TYPE = (
    0.8  # of replaced values, where there is one of the same type and shape: a resized one rarely means anything
)
HOW = {"pad": 1.0, "broadcast": 1.0, "reshape": 1.0}  # how a value is made to fit: mlir-mutate pads only
FILL = {0.0: 2.0, 1.0: 1.0}  # what padding holds: 0 is neutral for sums, 1 for products

# Share of draws that look where an edit of this kind is likely to matter, instead of anywhere.
SEMANTIC = {
    "scale": 0.6,  # gradients, weights, constants: learning rates are GEVO-ML's own example of what pays
    "cast": 0.7,  # large values that live from the forward to the backward part: they are the memory
    "shrink": 0.7,  # ops by the iterations of their loops: time is gained there only
    "skip": 0.7,  # values by the iterations that become dead
    "replace": 0.7,  # ops whose operands all have the types that the new op wants: the inputs stay
    "delete": 0.5,  # values of the same type that the op itself reads: the op is passed by
}

SCALE_TARGET = {"gradient": 3.0, "weight": 1.0, "constant": 2.0}  # a constant is a rate or an epsilon, few are neither
SCALE_ONE_USER = 0.2  # of scalings that are for one reader only
FACTOR = {
    "near": 3.0,  # 0.8 .. 1.25: small steps, also what `perturb` does
    "wide": 4.0,  # log-uniform in 1/16 .. 16: a learning rate may be off by that much
    "power": 3.0,  # 1/16, 1/8, ..., 16: exact in floating point
    "minus": 0.2,  # -1 turns ascent into descent; seldom wanted
    "zero": 0.4,  # 0 prunes: what was computed for it becomes dead
}
FACTOR_MOST = 16.0
PERTURBED = 1.5  # a perturbed factor is at most this many times larger or smaller

STRIDE = {2: 6.0, 3: 2.0, 4: 2.0}  # every 2nd index halves the work; fewer hurt more than they save
SUBSET_STRIDED = 0.6  # of subsets where gaps are possible: neighbours are alike, so every 2nd says most
SHRINK_RESCALED = 0.5  # of shrunk sums that are multiplied by old/new count: keeps the size of what follows

SKIP_RESIZED = 0.1  # of skips that go to an ancestor of another shape
SKIP_LEAST_OPS = 3  # ops between a value and the ancestor that takes its place, if no contraction is between them

MOVE_NEAR = 8  # places a usual move goes at most: far moves change many users at once
MOVE_FAR = 0.3  # of moves that go anywhere

CAST_LEAST_ELEMENTS = 1024  # of a value worth it, as for `storage`: less is next to no memory

BODY_OWN_OPERAND = 0.8  # of dropped inner ops that become one of their own operands: x + y becomes x, not any value

T = TypeVar("T")


def pick(weights: Mapping[T, float], rng: random.Random) -> T:
    """A key, by its weight."""
    return rng.choices(list(weights), weights=list(weights.values()))[0]


def semantic(kind: str, rng: random.Random) -> bool:
    """Whether this draw is to look where it is likely to matter."""
    return rng.random() < SEMANTIC.get(kind, 0.0)


def by_weight(items: Sequence[T], weights: Sequence[float], rng: random.Random) -> T | None:
    """One of `items`, by its weight; None where there is none with a weight."""
    return rng.choices(items, weights=weights)[0] if any(weights) else None


def draw_factor(rng: random.Random) -> float:
    """A factor other than 1, with four significant digits."""
    kind = pick(FACTOR, rng)
    if kind == "near":
        factor = rng.choice([rng.uniform(0.8, 0.99), rng.uniform(1.01, 1.25)])
    elif kind == "wide":
        factor = FACTOR_MOST ** rng.uniform(-1, 1)
    elif kind == "power":
        factor = 2.0 ** rng.choice([-4, -3, -2, -1, 1, 2, 3, 4])
    else:
        factor = -1.0 if kind == "minus" else 0.0
    return _short(factor) if factor != 1 else 2.0


def near_factor(factor: float, rng: random.Random) -> float:
    """A factor near another; near 0 there is none but 0.1 and -0.1."""
    if factor == 0:
        return rng.choice([-0.1, 0.1])
    return _short(factor * PERTURBED ** (rng.choice([-1, 1]) * rng.uniform(0.02, 1)))


def _short(factor: float) -> float:
    return float(f"{factor:.4g}")
