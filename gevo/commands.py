"""What the commands that measure or write do once their options are read: they wire workload, store, search and
evaluators."""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console

from fitness.job import Context
from gevo import confirmed
from gevo.campaign import Campaign, Ending
from gevo.config import Budget, CampaignConfig
from gevo.confirm_table import sentence
from gevo.errors import INTERRUPTED, RunLocked
from gevo.inspection import show_front
from gevo.launch import (
    base_result,
    context_for,
    crowded,
    freeze_choices,
    lay_out,
    lay_out_beginning,
    lay_out_schedules,
    manifest,
    new_folder,
    permitted,
    reopened,
    run_name,
)
from gevo.lock import WriterLock
from gevo.machine import cores
from gevo.pick import pick
from gevo.progress import view_for
from gevo.scheduling import found_text
from gevo.store import Run, RunWriter
from gevo.units import seconds as seconds_text
from gevo.units import span

if TYPE_CHECKING:
    from gevo.schedule_options import Options


def search(config: CampaignConfig, folder: Path, console: Console, confirm: bool = True) -> int:
    """Start a campaign in the new folder and run it; returns the exit code."""
    from fitness.pool import Pool
    from workloads.catalog import NAMED, resolve

    source = resolve(config.workload)  # a wrong name ends here, before anything is made
    if config.workload not in NAMED:  # a file may be named from elsewhere when the run is resumed
        config = replace(config, workload=f"{source.path}:{source.object}" if source.object else str(source.path))
    _warn_if_crowded(config.workers, config.threads, console)
    with new_folder(folder):
        console.print(f"Preparing {config.workload} in {folder}", highlight=False)
        prepared = lay_out(config, folder)
        config = replace(config, storage=permitted(config.storage, prepared.signature))
        if config.beginning:
            began = len(lay_out_beginning(config, folder))
            console.print(f"Beginning with {began} variants of {config.beginning}", highlight=False)
        tuned = freeze_choices(folder)
        if tuned:
            console.print(f"Kernels are made as tuned where one of {tuned} tuned for this CPU is met", highlight=False)
        context = context_for(config, prepared, folder)
        if config.schedule:
            console.print("Scheduling the base for smaller budgets of memory", highlight=False)
            schedules = lay_out_schedules(config, context, folder)
            console.print(found_text(schedules), highlight=False, markup=False)
        with RunWriter(folder) as writer:
            with Pool(context, config.workers) as pool:
                writer.freeze(manifest(config, context, pool.base, folder))
                ending = _run(Campaign(Run(folder), writer, pool), config.budget, console)
            return _end(ending, folder, context if confirm else None, config.workers, console)


def tune(what: str, folder: Path | None, seconds: float, seed: int, again: bool, console: Console) -> int:
    """Tune the kernels of the step of a workload, or of a record if `folder` is a run's, and print what was found;
    returns the exit code."""
    from fitness import tuning
    from gevo.tune import open_bench, open_variant, tune_step, whole_step
    from gevo.tune_view import TuneView, table
    from gevo.tuning_store import TuningStore

    begun, store = monotonic(), TuningStore()
    store.rows()  # a damaged file ends here, before anything is measured
    console.print(f"Preparing {what}", highlight=False)
    if folder is None:
        bench = open_bench(what)
    else:
        run = Run(folder)
        bench = open_variant(run, reopened(run.manifest, folder), pick(run, what))
    default = bench.program({})
    step = bench.step(default)
    kernels = tuning.targets(step)
    left = max(1.0, seconds - (monotonic() - begun)) if seconds else 0.0
    options = tuning.Options(seconds=left, seed=seed)
    ending = f"ends after {span(seconds)} or when all is tried" if seconds else "ends when all is tried"
    if not kernels:
        console.print("Every kernel of this step takes next to no time: nothing to tune")
        return 0
    console.print(
        f"Tuning {len(kernels)} of {len(default.kernels)} kernels, the others take next to no time; "
        f"it {ending}. Ctrl-C stops it and keeps the kernels that are done",
        highlight=False,
    )
    try:
        with TuneView(console, kernels, left) as view, _term_as_interrupt():
            for row in tune_step(bench, kernels, step, store, options, again, view):
                view.row(row)
    except KeyboardInterrupt:
        console.print(table(kernels, store.rows()), highlight=False)
        again_text = what if folder is None else f"{run_name(folder)} {what}"
        console.print(f"Stopped. Go on with: gevo tune {again_text}", highlight=False)
        return INTERRUPTED
    console.print(table(kernels, store.rows()), highlight=False)
    timed = whole_step(bench, step, store.choices())
    if timed is None:
        console.print("No kernel of this step is faster than by default", highlight=False)
    else:
        console.print(
            f"Whole step: {seconds_text(timed.base_s)} by default, {seconds_text(timed.ratio * timed.base_s)} tuned; "
            f"ratio {timed.ratio:.3f}, spread {timed.spread:.3f}",
            highlight=False,
        )
    return 0


def train(workload: str, steps: int, epochs: int, threads: int, seed: int, console: Console) -> int:
    """Train a workload's base, print its error and keep its state; returns the exit code."""
    from gevo.train import Course, keep_trained, open_training, steps_of
    from gevo.train import train as learn
    from gevo.train_view import TrainView

    console.print(f"Preparing {workload}", highlight=False)
    bench = open_training(workload)
    course = Course(steps_of(bench, steps, epochs), seed, threads)
    console.print(f"Training {course.steps} steps. Ctrl-C stops it and keeps nothing of it", highlight=False)
    view, begun = TrainView(console, course.steps), monotonic()
    try:
        with view, _term_as_interrupt():
            learned = learn(bench, course, view)
    except KeyboardInterrupt:
        console.print(f"Stopped at step {view.done}; nothing was kept", highlight=False)
        return INTERRUPTED
    path, took = keep_trained(bench, learned), span(monotonic() - begun)
    errors = ", ".join(f"{split} {error:.4f}" for split, error in learned.error.items())
    console.print(f"Trained {course.steps} steps from seed {seed} in {took}; error: {errors}", highlight=False)
    console.print(f"Kept in {path}", highlight=False, soft_wrap=True)
    return 0


def schedule(options: Options, console: Console) -> int:
    """Plan a step within a memory budget; returns the exit code."""
    from gevo.schedule_command import schedule

    with _term_as_interrupt():
        return schedule(options, console)


def profile(page_dir: Path | None, console: Console) -> int:
    """Measure this machine; returns the exit code."""
    from gevo.profile_command import profile

    with _term_as_interrupt():
        return profile(page_dir, console)


def resume(folder: Path, more: Budget, workers: int | None, console: Console, confirm: bool = True) -> int:
    """Go on where a campaign stopped: to its own budget, or by `more`."""
    from fitness.pool import Pool

    with RunWriter(folder) as writer:
        run = Run(folder)
        if writer.torn_bytes:
            console.print(f"Cut a torn record of {writer.torn_bytes} bytes off the log; it is evaluated again")
        config = CampaignConfig.from_json(run.manifest["config"])
        spent, budget = run.spent(), config.budget
        if more != Budget():
            budget = more.after(spent)
        elif budget.reached(spent):
            console.print(
                f"The budget of this run is spent ({budget.text}). Add to it: gevo resume {run_name(folder)} --for 1h"
            )
            return 0
        context = reopened(run.manifest, folder)
        _warn_if_crowded(workers or config.workers, config.threads, console)
        with Pool(context, workers or config.workers, base_result(run.manifest)) as pool:
            ending = _run(Campaign(run, writer, pool), budget, console)
        return _end(ending, folder, context if confirm else None, workers or config.workers, console)


def confirm(
    folder: Path,
    ids: Sequence[str],
    count: int,
    again: bool,
    workers: int | None,
    console: Console,
    timed: bool = False,
) -> int:
    """Measure records of a run again and show its front; returns the exit code."""
    from gevo import confirm_command

    run = Run(folder)
    writer = run.writer()
    if writer is not None:
        todo = "Confirm it when the search has ended; Ctrl-C ends it and keeps everything"
        raise RunLocked(f"process {writer} still writes to this run", folder, todo)
    config = CampaignConfig.from_json(run.manifest["config"])
    with WriterLock(folder / "lock"), _term_as_interrupt():
        context = reopened(run.manifest, folder)
        try:
            confirm_command.confirm(run, context, ids, count, again, workers or config.workers, console, timed)
        except KeyboardInterrupt:
            console.print(f"Stopped. Go on with: gevo confirm {run_name(folder)}", highlight=False)
            return INTERRUPTED
    show_front(folder, as_json=False, picture=None, console=console)
    return 0


def explain(
    folder: Path, identifier: str, seconds: float, rounds: int, page: Path | None, as_json: bool, console: Console
) -> int:
    """Print why a record is what it is; returns the exit code."""
    from gevo.explain.command import explain

    run = Run(folder)
    try:
        with _term_as_interrupt():
            explain(run, reopened(run.manifest, folder), identifier, seconds, rounds, page, as_json, console)
    except KeyboardInterrupt:
        console.print(f"Stopped. Go on with: gevo explain {run_name(folder)} {identifier}", highlight=False)
        return INTERRUPTED
    return 0


def export(folder: Path, identifier: str, to: Path, retuned: bool, console: Console) -> None:
    from gevo.export import export
    from workloads.workload import PreparedWorkload

    run = Run(folder)
    context, record = reopened(run.manifest, folder), pick(run, identifier)
    export(run, context, record, to, retuned)
    known = confirmed.load(folder)
    row = known.of(record) if known is not None else None
    if row is not None and row.bad:
        console.print(f"Warning: {record.id} does not hold: {sentence(row)}", style="yellow", soft_wrap=True)
    elif row is None and not record.is_base:
        text = (
            f"{record.id} was measured by the search alone. To confirm it: gevo confirm {run_name(folder)} {record.id}"
        )
        console.print(text, highlight=False, soft_wrap=True)
    threads = f", threads={context.threads}" if context.threads > 1 else ""
    name = PreparedWorkload.load(Path(context.prepared)).signature.entry
    console.print(f"Wrote {to}. Use it with: {name} = gevo.load({str(to)!r}{threads})", highlight=False, soft_wrap=True)


def _run(campaign: Campaign, budget: Budget, console: Console) -> Ending:
    console.print(f"Searching; it ends after {budget.text}. Ctrl-C stops it and keeps everything", highlight=False)
    with view_for(console) as view, _term_as_interrupt():
        campaign.watch = view
        ending = campaign.run(budget)
    view.show(campaign.tally) if not console.is_terminal else None
    console.print(f"Stopped: {ending}.", highlight=False)
    return ending


def _end(ending: Ending, folder: Path, context: Context | None, workers: int, console: Console) -> int:
    """Confirm the front unless the search was interrupted or there is no `context`, show it, and say how to go on."""
    from gevo.confirm_command import confirm_at_end

    stopped = ending is Ending.INTERRUPTED
    if context is not None and not stopped:
        try:
            with _term_as_interrupt():
                confirm_at_end(Run(folder), context, workers, console)
        except KeyboardInterrupt:
            stopped = True
    show_front(folder, as_json=False, picture=None, console=console)
    if ending is Ending.INTERRUPTED:
        console.print(f"Go on with: gevo resume {run_name(folder)}", highlight=False)
    return INTERRUPTED if stopped else 0


def _warn_if_crowded(workers: int, threads: int, console: Console) -> None:
    found = crowded(workers, threads, cores())
    if found:
        console.print(f"Warning: {found}", highlight=False, style="yellow")


@contextmanager
def _term_as_interrupt() -> Generator[None]:
    """SIGTERM stops a search as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
