"""Random JAX functions through gevo, compared with jax.jit and float64: pass, refused by name, wrong, failed.

    python benchmarks/random_functions.py [--count 20000] [--seed 0] [--smoke] [--keep FILE] [--shrink 20] [--seconds N]

Each function has one to six lines (`random_ops.py`): elementwise ops, gathers, scatters, windows, reductions, products,
loops and branches, gradients of them, in ten dtypes, with odd lengths. It is drawn from its seed, lowered, compiled and
run in a forked child with limits. What is wrong or fails is printed with its seed and, made small, as Python that runs
by itself. With --keep, each verdict is appended to a file, and those that are there already are not made again.
--smoke: 20 functions. Exit status 1 if anything is wrong or fails without naming an op.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.progress import track

from in_children import Died, results
from judge import Verdict, compile_quickly, judged, judged_seed
from random_ops import draw
from random_programs import Program
from shrink import shrunk

SMOKE = 20
SHOWN = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--shrink", type=int, default=20, help="how many failures to make small")
    parser.add_argument("--seconds", type=float, default=60.0, help="for one function")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + (SMOKE if arguments.smoke else arguments.count))
    compile_quickly()
    start = time.perf_counter()
    verdicts = kept(arguments.keep, seeds)
    missing = [seed for seed in seeds if seed not in verdicts]
    for seed, verdict in track(verdicts_of(missing, arguments.seconds), total=len(missing), description="functions"):
        verdicts[seed] = verdict
        if arguments.keep:
            with arguments.keep.open("a") as file:
                file.write(json.dumps({"seed": seed, "kind": verdict.kind, "message": verdict.message}) + "\n")
    report(verdicts, time.perf_counter() - start)
    show_failures(verdicts, arguments.shrink, arguments.seconds)
    return int(any(v.bad for v in verdicts.values()))


def verdicts_of(seeds: list[int], seconds: float = 60.0) -> Iterator[tuple[int, Verdict]]:
    """Each seed with its verdict; one that is bad is judged again in a child of its own."""
    for seed, result in results(seeds, judged_seed, seconds):
        verdict = _verdict(result)
        if verdict.bad:
            verdict = _verdict(next(results([seed], judged_seed, seconds))[1])
        yield seed, verdict


def _verdict(result: Verdict | Died) -> Verdict:
    return Verdict("failed", result.how) if isinstance(result, Died) else result


def kept(path: Path | None, seeds: range) -> dict[int, Verdict]:
    """The verdicts of an earlier run."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    return {row["seed"]: Verdict(row["kind"], row["message"]) for row in rows if row["seed"] in seeds}


def report(verdicts: dict[int, Verdict], wall_s: float) -> None:
    counts = Counter(v.kind for v in verdicts.values())
    names = ("pass", "refused", "wrong", "failed", "jax")
    print(f"{len(verdicts)} functions in {wall_s:.0f} s: " + ", ".join(f"{name} {counts[name]}" for name in names))
    for kind in ("refused", "failed", "jax"):
        messages = Counter(alike(v.message) for v in verdicts.values() if v.kind == kind)
        for message, count in messages.most_common(SHOWN if kind != "failed" else None):
            print(f"  {kind:8s} {count:6d} {message}")


def alike(message: str) -> str:
    """A message without what differs from case to case."""
    return re.sub(r"0x[0-9a-f]+|\bk_[0-9a-f]+|%\w+|<[^>]*>|\d+", "#", message)[:160]


def show_failures(verdicts: dict[int, Verdict], most: int, seconds: float) -> None:
    """The failures, each as its Python source: up to three of those with one message are made small."""
    seen: Counter[str] = Counter()
    for seed, verdict in sorted(verdicts.items()):
        if not verdict.bad:
            continue
        kind = alike(verdict.message) if verdict.kind == "failed" else "wrong"
        seen[kind] += 1
        print(f"\nseed {seed}: {verdict.kind}: {verdict.message}", flush=True)
        if sum(seen.values()) <= most and (kind == "wrong" or seen[kind] <= 3):
            small = shrunk(draw(seed), verdict.kind, lambda p: judged_alone(p, seconds))
            print(f"{small.source()}# {judged_alone(small, seconds).message}", flush=True)


def judged_alone(program: Program, seconds: float = 60.0) -> Verdict:
    """The verdict on a program in a child of its own."""
    return _verdict(next(results([program], judged, seconds))[1])


if __name__ == "__main__":
    raise SystemExit(main())
