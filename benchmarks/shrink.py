"""A smaller program with the same fault: one output, few lines, the values that they read given as arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import jax
import numpy as np

from in_children import Died, results
from judge import Verdict
from random_programs import Line, Program

LITERAL = 24  # elements up to which data are written out

Judge = Callable[[Program], Verdict]
Values = Callable[[Program], dict[str, np.ndarray]]


def in_a_child(program: Program) -> dict[str, np.ndarray]:
    """What jax.jit computes for each line, {} if it cannot."""
    found = next(results([program], by_jax))[1]
    return {} if isinstance(found, Died) else found


def by_jax(program: Program) -> dict[str, np.ndarray]:
    everything = replace(program, outputs=tuple(line.value for line in program.lines))
    found = jax.jit(everything.function())(*program.arrays())
    return {line.value.name: np.asarray(a) for line, a in zip(program.lines, found, strict=True)}


def shrunk(program: Program, kind: str, judge: Judge, values: Values = in_a_child) -> Program:
    """A part of the program that still is of this kind; the program itself where none is."""
    program = _first_that((replace(program, outputs=(v,)).pruned() for v in program.outputs), kind, judge) or program
    while True:
        smaller = _first_that(_cut(program, values), kind, judge)
        if smaller is None:
            return _first_that(_alone(program), kind, judge) or program
        program = smaller


def _first_that(programs: Iterator[Program], kind: str, judge: Judge) -> Program | None:
    return next((p for p in programs if judge(p).kind == kind), None)


def _cut(program: Program, values: Values) -> Iterator[Program]:
    """The program with one line made an argument, the last lines first; with its output taken from an earlier line."""
    outputs = {v.name for v in program.outputs}
    for line in program.lines:
        if line.value.name not in outputs:
            yield replace(program, outputs=(line.value,)).pruned()
    computed = values(program)
    for line in reversed(program.lines):
        if line.value.name in outputs or line.value.dtype not in ("f32", "i32", "bool") or not computed:
            continue
        for data in _data(line, computed[line.value.name]):
            yield program.without(line.value.name, data)


def _alone(program: Program) -> Iterator[Program]:
    """The program with plain data for an argument of unusual ones."""
    for i, argument in enumerate(program.arguments):
        if argument.value.dtype == "f32" and "choice" in argument.text:
            plain = replace(argument, text=f"R(0).standard_normal({argument.value.shape})")
            yield replace(program, arguments=(*program.arguments[:i], plain, *program.arguments[i + 1 :]))


def _data(line: Line, value: np.ndarray) -> Iterator[str]:
    """Expressions of data like these: random ones first where they are many."""
    shape = line.value.shape
    if line.value.dtype == "f32":
        yield f"R(0).standard_normal({shape})"
    elif line.value.dtype == "i32":
        yield f"R(0).integers({value.min()}, {int(value.max()) + 1}, {shape})"
    else:
        yield f"R(0).random({shape}) < 0.5"
    if value.size <= LITERAL:
        yield repr(value.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
