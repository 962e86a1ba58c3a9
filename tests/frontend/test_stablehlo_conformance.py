"""The reader of StableHLO's interpreter tests: checks become expectations, constants arguments, types are told."""

import sys
from pathlib import Path

import numpy as np
import pytest
from jaxlib.mlir import ir

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from stablehlo_conformance import SMOKE, outcome_of
from stablehlo_files import case, context, outside
from stablehlo_files import tests_in as read_folder

ADD = """
func.func @add() {{
  %x = stablehlo.constant dense<{x}> : tensor<{type}>
  %y = stablehlo.add %x, %x : tensor<{type}>
  {check}
  func.return
}}
"""


def only(folder, text):
    (folder / "one.mlir").write_text(text)
    (found,) = read_folder(folder)
    return found


def added(folder, x, type_, check):
    return only(folder, ADD.format(x=x, type=type_, check=check.format(type=f"tensor<{type_}>")))


def test_the_tests_of_the_smoke_end_as_they_should(tmp_path):
    (tmp_path / "smoke.mlir").write_text(SMOKE)
    found = {test.function: outcome_of(test) for test in read_folder(tmp_path)}
    kinds = {name: (o.kind, o.op) for name, o in found.items()}
    assert kinds["sum"] == ("exact", "reduce")
    assert kinds["add_of_small_integers"] == ("exact", "add")
    assert kinds["main"] == ("exact", "multiply")
    assert kinds["of_complex_numbers"] == ("exact", "multiply")
    assert kinds["sort"] == ("exact", "sort")
    assert kinds["of_four_bits"][0] == "outside"


@pytest.mark.parametrize(
    ("x", "type_", "check"),
    [
        ("[1.0, 2.0]", "2xf32", "check.expect_eq_const %y, dense<[2.0, 4.5]> : {type}"),
        ("[1.0, 2.0]", "2xf32", "check.expect_almost_eq_const %y, dense<[2.0, 4.1]> : {type}"),
        ("[1, 2]", "2xi32", '"check.expect_eq_const"(%y) <{{value = dense<[2, 5]> : {type}}}> : ({type}) -> ()'),
        ("[200, 2]", "2xui8", "check.expect_eq_const %y, dense<[145, 4]> : {type}"),
    ],
)
def test_a_result_that_is_not_what_the_check_asks_is_wrong(tmp_path, x, type_, check):
    found = outcome_of(added(tmp_path, x, type_, check))
    assert (found.kind, found.op) == ("wrong", "add")


def test_a_check_has_the_tolerance_that_it_names(tmp_path):
    near = "check.expect_almost_eq_const %y, dense<[2.0, 4.05]> : {type}, tolerance = 0.1"
    assert outcome_of(added(tmp_path, "[1.0, 2.0]", "2xf32", near)).kind == "pass"


def test_unsigned_integers_wrap(tmp_path):
    wrapped = "check.expect_eq_const %y, dense<[4294967294, 4]> : {type}"
    assert outcome_of(added(tmp_path, "[4294967295, 2]", "2xui32", wrapped)).kind == "exact"


def test_constants_become_arguments_and_hexadecimal_data_are_read(tmp_path):
    check = 'check.expect_eq_const %y, dense<"0x000000400000C0FF"> : {type}'
    with context(), ir.Location.unknown():
        found = case(added(tmp_path, "[1.0, 0xFFC00000]", "2xf32", check))
        assert "stablehlo.constant" not in str(found.module)
    (given,), (expected,) = found.arguments, found.expected
    np.testing.assert_array_equal(given, np.array([1, np.nan], np.float32))
    np.testing.assert_array_equal(expected.data, np.array([2, np.nan], np.float32))


@pytest.mark.parametrize(
    ("type_", "reason"),
    [("2xi4", "2 and 4 bits"), ("2xui2", "2 and 4 bits"), ("?xf32", "dynamic shapes"), ("2xf8E4M3", "small floats"),
     ("2xcomplex<f32>", ""), ("2xi32", ""), ("2x4xi32", ""), ("2xui8", "")],
)  # fmt: skip
def test_what_is_outside_is_told(tmp_path, type_, reason):
    assert outside(added(tmp_path, "1", type_, "check.expect_eq %y, %y : {type}")) == reason
