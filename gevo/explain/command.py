"""`gevo explain`: wires a run, evaluators and views together."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from fitness.job import Context
from fitness.result import Result
from gevo.errors import Unwritable
from gevo.explain.explain import Measuring, explanation
from gevo.explain.lab import Lab, OpenPool, scales
from gevo.explain.report import Explanation
from gevo.explain.seen import look
from gevo.explain.setup import check_record, kept_file, plan
from gevo.explain.view import ExplainView
from gevo.launch import base_result
from gevo.pick import pick
from gevo.store import Run
from mlir_passes.space import Space
from workloads.workload import PreparedWorkload


def explain(
    run: Run, context: Context, identifier: str, seconds: float, rounds: int, page: Path | None, as_json: bool,
    console: Console,
) -> None:  # fmt: skip
    """Print why a record is what it is; raises CampaignError where there is nothing to explain."""
    record = pick(run, identifier)
    check_record(record, run)
    if page is not None and not page.absolute().parent.is_dir():
        raise Unwritable("no such folder", page.absolute().parent, "Make it first")
    base = base_result(run.manifest)
    space = Space.load(run.folder / "space.json")
    deadline = time.monotonic() + seconds if seconds else math.inf
    told = Console(stderr=True) if as_json else console
    made = plan(context, rounds)
    with (
        ExplainView(told, deadline) as view,
        Lab(record.genome, space, made, opener(base), kept_file(run, record), view, deadline) as lab,
    ):
        measuring = Measuring(lab, scales(base, context.objectives), view.stage)
        measuring.run()
    prepared = PreparedWorkload.load(Path(context.prepared))
    seen = kept_file(run, record).with_suffix(".ir.json")
    shown = look(context, lab.genome_of(measuring.minimiser.kept), prepared.signature, space, seen)
    workload = run.manifest["config"]["workload"]
    found = explanation(
        run.folder.name, record, workload, lab, measuring, shown, _method(made.rounds, len(made.contexts) > 1)
    )
    show(found, page, as_json, console)


def show(found: Explanation, page: Path | None, as_json: bool, console: Console) -> None:
    """Print an explanation, and write it as a page if one is named."""
    if page is not None:
        from gevo.explain.page import html

        page.write_text(html(found))
    if as_json:
        print(json.dumps(found.to_json(), indent=1, allow_nan=False))
        return
    from gevo.explain.text import show as show_text

    show_text(found, console)
    if page is not None:
        console.print(f"Wrote {page}", highlight=False)


def opener(base: Result) -> OpenPool:
    """Opens pools of one worker whose times refer to the base as the run measured it. Its result answers for no
    variant: other seeds would give it another error."""
    from fitness import pool

    return lambda context: pool.Pool(context, 1, replace(base, fingerprint=""))


def _method(rounds: int, trained: bool) -> str:
    seeds = ", each trained from another seed and scored on validation data" if trained else ""
    return (
        f"{rounds} evaluations each{seeds}; runtime as the ratio to the base, window by window in turn. Intervals hold "
        "the true value in 95 % of cases, those of pairs in 99 %. Minimised by delta debugging: an edit goes if "
        "without it no objective is worse beyond noise."
    )
