"""Kernel calls are named by the sites of the ops that they stem from, whatever way a step is cut."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from small_steps import MLP, drawn, numbered

from mlir_passes.canonical import canonical_module, write_base
from mlir_passes.edits import Edit
from mlir_passes.edits.scale import Scale
from mlir_passes.graph import KernelGraph
from mlir_passes.objects import ObjectCache
from mlir_passes.partition import partition
from mlir_passes.pipeline import apply_genome, canonical_text, compile_text, parse_base
from mlir_passes.plan import Settled

BASE, SPACE = numbered(MLP, 2)
CALLS = ["op16", "op18", "op19", "op24", "op28", "op30"]  # relu, difference, loss, mask, two updates


def cut(*edits: Edit, storage: str = "f32") -> KernelGraph:
    return partition(apply_genome(BASE, edits).module, "step", 2, storage)


def sites(graph: KernelGraph) -> list[str]:
    return [call.site for call in graph.calls]


def test_a_call_has_the_site_of_the_last_op_that_makes_an_output():
    assert sites(cut()) == CALLS
    makers = {r: op.name for op in SPACE.ops for r in op.results}
    assert [makers[f"{site}#0"] for site in CALLS] == [
        "linalg.max", "linalg.sub", "linalg.generic", "linalg.generic", "linalg.sub", "linalg.sub",
    ]  # fmt: skip


@pytest.mark.parametrize("edit", [Scale("op16#0", 0.5), Scale("op16#0", 0.5, "op17", 0), Scale("op30#0", 0.5)])
def test_what_an_edit_inserts_goes_by_the_site_that_it_reads(edit: Edit):
    assert sites(cut(edit)) == CALLS


def test_no_two_calls_share_a_site_after_random_edits_and_most_keep_theirs():
    kept = total = 0
    for seed in range(12):
        found = sites(cut(*drawn(SPACE, random.Random(seed), 2)))
        assert len(set(found)) == len(found) and all(found)
        kept += len(set(found) & set(CALLS))
        total += len(CALLS)
    assert kept > 0.75 * total


def test_narrow_storage_leaves_sites_as_they_are():
    text = re.sub(r"tensor<[\dx]+f32>", lambda found: found[0].replace("5", "512"), MLP)
    base, _ = numbered(text, 2)
    wide, narrow = (partition(apply_genome(base, []).module, "step", 2, storage) for storage in ("f32", "bf16"))
    assert any(t.element == "bf16" for t in narrow.types.values())
    assert sites(narrow) == sites(wide) == CALLS


def test_the_text_and_the_kernels_are_those_of_a_step_without_sites():
    assert apply_genome(BASE, []).text == canonical_text(MLP, "step")
    plain = partition(parse_base(canonical_text(MLP, "step")), "step", 2)
    assert sites(plain) == [f"call{i}" for i in range(6)]
    for graph in (cut(), partition(parse_base(BASE), "step", 2), partition(canonical_module(BASE, "step"), "step", 2)):
        assert sites(graph) == CALLS
        assert replace(graph, calls=tuple(replace(call, site="") for call in graph.calls)) == replace(
            plain, calls=tuple(replace(call, site="") for call in plain.calls)
        )


def test_a_graph_that_was_kept_in_the_cache_has_its_sites(tmp_path: Path):
    write_base(MLP, 2, ["w1", "w2"], tmp_path)
    text, cache, met = (tmp_path / "base.mlir").read_text(), ObjectCache(tmp_path / "objects"), list[list[str]]()

    def note(settled: Settled, *_: object) -> None:
        met.append(sites(settled.graph))

    for _ in range(2):
        compile_text(text, "step", 2, 2, cache, jobs=1, line_of=note)
    assert met == [CALLS, CALLS]


def test_a_graph_is_the_same_after_a_round_trip():
    graph = cut()
    assert KernelGraph.from_json(graph.to_json()) == graph
