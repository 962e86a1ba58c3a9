"""Edits of the step: see `base` for the family and its table."""

from mlir_passes.edits.base import KINDS, Edit, Use, edit_class, edit_from_json

__all__ = ["KINDS", "Edit", "Use", "edit_class", "edit_from_json"]
