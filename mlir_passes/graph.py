"""The kernel graph: a straight line of kernel calls on values, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mlir_passes.space import TensorType


@dataclass(frozen=True)
class KernelText:
    """One unique kernel before lowering: a memref function named by `PLACEHOLDER`, inputs first, then outputs.

    inplace: pairs (input, output) of argument positions that may share storage, because every element
    of the input is read only where the same element of the output is written.
    """

    kind: str
    text: str
    inputs: int
    outputs: int
    flops: int
    bytes_read: int
    bytes_written: int
    inplace: tuple[tuple[int, int], ...] = ()


PLACEHOLDER = "kernel_name"


@dataclass(frozen=True)
class Call:
    """One kernel call: index into `KernelGraph.kernels`, value names it reads and writes.

    site: that of the last op of the step which makes one of its outputs ("op17", "op17'2" where several calls stem from
    that op, "call12" where no site is known); no two calls of a graph have the same.
    """

    kernel: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    site: str = ""


@dataclass(frozen=True)
class KernelGraph:
    """Values by name with their types, the storage each one stands in (views share it), calls in order.

    args and returns are value names in signature order; every return has storage of its own, or is its own state arg.
    """

    kernels: tuple[KernelText, ...]
    calls: tuple[Call, ...]
    types: dict[str, TensorType]
    storage: dict[str, str]
    args: tuple[str, ...]
    returns: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> KernelGraph:
        def kernel(found: dict[str, Any]) -> KernelText:
            pairs = tuple((i, o) for i, o in found.pop("inplace"))
            return KernelText(**found, inplace=pairs)

        return KernelGraph(
            kernels=tuple(map(kernel, data["kernels"])),
            calls=tuple(Call(c["kernel"], tuple(c["inputs"]), tuple(c["outputs"]), c["site"]) for c in data["calls"]),
            types={name: TensorType(tuple(t["shape"]), t["element"]) for name, t in data["types"].items()},
            storage=dict(data["storage"]),
            args=tuple(data["args"]),
            returns=tuple(data["returns"]),
        )
