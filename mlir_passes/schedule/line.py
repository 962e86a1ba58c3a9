"""From the genes of a schedule to the line of steps that a plan follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mlir_passes.plan import LineOf, Settled
from mlir_passes.plan_line import Line
from mlir_passes.schedule.decode import decode
from mlir_passes.schedule.from_graph import Costs, problem_of
from mlir_passes.schedule.genes import Gene
from mlir_passes.schedule.overlap import overlapped
from mlir_passes.schedule.steps import replay


def line_of(
    genes: Sequence[Gene],
    n_state: int,
    n_batch: int,
    costs: Costs,
    on_dropped: Callable[[Sequence[str]], None] = lambda _: None,
) -> LineOf:
    """What makes the line of a settled graph, for `pipeline.compile_module`.

    Transfers go on beside the computing as far as that takes no more memory. on_dropped is told, in words, of genes
    that cannot be honoured, such as those of a tensor that an edit removed; without them the schedule is as before.
    """

    def make(settled: Settled, keys: Sequence[str], workspaces: Mapping[str, int]) -> Line:
        decoded = decode(problem_of(settled, keys, workspaces, n_state, n_batch, costs), genes)
        if decoded.dropped:
            on_dropped(decoded.dropped)
        peak_bytes = replay(decoded.problem, decoded.steps).peak_bytes
        return Line(decoded.problem, overlapped(decoded.problem, decoded.steps, peak_bytes).steps)

    return make
