"""The search methods that are compared. Each runs on a problem until its book says that the budget is spent.

All of them keep and make 28 genomes a generation, as gevo does by default, and start at the base, which is free. For
those that work on variables a row of genes is a genome; a variable is changed with probability 1/variables.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from deap import base, tools

from gevo.config import SearchConfig
from gevo.search import Search
from mlir_passes.space import Space
from search_problems import SLOTS, Book, Genes, Point, Problem

POPULATION = 28
CHILDREN = 7  # lambda of (1+lambda): a quarter of a generation of the others
PENALTY = 10.0  # the scaled figures of what is not valid, for methods without constraints: ten times the reference

Method = Callable[[Problem, Book, int], None]


def gevo(problem: Problem, book: Book, seed: int) -> None:
    """gevo's search, held to the edits that the other methods have."""
    _search(problem, problem.menu, min(problem.variables, len(problem.menu.entries)), book, seed)


def gevo_whole(problem: Problem, book: Book, seed: int) -> None:
    """gevo's search as a user runs it, over all edits there are."""
    assert problem.plain is not None
    _search(problem, problem.plain, SearchConfig().max_edits, book, seed)


def random_search(problem: Problem, book: Book, seed: int) -> None:
    """Genomes of one to six edits, drawn uniformly."""
    rng = random.Random(seed)
    while True:
        book.values([_random_row(problem, rng) for _ in range(POPULATION)])


def one_plus_lambda(problem: Problem, book: Book, seed: int) -> None:
    """(1+lambda) by scalarisation: the parent is the row with the least sum of scaled figures, equal weights."""
    rng = random.Random(seed)
    parent: Genes = [problem.options] * problem.variables
    least = _sum(problem, book.values([parent])[0])
    while True:
        children = [_changed(problem, parent, rng) for _ in range(CHILDREN)]
        sums = [_sum(problem, found) for found in book.values(children)]
        if min(sums) <= least:
            least, parent = min(sums), children[sums.index(min(sums))]


def deap_nsga2(problem: Problem, book: Book, seed: int) -> None:
    """NSGA-II as in DEAP's own example, from uniform rows, with uniform crossover and mutation; the penalty for
    invalid rows."""
    _deap(problem, book, seed, lambda rng: [rng.randrange(2 * problem.options) for _ in range(problem.variables)])


def deap_sparse(problem: Problem, book: Book, seed: int) -> None:
    """The same from rows of a single edit: how much of gevo's lead is its first generation, which is such."""
    _deap(problem, book, seed, lambda rng: _random_row(problem, rng, 1))


def _deap(problem: Problem, book: Book, seed: int, start: Callable[[random.Random], Genes]) -> None:
    random.seed(seed)  # DEAP draws from the global generator
    kind = type("Minimised", (base.Fitness,), {"weights": (-1.0,) * len(problem.objectives)})
    high = 2 * problem.options - 1

    def evaluated(rows: list[_Row]) -> list[_Row]:
        for row, found in zip(rows, book.values(rows), strict=True):
            row.fitness = kind(_penalised(problem, found))
        return rows

    rng = random.Random(seed)
    rows = [_Row(start(rng)) for _ in range(POPULATION)]
    rows = tools.selNSGA2(evaluated(rows), POPULATION)
    while True:
        children = [_Row(row) for row in tools.selTournamentDCD(rows, POPULATION)]
        for one, two in zip(children[::2], children[1::2], strict=True):
            if random.random() < 0.9:
                tools.cxUniform(one, two, 0.5)
            for child in (one, two):
                if high == 1:
                    tools.mutFlipBit(child, 1 / problem.variables)
                else:
                    tools.mutUniformInt(child, 0, high, 1 / problem.variables)
        rows = tools.selNSGA2(rows + evaluated(children), POPULATION)


def optuna_nsga2(problem: Problem, book: Book, seed: int) -> None:
    """Optuna's NSGAIISampler with its own operators over categorical variables; invalid trials are told as failed."""
    import optuna  # pyright: ignore[reportMissingImports]

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.NSGAIISampler(population_size=POPULATION, seed=seed)
    study = optuna.create_study(directions=["minimize"] * len(problem.objectives), sampler=sampler)
    choices = range(2 * problem.options)
    while True:
        trials = [study.ask() for _ in range(POPULATION)]
        rows = [[t.suggest_categorical(f"x{i}", choices) for i in range(problem.variables)] for t in trials]
        for trial, found in zip(trials, book.values(rows), strict=True):
            if found is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, problem.scaled(found))


def pymoo_nsga2(problem: Problem, book: Book, seed: int) -> None:
    """pymoo's NSGA2 with uniform crossover; invalid rows violate a constraint. It drops duplicates itself."""
    from pymoo.algorithms.moo.nsga2 import NSGA2  # pyright: ignore[reportMissingImports]
    from pymoo.core.evaluator import Evaluator  # pyright: ignore[reportMissingImports]
    from pymoo.core.mutation import Mutation  # pyright: ignore[reportMissingImports]
    from pymoo.core.problem import Problem as Given  # pyright: ignore[reportMissingImports]
    from pymoo.operators.crossover.ux import UX  # pyright: ignore[reportMissingImports]
    from pymoo.operators.sampling.rnd import IntegerRandomSampling  # pyright: ignore[reportMissingImports]
    from pymoo.problems.static import StaticProblem  # pyright: ignore[reportMissingImports]

    choices = 2 * problem.options
    rng = np.random.default_rng(seed)

    class Another(Mutation):  # pyright: ignore[reportUntypedBaseClass]
        def _do(self, problem: Any, X: np.ndarray, **_: Any) -> np.ndarray:
            changed = rng.random(X.shape) < 1 / X.shape[1]
            return np.where(changed, (X + rng.integers(1, choices, X.shape)) % choices, X)

    given = Given(
        n_var=problem.variables, n_obj=len(problem.objectives), n_ieq_constr=1, xl=0, xu=choices - 1, vtype=int
    )
    algorithm = NSGA2(pop_size=POPULATION, sampling=IntegerRandomSampling(), crossover=UX(), mutation=Another())
    algorithm.setup(given, termination=("n_gen", 10**9), seed=seed, verbose=False)
    while True:
        asked = algorithm.ask()
        found = book.values([[int(gene) for gene in row] for row in asked.get("X")])
        figures = np.array([_penalised(problem, values) for values in found])
        violated = np.array([[float(values is None)] for values in found])
        Evaluator().eval(StaticProblem(given, F=figures, G=violated), asked)
        algorithm.tell(infills=asked)


METHODS: dict[str, Method] = {
    "gevo": gevo,
    "gevo (all edits)": gevo_whole,
    "random search": random_search,
    "(1+lambda)": one_plus_lambda,
    "DEAP NSGA-II": deap_nsga2,
    "DEAP from singles": deap_sparse,
    "Optuna NSGA-II": optuna_nsga2,
    "pymoo NSGA-II": pymoo_nsga2,
}


class _Row(list[int]):
    """A row of genes as DEAP wants it."""

    fitness: Any = None


def _search(problem: Problem, space: Space, max_edits: int, book: Book, seed: int) -> None:
    config = SearchConfig(population=POPULATION, max_edits=max_edits)
    search = Search(space, config, problem.objectives, problem.floors, seed)
    while proposals := search.ask():
        genomes = [p.genome for p in proposals]
        search.tell(list(zip(genomes, book.results(genomes), strict=True)))


def _random_row(problem: Problem, rng: random.Random, most: int = SLOTS) -> Genes:
    row = [problem.options] * problem.variables
    for at in rng.sample(range(problem.variables), rng.randint(1, min(most, problem.variables))):
        row[at] = rng.randrange(problem.options)
    return row


def _changed(problem: Problem, row: Genes, rng: random.Random) -> Genes:
    """The row with each variable changed with probability 1/variables, at least one of them."""
    forced, choices = rng.randrange(len(row)), 2 * problem.options
    return [
        (gene + rng.randrange(1, choices)) % choices if at == forced or rng.random() < 1 / len(row) else gene
        for at, gene in enumerate(row)
    ]


def _sum(problem: Problem, found: Point | None) -> float:
    return float("inf") if found is None else sum(problem.scaled(found))


def _penalised(problem: Problem, found: Point | None) -> Sequence[float]:
    return (PENALTY,) * len(problem.objectives) if found is None else problem.scaled(found)
