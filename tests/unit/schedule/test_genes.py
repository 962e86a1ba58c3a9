"""The plain form of schedule genes says all of them, and nothing else passes for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlir_passes.errors import PassError
from mlir_passes.schedule.genes import Before, Hold, from_plain, to_plain

names = st.text(max_size=4) | st.sampled_from(["before", "op17", "op17#0"])
stages = st.lists(st.tuples(names, names), max_size=3).map(tuple)
others = st.lists(names, max_size=2).map(tuple)
genes = st.builds(Hold, names, st.booleans(), stages, others, stages) | st.builds(Before, names, names)


@settings(max_examples=50, deadline=None)
@given(st.lists(genes, max_size=6).map(tuple))
def test_genes_come_back_from_their_json(line: tuple[Hold | Before, ...]) -> None:
    assert from_plain(json.loads(json.dumps(to_plain(line)))) == line


def test_the_plain_form_is_short() -> None:
    hold = Hold("op17#0", True, (("op17", "op20"), ("op88", "op90")))
    assert to_plain([hold]) == [["op17#0", 1, "op17", "op20", "op88", "op90"]]
    detailed = Hold("op17#0", False, (("op17", "op20"),), ("op33",), (("op40", "op20"),))
    assert to_plain([detailed]) == [["op17#0", 0, "op17", "op20", 2, "op33", 3, "op40", "op20"]]
    assert to_plain([Before("op44", "op20")]) == [["before", "op44", "op20"]]


NO_GENES: tuple[list[object], ...] = (
    [], ["op1#0"], ["op1#0", 2], ["op1#0", 1, "op1"], [3, 1], ["after", "op1", "op2"], ["before", "op1"],
    ["op1#0", 1, 2, 3], ["op1#0", 1, 2], ["op1#0", 1, 3, "op1"], ["op1#0", 1, 4, "op1"],
    ["op1#0", 1, 3, "op1", "op2", 2, "op3"],
)  # fmt: skip


@pytest.mark.parametrize("row", NO_GENES)
def test_what_is_no_gene_is_named(row: list[object]) -> None:
    with pytest.raises(PassError, match="is no gene"):
        from_plain([row])
