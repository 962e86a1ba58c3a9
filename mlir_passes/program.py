"""The compiled form of a step: plain data that a runner, the cost model and an export read.

This file imports nothing heavy. A `Program` is what `mlir_passes.pipeline.compile_program`
returns; `fitness.program` saves and loads it as a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Buffer:
    """One value's place in the arena: bytes [offset, offset + bytes), row-major, dense.

    role: state | batch | metric | activation | workspace | page, the last one a place in the page file, not in the
    arena. i1 values take one byte an element (dtype "bool"). dtype: NumPy's name, of signed integers unless
    `fitness.typed` knows better.
    """

    name: str
    role: str
    offset: int
    bytes: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class KernelCall:
    """One row of the table: kernel key, then the buffers (indices into `Plan.buffers`) it is given, in order."""

    kernel: str
    args: tuple[int, ...]


@dataclass(frozen=True)
class Transfer:
    """A copy between the arena and the page file. kind: out (to the file) or in. buffer, page: indices into
    `Plan.buffers` of the place in the arena and of the one in the file.

    start: it begins when the calls before this index have run, and all transfers before it have ended.
    end: the call of this index, or the end of the step, waits for it; with end == start it is waited for at once.
    """

    kind: str
    buffer: int
    page: int
    start: int
    end: int


@dataclass(frozen=True)
class Plan:
    """Order of kernel calls and the place of every buffer.

    state, batch, metrics: buffer indices in signature order. After one run of `calls` the new state
    stands in the state buffers again, so a step may follow a step; a state buffer of role page stands in the page file.
    `peak_bytes` is the exact arena size, `paged_bytes` that of the page file. `transfers` are in the order in which
    they are done: two queues, one of calls and one of transfers, wait for each other where `start` and `end` say.
    """

    buffers: tuple[Buffer, ...]
    calls: tuple[KernelCall, ...]
    state: tuple[int, ...]
    batch: tuple[int, ...]
    metrics: tuple[int, ...]
    peak_bytes: int
    transfers: tuple[Transfer, ...] = ()
    paged_bytes: int = 0


@dataclass(frozen=True)
class Kernel:
    """One unique kernel: `text` is its memref function (symbol `symbol`), costs are per call from the loop nest.

    flops counts arithmetic ops on elements (a multiply-add is 2); bytes are compulsory traffic: each operand once.
    shards: slices of the outermost parallel loop, 1 where there is none to split; the function takes `begin, end`
    after its buffers and does those slices. Slices write disjoint memory, so they may run at once.
    inputs: its first buffers, which it only reads; 0 where that is not known.
    library: the function of a library that its object calls, "" for none.
    """

    key: str
    symbol: str
    kind: str
    text: str
    flops: int
    bytes_read: int
    bytes_written: int
    shards: int = 1
    inputs: int = 0
    library: str = ""


@dataclass(frozen=True)
class Program:
    """Plan, unique kernels by key, object code by kernel key, and what the objects were made for."""

    plan: Plan
    kernels: Mapping[str, Kernel]
    objects: Mapping[str, bytes]
    target: str
    cpu: str
