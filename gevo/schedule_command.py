"""`gevo schedule`: plans a step within a memory budget, shows the plan, draws it, runs it, saves it."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console

from fitness.program import save_program
from gevo import schedule_curve, schedule_plot, schedule_run, schedule_view
from gevo.errors import INTERRUPTED
from gevo.machine import machine
from gevo.pairs import print_pairs
from gevo.schedule_drawn import names
from gevo.schedule_fit import scheduled
from gevo.schedule_options import Options, check, check_budget, request_of, too_small
from gevo.schedule_plot import Drawn
from gevo.schedule_setup import Ready, prepare_step
from gevo.schedule_sweep import Sweep
from gevo.schedule_view import ScheduleView
from gevo.scheduled import Scheduled, stopped
from mlir_passes.program import Program
from mlir_passes.schedule.solve import Infeasible


def schedule(options: Options, console: Console) -> int:
    """Plan a step as the options say and print the plan; returns the exit code."""
    check(options)
    with ScheduleView(console) as view:
        known = partial(check_budget, options)
        ready = prepare_step(options.workload, options.target, options.page_dir, view, known, options.paging)
    if options.curve:
        return _curve(ready, options, console)
    request = request_of(options, ready.base.plan.peak_bytes, ready.problem.time_s)
    try:
        with ScheduleView(console, options.seconds) as view:
            found, program = scheduled(ready, request, view)
    except Infeasible as error:
        raise too_small(error) from error
    show(found, console)
    if options.plot is not None:
        given = schedule_view.title(found), _axis_text(found), found.problem, found.solution.steps
        drawn = Drawn(*given, request.budget_bytes, names(ready.bench.prepared.signature))
        schedule_plot.plot(drawn, options.plot)
        console.print(f"Wrote {options.plot}", highlight=False, soft_wrap=True)
    if options.to is not None:
        _save(options.to, ready, found, program)
        entry = ready.bench.prepared.signature.entry
        text = f"Wrote {options.to}. Use it with: {entry} = gevo.load({str(options.to)!r})"
        console.print(text, highlight=False, soft_wrap=True)
    if stopped(found.solution):
        console.print("Stopped; this is the best so far", highlight=False)
        return INTERRUPTED
    if options.run:
        return _run(ready, found, program, options, console)
    return 0


def _axis_text(found: Scheduled) -> str:
    if found.time_method == found.energy_method:
        return f"seconds and joules by {found.energy_method}"
    return f"{found.time_method}; joules by {found.energy_method}"


def show(found: Scheduled, console: Console) -> None:
    console.print(schedule_view.table(found), highlight=False)
    print_pairs(schedule_view.lines(found), console)


def _save(folder: Path, ready: Ready, found: Scheduled, program: Program) -> None:
    prepared = ready.bench.prepared
    usage = found.solution.usage
    extra = {
        "workload": found.workload,
        "signature": prepared.signature.to_json(),
        "schedule": {
            "target": found.target,
            "budget_bytes": found.request.budget_bytes,
            "energy_j": usage.energy_j,
            "energy_method": found.energy_method,
            "time_s": found.solution.makespan_s,
            "time_method": found.time_method,
            "usage": asdict(usage),
            "genes": found.stored.decode(),
            "proven": found.solution.proven,
            "gap": found.gap,
        },
        "machine": machine(),
    }
    initial = prepared.folder / f"init_{prepared.signature.quality.seeds[0]}.npz"
    save_program(
        folder, program, extra, {"step.mlir": ready.bench.text.encode(), "initial_state.npz": initial.read_bytes()}
    )


def _run(ready: Ready, found: Scheduled, program: Program, options: Options, console: Console) -> int:
    """Run it beside all kept and print what came of it; 1 if it is not what was planned."""
    ran = schedule_run.run(ready.bench.prepared, program, ready.base, options.run, options.page_dir)
    print_pairs(schedule_run.lines(ran, found), console)
    right = not ran.differs and ran.peak_bytes == found.peak_bytes and ran.paged_bytes <= found.paged_bytes
    return 0 if right else 1


def _curve(ready: Ready, options: Options, console: Console) -> int:
    """Print and draw what budgets from the least to all kept cost; returns the exit code."""
    request = request_of(options, ready.base.plan.peak_bytes, ready.problem.time_s)
    sweep = Sweep(ready, request)
    try:
        with ScheduleView(console, options.seconds) as view:
            sweep.run(view)
    except KeyboardInterrupt:
        if sweep.curve.budgets:
            console.print(schedule_curve.table(sweep.curve), highlight=False)
        console.print("Stopped", highlight=False)
        return INTERRUPTED
    console.print(schedule_curve.table(sweep.curve), highlight=False)
    if options.plot is not None:
        schedule_curve.plot(sweep.curve, options.plot)
        console.print(f"Wrote {options.plot}", highlight=False, soft_wrap=True)
    return 0
