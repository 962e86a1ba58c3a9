"""The options of `gevo schedule`: what they mean, and what of them cannot work."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gevo.errors import CampaignError, ExtraMissing, Unwritable
from gevo.files import check_new_folder
from gevo.kernels_plot import check_file
from gevo.limits import SECONDS, parse_deadline
from gevo.schedule_setup import CPU, check_target
from gevo.scheduling import SOLVERS
from gevo.units import parse_bytes, seconds
from mlir_passes.arena import up_to_aligned
from mlir_passes.schedule.exact import Task
from mlir_passes.schedule.expense import expense
from mlir_passes.schedule.infeasible import Infeasible, floor, smallest
from mlir_passes.schedule.problem import Problem
from mlir_passes.schedule.request import Request

_LEAST_S = 2.0  # for how little memory is enough, where a budget is too small


@dataclass(frozen=True)
class Options:
    """What the command line said. memory_budget: a size or "75%", "" for none. deadline: "1.1x" or a time, "" for none.
    page_dir: None for where temporary files go. run: steps to run, 0 for none. plot, to: None for neither.
    """

    workload: str
    memory_budget: str = ""
    deadline: str = ""
    target: str = CPU
    minimise: str = "energy"
    paging: bool = True
    remat: bool = True
    seconds: float = 60.0
    workers: int = 1
    seed: int = 0
    page_dir: Path | None = None
    run: int = 0
    plot: Path | None = None
    to: Path | None = None
    curve: bool = False


def budget_bytes(text: str, keep_bytes: int) -> int:
    """Bytes of "4MiB", or of "75%" of everything kept; raises CampaignError."""
    where = "--memory-budget"
    try:
        if text.strip().endswith("%"):
            found = math.floor(float(text.strip()[:-1]) / 100 * keep_bytes)
        else:
            found = parse_bytes(text)
    except (ValueError, OverflowError):
        raise CampaignError(
            f"expected a size such as 4MiB or 65536, or a share such as 75%, got {text!r}", where
        ) from None
    if found <= 0:
        raise CampaignError(f"expected more than nothing, got {text!r}", where, "Give a size such as 4MiB, or 75%")
    return found


def deadline_s(text: str, keep_s: float) -> float:
    """Seconds of "1.1x" of everything kept, or of "3ms"; infinite for ""."""
    if not text:
        return math.inf
    try:
        number, unit = parse_deadline(text)
    except ValueError as error:
        raise CampaignError(str(error), "--deadline") from error
    return number * (keep_s if unit == "x" else SECONDS[unit])


def check(options: Options) -> None:
    """Raise for what cannot work, before anything is prepared."""
    check_target(options.target)
    if not options.memory_budget and not options.curve:
        raise CampaignError("no budget", "--memory-budget", "Give one, such as 4MiB or 75%, or --curve for all of them")
    if options.memory_budget:
        budget_bytes(options.memory_budget, 1 << 40)
    deadline_s(options.deadline, 1.0)
    if options.minimise not in ("energy", "time"):
        raise CampaignError(f"expected energy or time, got {options.minimise!r}", "--minimise")
    if not options.paging and not options.remat:
        todo = "Leave one of them away"
        raise CampaignError("without paging and without computing again nothing can be spared", "--no-remat", todo)
    if options.run and options.target != CPU:
        raise CampaignError(f"a schedule for {options.target} does not run here", "--run", "Use --target cpu")
    if options.curve and (options.run or options.to is not None):
        raise CampaignError("a curve is of many schedules", "--curve", "Run or save one with its --memory-budget")
    if options.plot is not None:
        check_file(options.plot)
    if options.to is not None:
        check_new_folder(options.to)
    check_page_dir(options.page_dir)
    for name in SOLVERS:
        if find_spec(name) is None:
            todo = "Install it with: pip install 'gevo[schedule]'"
            raise ExtraMissing(f"{name} is not installed", "schedule", todo)


def check_page_dir(folder: Path | None) -> None:
    """Raise Unwritable where page files cannot be made in a folder; None is where temporary files go."""
    if folder is None:
        return
    if not folder.is_dir():
        raise Unwritable("no such folder", folder, "Make it first, or give another with --page-dir")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Unwritable("no file can be made there", folder, "Give another folder with --page-dir")


def check_budget(options: Options, problem: Problem, keep_bytes: int) -> None:
    """Raise CampaignError for a budget that the step can never keep. problem: with or without costs; keep_bytes: of
    everything kept."""
    if not options.memory_budget:
        return
    budget = budget_bytes(options.memory_budget, keep_bytes)
    lowest = floor(problem, options.paging)
    if lowest.bytes <= up_to_aligned(budget):
        return
    free = expense(problem, options.minimise)
    task = Task(problem, budget, free, remat=options.remat, paging=options.paging, workers=options.workers)
    _, needed, exact = smallest(task, lowest, min(_LEAST_S, options.seconds), budget)
    raise too_small(Infeasible(budget, needed, lowest, exact))


def too_small(error: Infeasible) -> CampaignError:
    """What is said of a budget that no schedule was found for, as an error of the option."""
    text = str(error).removeprefix("schedule: ")
    if error.late:
        return CampaignError(text, "--deadline", "Give more time")
    longer = "" if error.proven else ", or a longer time to look for one with --for"
    return CampaignError(text, "--memory-budget", f"Give at least {error.needed_bytes}{longer}")


def request_of(options: Options, keep_bytes: int, keep_s: float) -> Request:
    """What to ask the scheduler. keep_bytes, keep_s: of everything kept, which shares refer to; raises CampaignError
    where the deadline is shorter."""
    deadline = deadline_s(options.deadline, keep_s)
    if deadline < keep_s:
        what = f"{seconds(deadline)} is less than a step with everything kept takes, {seconds(keep_s)}"
        raise CampaignError(what, "--deadline", "Give 1x at least")
    return Request(
        budget_bytes=budget_bytes(options.memory_budget, keep_bytes) if options.memory_budget else keep_bytes,
        deadline_s=deadline,
        minimise=options.minimise,
        remat=options.remat,
        paging=options.paging,
        time_limit_s=options.seconds,
        seed=options.seed,
        workers=options.workers,
    )
