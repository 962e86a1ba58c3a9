"""One group of ops as a destination-passing function over memrefs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mlir_passes.graph import PLACEHOLDER, KernelText
from mlir_passes.step_text import OpText, StepText, renamed, substituted

INPLACE = "kernel.inplace"  # marks arguments that may be one buffer with another


class Outliner:
    """Turns groups of a step's ops into kernels."""

    def __init__(self, step: StepText) -> None:
        self._step = step
        self._users: dict[str, list[int]] = {}
        for op in step.ops:
            for value in (*op.operands, *op.captures):
                self._users.setdefault(value, []).append(op.position)
        for value in step.returns:
            self._users.setdefault(value, []).append(-1)

    def outline(self, kind: str, ops: Sequence[OpText]) -> tuple[KernelText, list[str], list[str]]:
        """The kernel of a group, and the step's values that it reads and writes, in argument order."""
        members = {op.position for op in ops}
        made = [r for op in ops for r in op.results]
        outputs = [r for r in made if any(user not in members for user in self._users.get(r, []))]
        inputs, helpers = self._needs(ops)
        inplace = self._inplace(ops, inputs, outputs, kind == "rows")
        kernel = KernelText(
            kind=kind,
            text=self._function(ops, helpers, inputs, outputs, {position for pair in inplace for position in pair}),
            inputs=len(inputs),
            outputs=len(outputs),
            flops=sum(op.flops for op in ops),
            bytes_read=sum(map(self._step.bytes, inputs)),
            bytes_written=sum(map(self._step.bytes, outputs)),
            inplace=inplace,
        )
        return kernel, inputs, outputs

    def _needs(self, ops: Sequence[OpText]) -> tuple[list[str], list[OpText]]:
        """Values to pass in, and helper ops to repeat inside, producers first."""
        step, members = self._step, {op.position for op in ops}
        inputs: dict[str, None] = {}
        helpers: dict[int, OpText] = {}

        def visit(value: str) -> None:
            op = step.makers.get(value)
            if op is None or (op.position not in members and not step.is_helper(op)):
                inputs[value] = None
                return
            if op.position in members or op.position in helpers:
                return
            for operand in (*op.operands, *op.captures):
                visit(operand)
            helpers[op.position] = op

        for op in ops:
            for operand in (*op.operands, *op.captures):
                visit(operand)
        return list(inputs), list(helpers.values())

    def _function(
        self, ops: Sequence[OpText], helpers: Sequence[OpText], inputs: Sequence[str], outputs: Sequence[str],
        shared: Collection[int],
    ) -> str:  # fmt: skip
        step, lines, arguments = self._step, list[str](), list[str]()
        for number, value in enumerate((*inputs, *outputs)):
            type_ = step.types[value]
            memref = "memref" + type_.removeprefix("tensor")
            arguments.append(f"%in{number}_: {memref}" + (f" {{{INPLACE}}}" if number in shared else ""))
            name, writable = (value, "") if number < len(inputs) else (f"{_plain(value)}_out", " writable")
            lines.append(f"{name} = bufferization.to_tensor %in{number}_ restrict{writable} : {memref} to {type_}")
        for op in helpers:
            lines.append(op.text())
        for op in ops:
            lines += self._with_places(op, set(outputs))
        for number, value in enumerate(outputs, len(inputs)):
            type_ = step.types[value]
            memref = "memref" + type_.removeprefix("tensor")
            lines.append(
                f"bufferization.materialize_in_destination {value} in restrict writable %in{number}_"
                f" : ({type_}, {memref}) -> ()"
            )
        body = substituted("\n".join(lines), {value: _plain(value) for value in inputs})
        text = f"func.func @{PLACEHOLDER}({', '.join(arguments)}) {{\n{body}\nreturn\n}}"
        return f"module {{\n{renamed(text, lambda number: f'%{number}')}\n}}\n"

    def _with_places(self, op: OpText, outputs: Collection[str]) -> list[str]:
        """The op's lines; where it makes an output and its start was mere storage, it starts from the output's own."""
        operands, before = list(op.operands), list[str]()
        if op.name.startswith("linalg."):
            for index, result in enumerate(op.results, op.inputs):
                start = self._step.makers.get(operands[index])
                if result not in outputs or start is None:
                    continue
                place = f"{_plain(result)}_out"
                if start.name == "tensor.empty":
                    operands[index] = place
                elif start.name == "linalg.fill":
                    operands[index] = f"{place}_start"
                    before.append(self._own(start, operands[index], place))
        return [*before, op.text(operands)]

    def _own(self, fill: OpText, result: str, place: str) -> str:
        """A fill of its own for `place`; names inside are made new too, for a name stands once in a kernel."""
        own = {name: f"{name}_{result[1:]}" for name in fill.inner if name not in fill.captures}
        return substituted(fill.text((fill.operands[0], place), result), own)

    def _inplace(
        self, ops: Sequence[OpText], inputs: Sequence[str], outputs: Sequence[str], rows: bool
    ) -> tuple[tuple[int, int], ...]:
        """Pairs (input, output) that may be one buffer: each element of the input is read only by the op that makes
        the output's same element, or by one before it; in a kernel of rows, which runs phase by phase, by it alone."""
        step, pairs = self._step, list[tuple[int, int]]()
        for index, value in enumerate(inputs):
            readers = [number for number, op in enumerate(ops) if value in op.operands]
            if not readers or any(value in op.captures for op in ops):
                continue
            if not all(_reads_aligned(ops[number], value) for number in readers):
                continue
            for place, output in enumerate(outputs):
                maker = next(number for number, op in enumerate(ops) if output in op.results)
                in_time = readers == [maker] if rows else max(readers) <= maker
                same = step.tensor(value).shape == step.tensor(output).shape and step.bytes(value) == step.bytes(output)
                if in_time and same and ops[maker].is_elementwise:
                    pairs.append((index, len(inputs) + place))
        return tuple(pairs)


def _plain(value: str) -> str:
    """A name of its own for one of an op's several results."""
    return value.replace("#", "_")


def _reads_aligned(op: OpText, value: str) -> bool:
    """Whether an elementwise op reads `value` only at the element that it writes."""
    return op.is_elementwise and all(
        op.maps[i] == op.identity for i, operand in enumerate(op.operands) if operand == value
    )
