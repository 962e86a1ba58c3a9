"""Small made-up scheduling problems: DAGs of ops of several outputs, with state, metrics, workspaces and a batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from mlir_passes.schedule.problem import START, Op, Problem, Tensor


def random_problem(rng: random.Random, ops: int = 6, state: int = 2) -> Problem:
    """A DAG without a plan behind it. Costs are quarters, so that their sums are exact."""
    sizes = _Sizes(rng)
    tensors = [sizes.tensor("batch", START, pageable=False)]
    tensors += [sizes.tensor(f"state{k}", START, final=True, pageable=rng.random() < 0.8) for k in range(state)]
    made: list[Op] = []
    for number in range(ops):
        recent = range(max(0, len(tensors) - 4), len(tensors))
        reads = {rng.choice(recent) if rng.random() < 0.6 else rng.randrange(len(tensors)) for _ in range(3)}
        outputs = range(len(tensors), len(tensors) + (2 if rng.random() < 0.35 else 1))
        made.append(sizes.op(f"op{number}", sorted(reads), outputs))
        tensors += [
            sizes.tensor(f"op{number}#{k}", number, final=rng.random() < 0.1, pageable=rng.random() < 0.85)
            for k in range(len(outputs))
        ]
    for index in range(1, 1 + state):
        readers = [number for number, op in enumerate(made) if index in op.reads]
        if readers and rng.random() < 0.6:
            tensors[index] = replace(tensors[index], updater=readers[-1])
    return linked(made, tensors)


def training_problem(rng: random.Random, layers: int = 3, momentum: bool = True, update_last: bool = False) -> Problem:
    """A training step of a chain of layers: forward, loss, backward, and an update of each layer's state."""
    sizes = _Sizes(rng)
    tensors = [sizes.tensor("batch", START, pageable=False)]
    ops: list[Op] = []

    def state(name: str) -> int:
        tensors.append(sizes.tensor(name, START, final=True))
        return len(tensors) - 1

    def compute(name: str, reads: list[int], outputs: int, final: bool = False) -> tuple[int, ...]:
        made = range(len(tensors), len(tensors) + outputs)
        tensors.extend(sizes.tensor(f"{name}#{k}", len(ops), final=final and k == 0) for k in range(outputs))
        ops.append(sizes.op(name, reads, made))
        return tuple(made)

    weights = [state(f"weight{k}") for k in range(layers)]
    speeds = [state(f"speed{k}") for k in range(layers)] if momentum else []
    inputs, saved, updates = [0], list[int](), list[tuple[str, list[int]]]()
    for k, weight in enumerate(weights):
        forward = compute(f"forward{k}", [inputs[-1], weight], 2 if k % 2 else 1)
        inputs.append(forward[0])
        saved.append(forward[-1])
    gradient = compute("loss", [inputs[-1], 0], 2, final=True)[1]
    for k in reversed(range(layers)):
        reads = sorted({gradient, inputs[k], weights[k], saved[k]})
        gradient, change = compute(f"backward{k}", reads, 2)
        updates.append((f"update{k}", [change, weights[k], *speeds[k : k + 1]]))
        if not update_last:
            _update(*updates.pop(), compute, tensors, len(ops))
    for update in updates:
        _update(*update, compute, tensors, len(ops))
    return linked(ops, tensors)


def linked(ops: list[Op], tensors: list[Tensor]) -> Problem:
    """The problem with each tensor's readers as its ops say."""
    readers = [tuple(number for number, op in enumerate(ops) if index in op.reads) for index in range(len(tensors))]
    return Problem(tuple(ops), tuple(replace(t, readers=r) for t, r in zip(tensors, readers, strict=True)))


def _update(
    name: str, reads: list[int], compute: Callable[[str, list[int], int], object], tensors: list[Tensor], number: int
) -> None:
    compute(name, reads, 0)
    for index in reads[1:]:
        tensors[index] = replace(tensors[index], updater=number)


class _Sizes:
    """Draws bytes and costs."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def tensor(self, name: str, maker: int, final: bool = False, pageable: bool = True) -> Tensor:
        out_s, out_j, in_s, in_j = (self._quarters(24) for _ in range(4))
        size = self._rng.randint(1, 9)
        return Tensor(name, size, maker, (), -1, final, pageable, out_s, out_j, in_s, in_j)

    def op(self, name: str, reads: list[int], makes: range) -> Op:
        workspace = self._rng.randint(1, 5) if self._rng.random() < 0.3 else 0
        return Op(name, tuple(reads), tuple(makes), self._quarters(40), self._quarters(40), workspace)

    def _quarters(self, most: int) -> float:
        return self._rng.randint(1, most) / 4


def random_dag(rng: random.Random) -> Problem:
    """Six to nine ops of one tensor each, without state, as POET's model has them; any of them may be paged."""
    count, dear = rng.randint(6, 9), rng.choice([0.25, 1.0, 1.0, 4.0])
    inputs = [rng.sample(range(op), min(op, rng.choice([1, 1, 2, 2, 3]))) for op in range(count)]
    tensors = [
        Tensor(
            f"n{op}#0", rng.randint(1, 12), op, (), out_s=rng.randint(1, 24), out_j=dear * rng.randint(1, 40),
            in_s=rng.randint(1, 24), in_j=dear * rng.randint(1, 40),
        )
        for op in range(count)
    ]  # fmt: skip
    ops = [
        Op(f"n{op}", tuple(sorted(inputs[op])), (op,), rng.randint(1, 40), rng.randint(1, 80)) for op in range(count)
    ]
    return linked(ops, tensors)
