"""What the commands print that only read: runs, fronts, records, kernels, workloads, the machine."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fitness.job import Context
from fitness.result import Result
from gevo import confirmed
from gevo.config import CampaignConfig
from gevo.confirm_table import WIDE, print_confirmed, sentence
from gevo.front import front, methods_text, plot, table
from gevo.launch import base_result, reopened, run_name, runs_in
from gevo.limits import limits_text
from gevo.pairs import print_pairs
from gevo.pick import pick
from gevo.progress import outcomes_text
from gevo.record import Record, versus
from gevo.scheduling import gene_text
from gevo.store import Run
from gevo.tally import Tally
from gevo.units import joules, size, span
from mlir_passes.schedule.genes import from_plain


def status(folder: Path, console: Console) -> None:
    """Print what the run has found so far and whether it is running."""
    run = Run(folder)
    config = CampaignConfig.from_json(run.manifest["config"])
    tally = Tally(config.objectives, config.budget, config.search.population, run.limits, run.manifest["floors"])
    tally.load(run.records())
    spent, writer = run.spent(), run.writer()
    tally.generation = spent.generations
    more = "" if config.budget.reached(spent) else f"; go on: gevo resume {run_name(folder)}"
    lines = {
        "run": f"{folder}, begun {run.manifest['created']}",
        "workload": config.workload,
        "now": f"running, process {writer}" if writer else f"not running{more}",
        "budget": config.budget.text,
        **({"limits": limits_text(run.limits)} if run.limits else {}),
        "spent": f"{span(tally.elapsed_s)}, {tally.records} evaluations, {tally.generation} generations",
        "outcomes": outcomes_text(tally),
        "confirmed": _confirmed_text(folder),
        "known programs": f"{tally.answered} variants were answered by their fingerprint",
        **{f"best {name}": f"{versus(r, tally.base, name)}, {r.id}" for name, r in tally.best.items()},
    }
    print_pairs(lines, console)


def _confirmed_text(folder: Path) -> str:
    """How many records of a run have which verdict."""
    known = confirmed.load(folder)
    verdicts = Counter(str(row.verdict) for row in known.rows.values() if row.verdict) if known is not None else {}
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    return told or f"nothing; measure the front again: gevo confirm {run_name(folder)}"


def list_runs(run_dir: Path, console: Console) -> None:
    """Print the runs in a folder, the newest last."""
    shown = Table("run", "workload", "evaluations", "state", box=None)
    for folder in runs_in(run_dir):
        run = Run(folder)
        state = f"running, process {run.writer()}" if run.writer() else "not running"
        shown.add_row(folder.name, run.manifest["config"]["workload"], str(len(run.records())), state)
    console.print(shown if shown.row_count else f"No runs in {run_dir}. Start one: gevo search digits --for 1m")


def show_front(folder: Path, as_json: bool, picture: Path | None, console: Console, everything: bool = False) -> None:
    """Print the front as a table or JSON; draw it too if `picture` is given. everything: also what does not hold."""
    run = Run(folder)
    config, found = run.manifest["config"], confirmed.load(folder)
    found = front(run.records(), config["objectives"], run.manifest["floors"], found, everything, run.limits)
    if found is None:
        console.print("No valid record yet")
        return
    if picture is not None:
        plot(found, picture, f"{folder.name}: {run.manifest['config']['workload']}")
        console.print(f"Wrote {picture}", highlight=False)
    if as_json:
        print(json.dumps(found.to_json(), indent=1, allow_nan=False))
        return
    console.print(table(found, folder.name, wide=console.width >= WIDE))
    console.print(f"How measured: {methods_text(found)}", highlight=False, style="dim")
    print_confirmed(found, run_name(folder), console)


def show_kernels(workload: str, time: bool, picture: Path | None, as_json: bool, console: Console) -> None:
    """Print the kernels of a workload's step as a table or JSON; draw them too if `picture` is given."""
    from gevo.kernels import caption, step_kernels
    from gevo.kernels import table as kernels_table
    from gevo.kernels_plot import check_file
    from gevo.kernels_plot import plot as plot_kernels

    if picture is not None:
        check_file(picture)
    found = step_kernels(workload, time)
    if picture is not None:
        plot_kernels(found, picture)
    if as_json:
        print(json.dumps(found.to_json(), indent=1, allow_nan=False))
        return
    console.print(kernels_table(found), highlight=False)
    console.print(caption(found), highlight=False, style="dim")
    if picture is not None:
        console.print(f"Wrote {picture}", highlight=False)


def show(folder: Path, identifier: str, rerun: bool, picture: Path | None, console: Console) -> None:
    """Print one record; with `rerun`, evaluate it again beside it; draw its schedule too if `picture` is given."""
    run = Run(folder)
    record = pick(run, identifier)
    if picture is not None:
        _draw_schedule(run, record, picture)
    base = next((r for r in run.records() if r.is_base), None)
    result = record.result
    print_pairs(
        {
            "record": f"{record.id}, generation {record.generation}, key {record.key}",
            "parents": ", ".join(record.parents) or "none",
            "outcome": f"{result.outcome}" + (f" in {result.stage}" if result.stage else ""),
            **({"over a limit": run.over(record)} if result.ok and run.over(record) else {}),
            **({"detail": result.detail} if result.detail else {}),
            **({"answered by": result.answered_by} if result.answered_by else {}),
            "stages": ", ".join(f"{name} {seconds:.3f} s" for name, seconds in result.stage_s.items()) or "none",
            "kernels": f"{result.cache_hits} from the cache, {result.cache_misses} compiled",
            **({"storage": f"{record.genome.storage} between kernels"} if record.genome.storage != "f32" else {}),
            **({"paged": size(result.paged_bytes)} if result.paged_bytes else {}),
            **{f"gene {n}": gene_text(gene) for n, gene in enumerate(from_plain(record.genome.schedule), 1)},
            **{f"edit {n}": _edit_text(edit.to_json()) for n, edit in enumerate(record.genome.edits, 1)},
        },
        console,
    )
    known = confirmed.load(folder)
    row = known.of(record) if known is not None else None
    if row is not None:
        console.print(f"Measured again: {sentence(row)}", highlight=False, soft_wrap=True)
    again = _again(run, record) if rerun else None
    console.print(_measures(record, base, again))
    if again is not None and not again.ok:
        console.print(f"Now: {again.outcome} in {again.stage}: {again.detail}", highlight=False)
    if picture is not None:
        console.print(f"Wrote {picture}", highlight=False, soft_wrap=True)


def _draw_schedule(run: Run, record: Record, picture: Path) -> None:
    from gevo.ir_child import in_child
    from gevo.kernels_plot import check_file

    check_file(picture)
    context = reopened(run.manifest, run.folder)
    energy = record.result.objectives.get("energy_j")
    told = f", {joules(energy.value)} by {energy.method}" if energy is not None else ""
    in_child(
        "draw_schedule",
        prepared=context.prepared,
        base=context.base,
        cache=context.cache,
        genome=record.genome.to_json(),
        tuning=context.tuning,
        threads=context.threads,
        title=f"{run.manifest['config']['workload']}, {record.id} of {run.folder.name}{told}",
        budget_bytes=int(run.limits.get("peak_bytes", 0)),
        to=str(picture.absolute()),
    )


def explain_operators(folder: Path, as_json: bool, console: Console) -> int:
    """Print which kinds of edits paid in a run, from its records; returns the exit code."""
    from gevo.explain.operators import kinds, operators, table

    run = Run(folder)
    given = run.records(), run.manifest["config"]["objectives"], run.manifest["floors"]
    found = {"operators": operators(*given), "kinds": kinds(*given)}
    if as_json:
        print(json.dumps({n: [row.to_json() for row in rows] for n, rows in found.items()}, indent=1, allow_nan=False))
        return 0
    console.print(table(found["operators"], f"Operators of {folder.name}"))
    console.print(table(found["kinds"], f"Kinds of edits of {folder.name}, by any operator"))
    return 0


def workloads(console: Console) -> None:
    from workloads.catalog import ABOUT, FORMS, NAMED

    shown = Table("workload", "what it is", box=None)
    for name in NAMED:
        shown.add_row(name, ABOUT[name])
    console.print(shown)
    console.print(f"{FORMS}.", highlight=False)


def doctor(run_dir: Path, console: Console) -> int:
    """Print what works here; 1 if something is missing that every search needs."""
    from gevo.doctor import State, examine

    shown = Table("what", "state", "found", "to do", box=None)
    findings = examine(run_dir)
    for finding in findings:
        shown.add_row(finding.name, str(finding.state), finding.found, finding.todo)
    console.print(shown)
    return int(any(f.state is State.MISSING for f in findings))


def _again(run: Run, record: Record) -> Result:
    from fitness.pool import Pool

    context: Context = reopened(run.manifest, run.folder)
    with Pool(context, 1, base_result(run.manifest)) as pool:
        return pool.evaluate([record.genome.to_json()], {})[0]


def _measures(record: Record, base: Record | None, again: Result | None) -> Table:
    shown = Table("objective", "value", "spread", "method", box=None)
    if again is not None:
        shown.add_column("now")
    for name, measure in record.result.objectives.items():
        cells = [name, versus(record, base, name), f"{measure.spread:.3g}", measure.method]
        if again is not None:
            cells.append(versus(replace(record, result=again), base, name) if again.ok else "-")
        shown.add_row(*cells)
    return shown


def _edit_text(edit: dict[str, Any]) -> str:
    fields = ", ".join(f"{name}={json.dumps(value)}" for name, value in edit.items() if name != "kind")
    return f"{edit['kind']} {fields}"
