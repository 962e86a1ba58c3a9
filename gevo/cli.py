"""The command line: options and help. What a command does is in `commands`, which is imported only to run one."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gevo.errors import CampaignError

if TYPE_CHECKING:
    from rich.console import Console

    from gevo.config import Budget

RUN = Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, or its folder.")]
RECORD = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A record such as r0042, or base, or the one with no more error than the base that is "
        "fastest, smallest, cheapest or most-accurate.",
    ),
]
RUN_DIR = Annotated[Path, typer.Option(metavar="DIR", help="Folder that holds the runs.")]
FOR = Annotated[str, typer.Option("--for", metavar="TIME", help="Stop after this time: 90s, 30m, 8h, 1h30m.")]
EVALUATIONS = Annotated[int, typer.Option(min=0, metavar="N", help="Stop after N evaluations.")]
GENERATIONS = Annotated[int, typer.Option(min=0, metavar="N", help="Stop after N generations.")]
WORKERS = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Evaluations at a time; default: what cores - 1 can do.")
]

CONFIRM = Annotated[
    bool, typer.Option("--confirm/--no-confirm", help="At the end, measure the front again: see `gevo confirm`.")
]

# No rich mark-up in help: importing it costs 0.2 s, which is most of what `gevo --help` may take.
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True, add_completion=False)


@app.callback()
def _common(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Evolve training and prediction steps: faster, smaller, less energy, at a quality you choose.

    \b
    A first tour:
      gevo doctor                                what works on this machine
      gevo kernels digits --time                 what a step is made of
      gevo tune digits --for 1m                  faster kernels, kept for this CPU
      gevo search digits --for 2m --name first   evolve a small training step
      gevo front first                           what was found, against the base
      gevo show first r0042                      one variant in full
      gevo explain first fastest                 which of its edits matter, and why
      gevo export first r0042 --to fast          a program that trains without gevo
      gevo schedule digits --memory-budget 80%   the same step in less memory
    """


@app.command()
def search(
    workload: Annotated[str, typer.Argument(help="A shipped name, file.py:object, or file.mlir.")],
    time: FOR = "",
    evaluations: EVALUATIONS = 0,
    generations: GENERATIONS = 0,
    objectives: Annotated[
        str, typer.Option(metavar="LIST", help="What to trade, by comma.")
    ] = "runtime_s,peak_bytes,energy_j,error",
    memory_budget: Annotated[str, typer.Option(metavar="SIZE", help="Refuse variants that need more: 4MiB.")] = "",
    deadline: Annotated[
        str, typer.Option(metavar="TIME", help="Most time of a step: 1.1x, that of the base, or 3ms.")
    ] = "",
    max_error_increase: Annotated[
        float | None, typer.Option(metavar="X", help="Most error over the base's: 0.02 is 2 points of accuracy.")
    ] = None,
    target: Annotated[str, typer.Option(help="What to compile for; cpu is the one there is.")] = "cpu",
    workers: WORKERS = None,
    threads: Annotated[
        int, typer.Option(min=1, metavar="N", help="Cores that work at one step; results stay the same, bit for bit.")
    ] = 1,
    storage: Annotated[
        str, typer.Option(metavar="LIST", help="What variants may store values in: f16,bf16; default: as permitted.")
    ] = "",
    schedule: Annotated[
        bool, typer.Option(help="Vary what is kept, computed again and in what order; where memory counts.")
    ] = True,
    page_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Let variants page to files there; default: they may not.")
    ] = None,
    beginning: Annotated[
        str, typer.Option("--from", metavar="RUN", help="Begin with the front of an earlier run of the same step.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Same seed, same search, whatever the number of workers.")] = 0,
    population: Annotated[int, typer.Option(min=4, metavar="N", help="Genomes kept, and asked for a generation.")] = 28,
    name: Annotated[str, typer.Option(help="Name of the run; default: workload and time.")] = "",
    confirm: CONFIRM = True,
    run_dir: RUN_DIR = Path("runs"),
) -> int:
    """Start a search.

    \b
    It ends at the first budget that is reached, or at Ctrl-C. What it finds
    is on disk at once: after a crash, `gevo resume` goes on.
    With one seed, fronts over peak_bytes, energy_j and error are identical for
    any number of workers; with runtime_s, which is measured, within noise. The
    schedules that a search starts from, see below, come of times measured here,
    so that another search may have others; --no-schedule leaves them out.
    \b
    --workers evaluates more variants at a time, --threads makes each step
    faster. Tune with the threads you will train with: what is fastest on two
    cores need not be on one. A step below about 100 us stays on one core.
    \b
    --deadline and --max-error-increase are limits: variants over one are kept
    and lead the search where nothing meets it yet, but never stand on the
    front. --memory-budget ends a variant before it runs.
    \b
    A workload says by its numerics rule, storage=..., what a variant may store
    values between kernels in: f16 and bf16 take half the bytes of f32. The base
    is always f32; --storage narrows the choice, --storage f32 leaves none.
    \b
    Where peak_bytes is an objective or --memory-budget is given, genomes have
    schedule genes: which values are given back and computed again, or paged to
    a file with --page-dir. Those never change a result. The search starts from
    a solver's schedules of the base; see `gevo schedule`.
    \b
    --from RUN goes on from what another run found, with other objectives, limits
    or seed: search by modelled energy, which has no noise, while the machine is
    busy, then by runtime_s when it is quiet. That run stays as it is.

    \b
    Example:
      gevo search twofc --for 8h --workers 2 --seed 1 --name night
      gevo search twofc --for 1h --from night --objectives runtime_s,error
    """
    from gevo.config import CampaignConfig, SearchConfig
    from gevo.machine import cores

    scheduled = schedule and ("peak_bytes" in _objectives(objectives) or bool(memory_budget))
    if page_dir is not None and not scheduled:
        todo = "Add peak_bytes to --objectives, or give --memory-budget, without --no-schedule"
        raise CampaignError("no variant would page: nothing asks for less memory", "--page-dir", todo)
    config = CampaignConfig(
        workload=workload,
        objectives=_objectives(objectives),
        target=_target(target),
        memory_budget=_size(memory_budget),
        deadline=_deadline(deadline),
        max_error_increase=max_error_increase,
        workers=workers or max(1, (cores() - 1) // threads),
        threads=threads,
        seed=seed,
        budget=_budget(time, evaluations, generations),
        search=SearchConfig(population=population),
        storage=_storage(storage),
        schedule=scheduled,
        page_dir=str(_folder(page_dir)) if page_dir is not None else "",
        beginning=str(_find(beginning, run_dir)) if beginning else "",
    )
    stem = Path(workload.partition(":")[0]).stem
    folder = run_dir / (name or f"{stem}-{datetime.now():%Y%m%d-%H%M%S}")
    return _commands().search(config, folder, _console(), confirm)


@app.command()
def resume(
    run: RUN,
    time: FOR = "",
    evaluations: EVALUATIONS = 0,
    generations: GENERATIONS = 0,
    workers: WORKERS = None,
    confirm: CONFIRM = True,
    run_dir: RUN_DIR = Path("runs"),
) -> int:
    """Go on with a run that stopped, or give it more.

    \b
    Without a budget, the run's own is used up. A budget given here is added to
    what was spent.

    \b
    Example:
      gevo resume night --for 2h
    """
    return _commands().resume(
        _find(run, run_dir), _budget(time, evaluations, generations), workers, _console(), confirm
    )


@app.command()
def kernels(
    workload: Annotated[str, typer.Argument(help="A shipped name, file.py:object, or file.mlir.")],
    time: Annotated[bool, typer.Option("--time", help="Measure each call within the step.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw them: .svg, .png or .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all that is known.")] = False,
) -> None:
    """Show the kernels that a step is cut into, in the order of their calls.

    \b
    A call is a line of what it does and its loops, then a line of what it reads
    and writes, and how it is made. Kernels are made as a search would make
    them: as tuned for this CPU where `gevo tune` found a faster way.
    --time runs the step call by call with a clock around each, and gives the
    share of the step and, for what computes, the rate.
    \b
    Example:
      gevo kernels twofc
      gevo kernels lenet --time --plot lenet.svg
    """
    _inspection().show_kernels(workload, time, plot, as_json, _console())


@app.command()
def tune(
    workload: Annotated[str, typer.Argument(help="A shipped name, file.py:object, or file.mlir; or a run, with ID.")],
    record: Annotated[str, typer.Argument(metavar="[ID]", help="Of a record of the run: tune that variant.")] = "",
    time: FOR = "",
    seed: Annotated[int, typer.Option(help="Decides the order in which small steps are tried.")] = 0,
    again: Annotated[bool, typer.Option("--again", help="Tune also what is in the database.")] = False,
    run_dir: RUN_DIR = Path("runs"),
) -> int:
    """Find faster schedules for the kernels of a step.

    \b
    A kernel has a good schedule at once. This tries others: larger and smaller
    tiles, other orders of loops, for products NumPy's OpenBLAS. Each one is
    compiled, compared with the default's results, and timed against it in a
    process of its own, kernels with the largest share of the step first.
    A kernel stays as it is unless another way takes 3 % less time.
    \b
    What is found is kept for this CPU, in tuning.parquet in gevo's cache.
    Searches started later use it, for every kernel with the same text. One
    thread; without --for until all is tried. Ctrl-C keeps the kernels that are
    done, and the next call goes on with the rest.
    \b
    With a run and a record it is the variant's kernels: those that its edits
    made, or that read narrow values, have default schedules until then.

    \b
    Example:
      gevo tune twofc --for 2m
      gevo search twofc --for 8h --name night
      gevo tune night fastest
      gevo export night fastest --retuned --to fast
    """
    from gevo.units import parse_duration

    try:
        seconds = parse_duration(time) if time else 0.0
    except ValueError as error:
        raise CampaignError(str(error), "--for") from error
    folder = _find(workload, run_dir) if record else None
    return _commands().tune(record or workload, folder, seconds, seed, again, _console())


@app.command()
def train(
    workload: Annotated[str, typer.Argument(help="A shipped name, file.py:object, or file.mlir.")],
    steps: Annotated[int, typer.Option(min=0, metavar="N", help="Steps; default: the workload's own.")] = 0,
    epochs: Annotated[int, typer.Option(min=0, metavar="N", help="Instead of steps: passes over the data.")] = 0,
    threads: Annotated[
        int, typer.Option(min=1, metavar="N", help="Cores that work at a step; results stay the same, bit for bit.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Of the initial state and of the order of the batches.")] = 0,
) -> int:
    """Train a workload and keep what it learned.

    \b
    A prediction needs weights: mobilenet_predict has those of mobilenet_training.
    This trains a workload's step as it is, with its own compiled program, and
    keeps the state in gevo's cache, where workloads.trained(...) finds it. It
    keeps it whole or not at all; training again replaces it. The same seed gives
    the same bytes on one CPU.

    \b
    Example:
      gevo train mobilenet_training --threads 2
      gevo search mobilenet_predict --for 2h
    """
    return _commands().train(workload, steps, epochs, threads, seed, _console())


@app.command()
def schedule(
    workload: Annotated[str, typer.Argument(help="A shipped name, file.py:object, or file.mlir.")],
    memory_budget: Annotated[
        str, typer.Option(metavar="SIZE", help="Most memory of a step: 4MiB, or 75% of that with everything kept.")
    ] = "",
    deadline: Annotated[
        str, typer.Option(metavar="TIME", help="Most time of a step: 1.1x, that with everything kept, or 3ms.")
    ] = "",
    target: Annotated[str, typer.Option(help="cpu, which is measured, or model:NAME, a profile: model:a72.")] = "cpu",
    minimise: Annotated[str, typer.Option(metavar="WHAT", help="energy or time.")] = "energy",
    paging: Annotated[bool, typer.Option("--paging/--no-paging", help="May write values to the store.")] = True,
    remat: Annotated[bool, typer.Option("--remat/--no-remat", help="May compute values again.")] = True,
    time: Annotated[str, typer.Option("--for", metavar="TIME", help="Time limit, half or more to solve: 60s.")] = "60s",
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Threads of the exact solver; default: all cores.")
    ] = None,
    page_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the page file; default: where temporary files go.")
    ] = None,
    run: Annotated[int, typer.Option(min=0, metavar="N", help="Run N steps here, beside everything kept.")] = 0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it: .svg, .png or .pdf.")] = None,
    to: Annotated[Path | None, typer.Option(metavar="DIR", help="New folder for the program.")] = None,
    seed: Annotated[int, typer.Option(help="Of the heuristics.")] = 0,
    curve: Annotated[bool, typer.Option("--curve", help="What budgets from the smallest on cost.")] = False,
) -> int:
    """Fit a step into a memory budget, by computing values again and by paging.

    \b
    Each value that is needed later is kept, dropped and computed again, or
    written to a store and read back, so that the step stays within the budget
    at the least energy, or time. Results stay the same, bit for bit. What is
    printed comes with a proven bound: no schedule is below it.
    \b
    For cpu, calls and store are measured here, the store in --page-dir, and
    joules are those of a model of a server core. For model:NAME both are those
    of a profile; an unknown name lists them. --for is time that passes, at
    least half of it to solve, of all budgets of a --curve together.
    --run checks the plan here: same results? memory and time as planned?

    \b
    Example:
      gevo schedule mobilenet_training --memory-budget 50% --run 20 --plot plan.svg
      gevo schedule lenet --memory-budget 256KiB --target model:m4f
      gevo schedule lenet --curve --target model:m4f --plot curve.png
    """
    from gevo.machine import cores
    from gevo.schedule_options import Options

    options = Options(
        workload=workload,
        memory_budget=memory_budget,
        deadline=deadline,
        target=target,
        minimise=minimise,
        paging=paging,
        remat=remat,
        seconds=_seconds(time),
        workers=workers or cores(),
        seed=seed,
        page_dir=page_dir,
        run=run,
        plot=plot,
        to=to,
        curve=curve,
    )
    return _commands().schedule(options, _console())


@app.command()
def profile(
    page_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the store; default: where temporary files go.")
    ] = None,
) -> int:
    """Measure this machine once: kernels, memory, and the store that values are paged to.

    \b
    What is found is kept in gevo's cache, and `gevo schedule` uses it. Without
    it, the store is measured each time, in less than a second.

    \b
    Example:
      gevo profile --page-dir /scratch
    """
    return _commands().profile(page_dir, _console())


@app.command()
def status(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, or its folder.")] = "",
    run_dir: RUN_DIR = Path("runs"),
) -> None:
    """Show how a run stands; without RUN, list all.

    Works while the run searches, too.

    \b
    Example:
      gevo status night
    """
    if not run:
        return _inspection().list_runs(run_dir, _console())
    return _inspection().status(_find(run, run_dir), _console())


@app.command()
def confirm(
    run: RUN,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Records; default: the front.")] = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Of the front, the best N, spread over it.")] = 24,
    everything: Annotated[bool, typer.Option("--all", help="All of the front.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure also what is confirmed.")] = False,
    timed: Annotated[bool, typer.Option("--time", help="Time them even if runtime was no objective.")] = False,
    workers: WORKERS = None,
    run_dir: RUN_DIR = Path("runs"),
) -> int:
    """Measure the best variants again, on data that the search never saw.

    \b
    A search tries thousands of variants and keeps the best figures, so some of
    them are luck. This times each one again, paired with the base, in six
    processes at different moments, trains it from new seeds, and scores it on
    the test data, for variant and base alike.
    \b
      holds       its gains over the base are there, or one that suffices
      lucky       its gain is not there: no faster, or by no more than noise
      overfitted  its gain in error is lost on test data, or its loss larger
      failed      evaluated again, it did not end well
    \b
    What does not hold leaves the front. `search` does this at its end for as
    much of the front as a tenth of its time suffices for. What is found stands
    in confirmed.json in the run's folder; the search never reads it. Ctrl-C
    keeps what is done; a second call measures what is missing.

    \b
    Example:
      gevo confirm night
      gevo confirm night r0042 fastest
    """
    from gevo.confirm_command import EVERY

    count = EVERY if everything else top
    return _commands().confirm(_find(run, run_dir), ids or [], count, again, workers, _console(), timed)


@app.command()
def front(
    run: RUN,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it: .png, .pdf or .svg.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Keep what does not hold among them.")] = False,
    run_dir: RUN_DIR = Path("runs"),
) -> None:
    """Show the best trade-offs found, against the base.

    \b
    What was confirmed has its figures measured again beside those of the
    search; what does not hold is listed below, with the reason.

    \b
    Example:
      gevo front night --plot front.png
    """
    _inspection().show_front(_find(run, run_dir), as_json, plot, _console(), everything)


@app.command()
def show(
    run: RUN,
    record: RECORD,
    rerun: Annotated[bool, typer.Option("--rerun", help="Evaluate it again, and show both.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw its schedule over time: .svg, .png or .pdf.")
    ] = None,
    run_dir: RUN_DIR = Path("runs"),
) -> None:
    """Show one record in full.

    Its edits, where it came from, what was measured and how.

    \b
    Example:
      gevo show night r0042 --rerun
      gevo show night smallest --plot schedule.png
    """
    _inspection().show(_find(run, run_dir), record, rerun, plot, _console())


@app.command()
def explain(
    run: RUN,
    record: Annotated[str, typer.Argument(metavar="[ID]", help="A record, as `gevo show` takes it.")] = "",
    operators: Annotated[bool, typer.Option("--operators", help="Which kinds of edits paid in this run.")] = False,
    page: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write it as one page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    time: FOR = "",
    rounds: Annotated[int, typer.Option(min=3, metavar="N", help="Evaluations of each variant.")] = 5,
    run_dir: RUN_DIR = Path("runs"),
) -> int:
    """Say why a variant is what it is: which edits matter, and what each does.

    \b
    Edits that change no objective beyond noise are taken away. What is left is
    measured one by one, alone and in the variant, and pair by pair; then it is
    said in words, and the ops that changed are shown with the lines of your
    source. Each variant is evaluated --rounds times, each time trained from
    another seed and timed anew, so this takes minutes.
    \b
    What is evaluated is kept in the run's folder: a second call is instant, and
    after Ctrl-C or --for it goes on where it stopped.
    --operators needs no evaluation: it counts from the records how often each
    kind of edit was tried, was valid, changed nothing, and gained how much.

    \b
    Example:
      gevo explain night fastest --html why.html
      gevo explain night --operators
    """
    from gevo.units import parse_duration

    try:
        seconds = parse_duration(time) if time else 0.0
    except ValueError as error:
        raise CampaignError(str(error), "--for") from error
    if not operators and not record:
        raise CampaignError("no record", "explain", "Give its id, such as r0042 or fastest, or --operators")
    if operators:
        return _inspection().explain_operators(_find(run, run_dir), as_json, _console())
    return _commands().explain(_find(run, run_dir), record, seconds, rounds, page, as_json, _console())


@app.command()
def export(
    run: RUN,
    record: RECORD,
    to: Annotated[Path, typer.Option(metavar="DIR", help="New folder for the program.")],
    retuned: Annotated[
        bool, typer.Option("--retuned", help="Kernels as they are tuned now, not as when the run began.")
    ] = False,
    run_dir: RUN_DIR = Path("runs"),
) -> None:
    """Write a variant as a program that runs alone.

    The folder has objects, plan, MLIR and a manifest.

    \b
    Example:
      gevo export night r0042 --to fast
      gevo export night fastest --to fast
      python -c "import gevo; step = gevo.load('fast')"
    """
    _commands().export(_find(run, run_dir), record, to, retuned, _console())


@app.command()
def workloads() -> None:
    """List what can be searched, and how to name your own.

    \b
    Example:
      gevo workloads
    """
    _inspection().workloads(_console())


@app.command()
def doctor(run_dir: RUN_DIR = Path("runs")) -> int:
    """Show what works here, and what to install.

    \b
    Example:
      gevo doctor
    """
    return _inspection().doctor(run_dir, _console())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; an expected failure is one message and its code (see `errors`)."""
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(_exit_code(given))


def _exit_code(arguments: list[str]) -> int:
    try:
        return app(arguments, prog_name="gevo", standalone_mode=False) or 0
    except (Exception, KeyboardInterrupt) as error:
        from gevo.failures import explained

        if "--debug" in arguments:
            raise
        code, message = explained(error)
        print(f"gevo: {message}", file=sys.stderr)
        return code


def _commands() -> Any:
    from gevo import commands

    return commands


def _inspection() -> Any:
    from gevo import inspection

    return inspection


def _console() -> Console:
    from rich.console import Console

    return Console()


def _find(run: str, run_dir: Path) -> Path:
    from gevo.launch import find_run

    return find_run(run, run_dir)


def _budget(time: str, evaluations: int, generations: int) -> Budget:
    from gevo.config import Budget
    from gevo.units import parse_duration

    try:
        return Budget(parse_duration(time) if time else 0.0, evaluations, generations)
    except ValueError as error:
        raise CampaignError(str(error), "--for") from error


def _seconds(text: str) -> float:
    from gevo.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise CampaignError(str(error), "--for") from error


def _folder(path: Path) -> Path:
    """An existing folder that files can be made in, absolute."""
    from gevo.schedule_options import check_page_dir

    check_page_dir(path)
    return path.absolute()


def _size(text: str) -> int:
    from gevo.units import parse_bytes

    try:
        return parse_bytes(text) if text else 0
    except ValueError as error:
        raise CampaignError(str(error), "--memory-budget") from error


def _deadline(text: str) -> str:
    from gevo.limits import parse_deadline

    try:
        number, unit = parse_deadline(text) if text else (0.0, "")
    except ValueError as error:
        raise CampaignError(str(error), "--deadline") from error
    return f"{number:g}{unit}" if unit else ""


def _objectives(text: str) -> tuple[str, ...]:
    from fitness.job import OBJECTIVES

    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [name for name in names if name not in OBJECTIVES]
    if unknown or not names:
        what = f"unknown objective {unknown[0]!r}" if unknown else "no objective"
        raise CampaignError(f"{what}; known: {', '.join(OBJECTIVES)}", "--objectives")
    return names


def _storage(text: str) -> tuple[str, ...]:
    from workloads.workload import STORAGES

    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [name for name in names if name not in STORAGES]
    if unknown:
        raise CampaignError(f"unknown storage {unknown[0]!r}; known: {', '.join(STORAGES)}", "--storage")
    return names


def _target(text: str) -> str:
    if text != "cpu":
        raise CampaignError(f"unknown target {text!r}; known: cpu", "--target")
    return text
