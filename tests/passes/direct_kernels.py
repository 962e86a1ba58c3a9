"""One kernel called by itself: on arrays between unreadable pages, with any schedules, in any slices."""

from __future__ import annotations

import ctypes as c
import mmap
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any

import numpy as np
from exact_steps import Step, Tensor, compiled_step
from mlir import ir

from fitness.loader import Loader
from mlir_passes.graph import KernelText
from mlir_passes.ir_tools import new_context
from mlir_passes.kernels.choice import Choice
from mlir_passes.kernels.nest import Nest
from mlir_passes.kernels.schedule import Schedule
from mlir_passes.lower_cpu import compile_choice, read_nest, symbol
from mlir_passes.pipeline import kernel_text
from mlir_passes.program import Program

_KEYS = count()


@cache
def context() -> ir.Context:
    return new_context()


def guarded(array: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy whose first or last byte is the last one that may be touched."""
    size = max(array.nbytes, 1)
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + 2 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(memory, np.uint8)
    libc = c.CDLL(None)
    for place in (0, mmap.PAGESIZE + pages):
        assert not libc.mprotect(c.c_void_p(whole.ctypes.data + place), c.c_size_t(mmap.PAGESIZE), 0)
    start = mmap.PAGESIZE + (pages - array.nbytes if at_end else 0)
    made = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


class One:
    """The only kernel of a step, with the arrays that it is called with."""

    def __init__(self, step: Step, results: Sequence[Tensor]) -> None:
        self.step, self.results = step, results
        self.program: Program = compiled_step(step, results)
        (self.kernel,) = self.program.kernels.values()
        (self.call,) = self.program.plan.calls
        self.text: KernelText = kernel_text(self.kernel)
        self.nest: Nest = read_nest(self.text, context())

    def compiled(self, schedules: Sequence[Schedule] = ()) -> Compiled:
        key = f"test{next(_KEYS)}"
        made = compile_choice(self.text, key, context(), Choice(schedules=tuple(schedules)))
        assert not made.workspace
        loader = Loader()
        loader.add(made.code, key)
        return Compiled(self, loader, c.CFUNCTYPE(None)(loader.address(symbol(key))), made.shards)


class Compiled:
    def __init__(self, one: One, loader: Loader, function: Any, shards: int) -> None:
        self._one, self._loader, self._function = one, loader, function
        self.shards = shards

    def run(self, slices: Sequence[tuple[int, int]] = (), at_end: bool = True) -> list[np.ndarray]:
        """The step's results; slices: (begin, end) of each call, all in one by default."""
        plan, one = self._one.program.plan, self._one
        given = dict(zip(plan.batch, one.step.arguments, strict=True))
        wanted = dict(zip(plan.metrics, one.results, strict=True))
        arrays: list[np.ndarray] = []
        for number, place in enumerate(one.call.args):
            if place in given:
                array = np.asarray(given[place])
            else:
                buffer = plan.buffers[place]
                array = np.frombuffer(b"\xaa" * buffer.bytes, np.dtype(buffer.dtype)).reshape(buffer.shape)
            arrays.append(guarded(array, at_end ^ bool(number % 2)))
        for begin, end in slices or [(0, self.shards)]:
            self.call(arrays, begin, end)
        places = dict(zip(one.call.args, arrays, strict=True))
        return [places[place].copy() for place in wanted]

    def call(self, arrays: Sequence[np.ndarray], begin: int, end: int) -> None:
        """The slices [begin, end) on the kernel's arguments in order."""
        self._function.argtypes = [c.c_void_p] * len(arrays) + [c.c_int64, c.c_int64]
        self._function(*(c.c_void_p(a.ctypes.data) for a in arrays), begin, end)
