"""The text of a function that does what one `stablehlo.sort` does: a merge sort, stable, by loops."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.frontends.bodies import Body


@dataclass(frozen=True)
class Sort:
    """Arrays of one shape that are sorted together along `dimension`; `less` compares (a0, b0, a1, b1, ...)."""

    name: str
    shape: tuple[int, ...]
    elements: tuple[str, ...]
    dimension: int
    less: Body


def sort_text(s: Sort) -> str:
    """A private function from the arrays to the sorted ones.

    Runs of `width` are merged into runs of twice that, from the row into a scratch row and back, until one is left.
    """
    count, length = len(s.elements), s.shape[s.dimension]
    wholes = [f"tensor<{''.join(f'{d}x' for d in s.shape)}{e}>" for e in s.elements]
    # Rows of one length would be one value to MLIR, and then one buffer.
    rows = [f"tensor<{length + k}x{e}>" for k, e in enumerate(s.elements)]
    given = ", ".join(f"%x{k}: {t}" for k, t in enumerate(wholes))
    results = ", ".join(wholes)
    lines = [
        f"func.func private @{s.name}({given}) -> ({results}) {{",
        *(f"%c{v} = arith.constant {v} : index" for v in range(3)),
        f"%n = arith.constant {length} : index",
        f"%last = arith.constant {length - 1} : index",
        *(f"%scratch{k} = tensor.empty() : {t}" for k, t in enumerate(rows)),
    ]
    outer = [d for d in range(len(s.shape)) if d != s.dimension]
    types = ", ".join([*wholes, *rows])
    carried = [*(f"%x{k}" for k in range(count)), *(f"%scratch{k}" for k in range(count))]
    for d in outer:
        inside = [f"%out{d}_{k}" for k in range(2 * count)]
        pairs = ", ".join(f"{i} = {o}" for i, o in zip(inside, carried, strict=True))
        lines.append(f"%size{d} = arith.constant {s.shape[d]} : index")
        lines.append(f"%r{d}:{2 * count} = scf.for %i{d} = %c0 to %size{d} step %c1 iter_args({pairs}) -> ({types}) {{")
        carried = inside
    state = [f"%q{k}" for k in range(2 * count)]
    pairs = ", ".join(f"{q} = {value}" for q, value in zip(["%width", *state], ["%c1", *carried], strict=True))
    lines += [
        f"%rounds = arith.constant {_rounds(length)} : index",
        f"%sorted:{2 * count + 1} = scf.for %round = %c0 to %rounds step %c1 iter_args({pairs}) -> (index, {types}) {{",
    ]
    at = [f"%i{d}" if d != s.dimension else "" for d in range(len(s.shape))]
    whole, row = state[:count], state[count:]
    row_place = [""]
    lines += _merge(s, "there", "%width", (whole, wholes, at), (row, rows, row_place))
    lines.append("%twice = arith.muli %width, %c2 : index")
    there = [f"%there_done{_result(k, count)}" for k in range(count)]
    lines += _merge(s, "back", "%twice", (there, rows, row_place), (whole, wholes, at))
    back = [f"%back_done{_result(k, count)}" for k in range(count)]
    lines += [
        "%fourfold = arith.muli %twice, %c2 : index",
        f"scf.yield %fourfold, {', '.join([*back, *there])} : index, {types}",
        "}",
    ]
    done = [f"%sorted#{k + 1}" for k in range(2 * count)]
    for d in reversed(outer):
        lines += [f"scf.yield {', '.join(done)} : {types}", "}"]
        done = [f"%r{d}#{k}" for k in range(2 * count)]
    lines += [f"return {', '.join(done[:count])} : {results}", "}"]
    return "\n".join(lines) + "\n" + s.less.declarations()


def _rounds(length: int) -> int:
    """How many times runs become four times as long until there is one."""
    return next(n for n in range(64) if 4**n >= length)


def _result(k: int, count: int) -> str:
    """How text names the k-th of `count` results."""
    return f"#{k}" if count > 1 else ""


Arrays = tuple[list[str], list[str], list[str]]  # values, their types, and their place but for the sorted dimension


def _merge(s: Sort, name: str, width: str, source: Arrays, target: Arrays) -> list[str]:
    """Lines that merge pairs of runs of `width` of the source into the target; `%NAME_done#k` are the results."""
    count = len(s.elements)
    values, types, at = source
    targets, target_types, target_at = target

    def place(dims: list[str], index: str) -> str:
        return ", ".join(d or index for d in dims)

    n = name
    listed = ", ".join(target_types)
    outer = ", ".join(f"%{n}_o{k} = {t}" for k, t in enumerate(targets))
    inner = ", ".join(f"%{n}_t{k} = %{n}_o{k}" for k in range(count))
    of = f":{count}" if count > 1 else ""
    lines = [
        f"%{n}_step = arith.muli {width}, %c2 : index",
        f"%{n}_done{of} = scf.for %{n}_start = %c0 to %n step %{n}_step iter_args({outer}) -> ({listed}) {{",
        f"%{n}_middle_wide = arith.addi %{n}_start, {width} : index",
        f"%{n}_middle = arith.minui %{n}_middle_wide, %n : index",
        f"%{n}_end_wide = arith.addi %{n}_start, %{n}_step : index",
        f"%{n}_end = arith.minui %{n}_end_wide, %n : index",
        f"%{n}_run:{count + 2} = scf.for %{n}_i = %{n}_start to %{n}_end step %c1"
        f" iter_args(%{n}_a = %{n}_start, %{n}_b = %{n}_middle, {inner}) -> (index, index, {listed}) {{",
        f"%{n}_b_in = arith.minui %{n}_b, %last : index",
        f"%{n}_a_in = arith.minui %{n}_a, %last : index",
    ]
    for k in range(count):
        lines.append(f"%{n}_x{k} = tensor.extract {values[k]}[{place(at, f'%{n}_a_in')}] : {types[k]}")
        lines.append(f"%{n}_y{k} = tensor.extract {values[k]}[{place(at, f'%{n}_b_in')}] : {types[k]}")
    swapped = [value for k in range(count) for value in (f"%{n}_y{k}", f"%{n}_x{k}")]
    lines += [
        s.less.call(f"%{n}_less", swapped),
        f"%{n}_a_left = arith.cmpi ult, %{n}_a, %{n}_middle : index",
        f"%{n}_b_left = arith.cmpi ult, %{n}_b, %{n}_end : index",
        f"%{n}_b_first = arith.andi %{n}_less, %{n}_b_left : i1",
        f"%{n}_true = arith.constant true",
        f"%{n}_a_out = arith.xori %{n}_a_left, %{n}_true : i1",
        f"%{n}_take_b = arith.ori %{n}_a_out, %{n}_b_first : i1",
        f"%{n}_a_more = arith.addi %{n}_a, %c1 : index",
        f"%{n}_b_more = arith.addi %{n}_b, %c1 : index",
        f"%{n}_a_next = arith.select %{n}_take_b, %{n}_a, %{n}_a_more : index",
        f"%{n}_b_next = arith.select %{n}_take_b, %{n}_b_more, %{n}_b : index",
    ]
    for k, e in enumerate(s.elements):
        lines.append(f"%{n}_v{k} = arith.select %{n}_take_b, %{n}_y{k}, %{n}_x{k} : {e}")
        into = f"%{n}_t{k}[{place(target_at, f'%{n}_i')}]"
        lines.append(f"%{n}_put{k} = tensor.insert %{n}_v{k} into {into} : {target_types[k]}")
    put = ", ".join(f"%{n}_put{k}" for k in range(count))
    kept = ", ".join(f"%{n}_run#{k + 2}" for k in range(count))
    return [
        *lines,
        f"scf.yield %{n}_a_next, %{n}_b_next, {put} : index, index, {listed}",
        "}",
        f"scf.yield {kept} : {listed}",
        "}",
    ]
