"""The kernels of a step as plain data: what each call does, reads, writes and costs, and how it is made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fitness.choices import choices_text
from gevo.files import write_text
from gevo.ir_child import in_child
from gevo.tuning_store import TuningStore
from gevo.units import count, seconds, size
from mlir_passes.program import Buffer, Program
from workloads.cache import cache_folder
from workloads.prepare import prepare
from workloads.workload import Signature

if TYPE_CHECKING:
    from rich.table import Table

KINDS = ("contraction", "rows", "reduction", "elementwise", "move", "scf")
_MOST_WORK = 4  # ops of a kernel that the table names
_LEAST_S = 1e-7  # what a clock around a call can tell from nothing


@dataclass(frozen=True)
class Value:
    """What a call reads or writes. maker: number of the call that writes it, 0 for what the step is given.

    role: state, batch, metric or activation; a new state leaf is a value of its own, named as the old one.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    maker: int


@dataclass(frozen=True)
class Row:
    """One call, numbered from 1. reads, writes: indices of values; inplace: pairs of them that are one buffer.

    work, loops, made_by, phases, why: see `mlir_passes.describe`. tuned: made as `gevo tune` found, not by default.
    seconds: measured; 0 where it was not.
    """

    number: int
    kernel: str
    kind: str
    work: tuple[str, ...]
    loops: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    inplace: tuple[tuple[int, int], ...]
    flops: int
    bytes: int
    shards: int
    made_by: str
    phases: tuple[str, ...]
    why: str
    tuned: bool
    seconds: float = 0.0

    @property
    def title(self) -> str:
        """What it does in a few words."""
        more = "; ..." if len(self.work) > _MOST_WORK else ""
        return f"{self.kind}: {'; '.join(self.work[:_MOST_WORK])}{more}"

    @property
    def made(self) -> str:
        """How it becomes code, in a few words."""
        families = dict.fromkeys(phase.partition(" ")[0] for phase in self.phases)
        text = f"{len(self.phases)} phases: {', '.join(families)}" if len(self.phases) > 1 else self.made_by
        text = self.phases[0] if len(self.phases) == 1 else text
        return f"{text}, tuned" if self.tuned else text


@dataclass(frozen=True)
class StepKernels:
    """A step's calls in order, with the values between them. step_s, method: of the measurement; 0 and "" without."""

    workload: str
    values: tuple[Value, ...]
    rows: tuple[Row, ...]
    peak_bytes: int
    step_s: float = 0.0
    method: str = ""

    @property
    def timed(self) -> bool:
        return bool(self.method)

    def share(self, row: Row) -> float:
        """Of the measured time of all calls."""
        return row.seconds / max(sum(r.seconds for r in self.rows), 1e-12)

    def label(self, value: Value) -> str:
        """Its name; "#3" for what call 3 makes, "#3b" for its second result."""
        if value.role != "activation":
            return value.name
        own = [v for v in self.values if v.maker == value.maker]
        return f"#{value.maker}{chr(ord('a') + own.index(value)) if len(own) > 1 else ''}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StepKernels:
        fields: dict[str, Any] = {**data, "values": tuple(map(_value_of, data["values"]))}
        fields["rows"] = tuple(map(_row_of, data["rows"]))
        return StepKernels(**fields)


def _value_of(data: Mapping[str, Any]) -> Value:
    fields: dict[str, Any] = {**data, "shape": tuple(data["shape"])}
    return Value(**fields)


def _row_of(data: Mapping[str, Any]) -> Row:
    fields: dict[str, Any] = {**data, "inplace": tuple(tuple(pair) for pair in data["inplace"])}
    fields |= {name: tuple(data[name]) for name in ("work", "reads", "writes", "phases")}
    return Row(**fields)


def step_kernels(workload: str, time: bool) -> StepKernels:
    """The kernels of a workload's unedited step, made as a search would make them; found in a process of its own."""
    prepared = prepare(workload)
    with TemporaryDirectory(prefix="gevo-kernels-") as name:
        folder = Path(name)
        in_child("make_base", prepared=str(prepared.folder), folder=name)
        write_text(folder / "tuning.json", choices_text(TuningStore().choices()))
        in_child(
            "describe_kernels",
            prepared=str(prepared.folder),
            base=str(folder / "base.mlir"),
            cache=str(cache_folder() / "objects"),
            tuning=str(folder / "tuning.json"),
            time=time,
            to=str(folder / "kernels.json"),
        )
        return StepKernels.from_json({**json.loads((folder / "kernels.json").read_text()), "workload": workload})


def collect(
    program: Program, signature: Signature, words: Mapping[str, Mapping[str, Any]], call_s: Sequence[float] = ()
) -> StepKernels:
    """The calls of a program as rows. words: by kernel key, the fields of a row that say what it does."""
    plan = program.plan
    names = {i: s.name for i, s in zip((*plan.state, *plan.batch), (*signature.state, *signature.batch), strict=True)}
    if len(plan.metrics) == len(signature.metrics):
        names |= {i: s.name for i, s in zip(plan.metrics, signature.metrics, strict=True)}
    values = [_value(plan.buffers[i], names, i, 0) for i in (*plan.state, *plan.batch)]
    at = {buffer: number for number, buffer in enumerate((*plan.state, *plan.batch))}
    names |= {t.buffer: names[t.page] for t in plan.transfers if t.page in names}
    moves = list(reversed(plan.transfers))
    rows: list[Row] = []
    for number, call in enumerate(plan.calls, 1):
        while moves and moves[-1].start < number:  # the value goes along
            move = moves.pop()
            source, to = (move.buffer, move.page) if move.kind == "out" else (move.page, move.buffer)
            at[to] = at[source]
        kernel = program.kernels[call.kernel]
        used = [i for i in call.args if plan.buffers[i].role != "workspace"]
        reads, writes = used[: kernel.inputs], used[kernel.inputs :]
        before = [at[i] for i in reads]
        for i in writes:
            values.append(_value(plan.buffers[i], names, i, number))
            at[i] = len(values) - 1
        rows.append(
            Row(
                number=number,
                kernel=call.kernel,
                kind=kernel.kind,
                reads=tuple(before),
                writes=tuple(at[i] for i in writes),
                inplace=tuple((v, at[i]) for v, i in zip(before, reads, strict=True) if i in writes),
                flops=kernel.flops,
                bytes=kernel.bytes_read + kernel.bytes_written,
                shards=kernel.shards,
                seconds=call_s[number - 1] if call_s else 0.0,
                **words[call.kernel],
            )
        )
    return StepKernels(signature.name, tuple(values), tuple(rows), plan.peak_bytes)


def _value(buffer: Buffer, names: Mapping[int, str], index: int, maker: int) -> Value:
    role = "state" if buffer.role == "page" else buffer.role
    return Value(names.get(index, buffer.name), role, buffer.shape, buffer.dtype, buffer.bytes, maker)


def table(step: StepKernels) -> Table:
    """Two lines a call: what it does over which loops; what it reads and writes, and how it is made."""
    from rich.table import Table

    kernels = len({row.kernel for row in step.rows})
    shown = Table(
        title=f"{step.workload}: {len(step.rows)} calls of {kernels} kernels, arena {size(step.peak_bytes)}",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        title_justify="left",
    )
    shown.add_column("#\n", justify="right")
    shown.add_column("kernel\nreads -> writes")
    shown.add_column("loops\nmade by")
    shown.add_column("flop\nbytes", justify="right", no_wrap=True)
    shown.add_column("slices\n", justify="right", no_wrap=True)
    if step.timed:
        shown.add_column("time\nof all", justify="right", no_wrap=True)
        shown.add_column("GF/s\n", justify="right", no_wrap=True)
    for row in step.rows:
        cells = [str(row.number), f"{row.title}\n{_flow(step, row)}", f"{row.loops}\n{row.made}"]
        cells += [f"{count(row.flops)}\n{size(row.bytes)}", str(row.shards)]
        if step.timed:
            cells += [f"{time_text(row)}\n{step.share(row):.1%}", _rate(row)]
        shown.add_row(*cells)
    return shown


def time_text(row: Row) -> str:
    return seconds(row.seconds) if row.seconds >= _LEAST_S else f"< {seconds(_LEAST_S)}"


def caption(step: StepKernels) -> str:
    """What the table's words mean, and how its times were measured."""
    parts = [
        "#3 is what call 3 writes; in place: it takes the memory of the old value. "
        "Made by: family, then what one tile holds: rows x vectors x lanes; see docs/kernels.md."
    ]
    tuned = sum(row.tuned for row in step.rows)
    if tuned:
        parts.append(f"{tuned} calls are made as tuned for this CPU.")
    loops = sorted({f"{row.kind}, {row.why}" for row in step.rows if row.why})
    if loops:
        parts.append(f"Plain loops, because no emitter knows them: {'; '.join(loops)}.")
    if step.timed:
        whole = sum(row.seconds for row in step.rows)
        parts.append(
            f"Times are measured: {step.method}. The calls take {seconds(whole)} together, "
            f"a step without clocks in it {seconds(step.step_s)}."
        )
    return " ".join(parts)


def _flow(step: StepKernels, row: Row) -> str:
    kept = {new for _, new in row.inplace}
    made = [f"{step.label(step.values[v])}{' in place' if v in kept else ''}" for v in row.writes]
    reads = [step.label(step.values[v]) for v in row.reads]
    return f"{', '.join(reads) or 'nothing'} -> {', '.join(made)}"


def _rate(row: Row) -> str:
    return f"{row.flops / row.seconds * 1e-9:.1f}" if row.flops and row.seconds >= _LEAST_S else "-"
