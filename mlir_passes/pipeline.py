"""The one list of named stages from a base module and edits to a compiled program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir_passes.canonical import check, cleaned, fingerprint
from mlir_passes.edits.base import Edit
from mlir_passes.ir_tools import body, function, new_context, parse
from mlir_passes.repair import Editor

STAGES = ("parse", "edit", "verify", "cleanup", "partition", "compile", "plan")


@dataclass(frozen=True)
class Variant:
    """A step with its edits applied, simplified; variants with one fingerprint are one program."""

    text: str
    fingerprint: str


def apply_genome(base_text: str, edits: Sequence[Edit]) -> Variant:
    """The variant of a numbered base module; raises EditDoesNotApply or PassError."""
    module = parse(base_text, new_context())
    editor = Editor(body(function(module, "step")))
    for edit in edits:
        edit.apply(editor)
    text = cleaned(module, "step")
    check(module, "step")
    return Variant(text, fingerprint(text))
