"""Random kernel graphs without IR, and two interpreters: one of the graph, one of the plan that was made of it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

import numpy as np

from mlir_passes.graph import Call, KernelGraph, KernelText
from mlir_passes.plan import Settled, make_plan, settle_state
from mlir_passes.program import Plan
from mlir_passes.space import TensorType

SIZES = (1, 5, 16, 24, 40)  # in f32


def random_graph(rng: random.Random) -> tuple[KernelGraph, int, int]:
    """A graph as `partition` makes them, with its numbers of state and batch arguments."""
    n_state, n_batch = rng.randint(0, 3), rng.randint(1, 2)
    args = [f"arg{i}" for i in range(n_state + n_batch)]
    types = {a: TensorType((rng.choice(SIZES),), "f32") for a in args}
    storage = {a: a for a in args}
    kernels: list[KernelText] = []
    calls: list[Call] = []

    def call(outputs: Sequence[TensorType]) -> list[str]:
        inputs = [rng.choice(list(types)) for _ in range(rng.randint(1, 3))]
        names = [f"v{len(types) + i}" for i in range(len(outputs))]
        for name, found in zip(names, outputs, strict=True):
            types[name], storage[name] = found, name
        sizes = [types[i].bytes for i in inputs]
        own = [
            i for i, size in enumerate(sizes) if len(outputs) == 1 and size == outputs[0].bytes and rng.random() < 0.7
        ]
        pairs = tuple((i, len(inputs)) for i in own)
        total = sum(o.bytes for o in outputs)
        kernels.append(
            KernelText("toy", f"kernel {len(kernels)}", len(inputs), len(outputs), 0, sum(sizes), total, pairs)
        )
        calls.append(Call(len(kernels) - 1, tuple(inputs), tuple(names)))
        return names

    for _ in range(rng.randint(1, 8)):
        (*_, name) = call([TensorType((rng.choice(SIZES),), "f32") for _ in range(rng.choice((1, 1, 1, 2)))])
        if rng.random() < 0.3:  # a reshape: another name and shape for the same bytes
            types[f"{name}.view"] = TensorType((1, *types[name].shape), "f32")
            storage[f"{name}.view"] = name
    # every returned value has storage of its own, or is the state argument that it stands for
    returns = [a if rng.random() < 0.1 else call([types[a]])[0] for a in args[:n_state]]
    for _ in range(rng.randint(0, 2)):
        returns += call([TensorType((rng.choice(SIZES),), "f32")])
    while len(calls) < 12 and rng.random() < 0.4:
        call([TensorType((rng.choice(SIZES),), "f32")])
    return KernelGraph(tuple(kernels), tuple(calls), types, storage, tuple(args), tuple(returns)), n_state, n_batch


def plan_of(
    graph: KernelGraph, n_state: int, n_batch: int, workspaces: dict[str, int]
) -> tuple[Settled, list[str], Plan]:
    settled = settle_state(graph, n_state)
    keys = [k.text for k in settled.graph.kernels]
    return settled, keys, make_plan(settled, keys, {key: workspaces.get(key, 0) for key in keys}, n_state, n_batch)


def kernel_output(text: str, inputs: Sequence[bytes], sizes: Sequence[int]) -> list[bytes]:
    """What a toy kernel computes: bytes that depend on every byte it reads."""
    if "memref.copy" in text:
        return [inputs[0]]
    digest = hashlib.sha256(text.encode() + b"".join(inputs)).digest()
    made = []
    for index, size in enumerate(sizes):
        seed = int.from_bytes(hashlib.sha256(digest + bytes([index])).digest()[:8], "little")
        made.append(np.random.default_rng(seed).integers(0, 256, size, np.uint8).tobytes())
    return made


def run_graph(graph: KernelGraph, arguments: Sequence[bytes]) -> list[bytes]:
    """The returned values of a graph, every value in memory of its own."""
    memory = dict(zip(graph.args, arguments, strict=True))
    for call in graph.calls:
        made = kernel_output(
            graph.kernels[call.kernel].text,
            [memory[graph.storage[v]] for v in call.inputs],
            [graph.types[v].bytes for v in call.outputs],
        )
        memory.update(zip(call.outputs, made, strict=True))
    return [memory[graph.storage[r]] for r in graph.returns]


class PlanMachine:
    """Runs a plan on an arena of exactly `peak_bytes`, and makes every careless overlap visible.

    A kernel destroys its outputs and its workspace before it reads any input but those it may share storage with.
    """

    def __init__(self, plan: Plan, kernels: dict[str, KernelText]) -> None:
        self.plan, self.kernels = plan, kernels
        self.arena = np.full(plan.peak_bytes, 0xAA, np.uint8)

    def write(self, indices: Sequence[int], values: Sequence[bytes]) -> None:
        for index, value in zip(indices, values, strict=True):
            self._view(index)[:] = np.frombuffer(value, np.uint8)

    def read(self, indices: Sequence[int]) -> list[bytes]:
        return [self._view(i).tobytes() for i in indices]

    def run(self) -> None:
        for call in self.plan.calls:
            kernel = self.kernels[call.kernel]
            outputs = call.args[kernel.inputs : kernel.inputs + kernel.outputs]
            shared = {i for i, _ in kernel.inplace}
            early = {i: self._view(call.args[i]).tobytes() for i in shared}
            for index in call.args[kernel.inputs :]:
                self._view(index)[:] = 0x55
            inputs = [early.get(i) or self._view(call.args[i]).tobytes() for i in range(kernel.inputs)]
            made = kernel_output(kernel.text, inputs, [self.plan.buffers[o].bytes for o in outputs])
            self.write(outputs, made)

    def _view(self, index: int) -> np.ndarray:
        buffer = self.plan.buffers[index]
        return self.arena[buffer.offset : buffer.offset + buffer.bytes]
