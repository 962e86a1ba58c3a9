"""What a base module is: what is refused and how it is said, numbering, and the description of the space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_steps import MLP, floats, mlp_reference, numbered, run, run_program

from mlir_passes.canonical import canonicalise, cleaned, fingerprint, write_base
from mlir_passes.errors import PassError, UnsupportedOp
from mlir_passes.ir_tools import body, function, new_context, operations, parse, site_of
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import apply_genome, canonical_text, compile_program
from mlir_passes.sites import describe
from mlir_passes.space import Space

X = "%x: tensor<4xf32>"


def step(code: str, arguments: str = X, results: str = "tensor<4xf32>", returned: str = "%x : tensor<4xf32>") -> str:
    return f"func.func @step({arguments}) -> {results} {{\n  {code}\n  return {returned}\n}}"


REFUSED = {
    "generic stablehlo": (
        step('%y = "stablehlo.add"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>'),
        ["unsupported op stablehlo.add", "rewrite that part of the step"],
    ),
    "custom stablehlo": (
        step("%y = stablehlo.add %x, %x : tensor<4xf32>"),
        ["unsupported op stablehlo.add", "rewrite that part of the step"],
    ),
    "an op of a dialect that nobody knows": (
        step('%y = "mine.op"(%x) : (tensor<4xf32>) -> tensor<4xf32>'),
        ["unsupported op mine.op", "Only func, linalg, tensor, arith, math, scf are taken"],
    ),
    "memref op": (
        step(
            "%m = memref.alloc() : memref<4xf32>\n"
            "  %y = bufferization.to_tensor %m restrict : memref<4xf32> to tensor<4xf32>",
            returned="%y : tensor<4xf32>",
        ),
        ["unsupported op memref.alloc", "Give the step on tensors"],
    ),
    "memref argument": (
        step("", "%x: memref<4xf32>, %y: tensor<f32>", "tensor<f32>", "%y : tensor<f32>"),
        ["argument 0 has type memref<4xf32>"],
    ),
    "assertion": (
        step('%c = arith.constant false\n  cf.assert %c, "no"'),
        ["unsupported op cf.assert", "structured control flow"],
    ),
    "branch": (
        step("%c = tensor.extract %b[] : tensor<i1>\n  cf.cond_br %c, ^one, ^two\n^one:\n"
             "  %e = tensor.empty() : tensor<4xf32>\n"
             "  %y = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>\n"
             "  return %y : tensor<4xf32>\n^two:", f"{X}, %b: tensor<i1>"),
        ["3 blocks", "structured control flow"],
    ),
    "dynamic argument": (
        step("%y = tensor.cast %d : tensor<?xf32> to tensor<4xf32>", f"%d: tensor<?xf32>, {X}"),
        ["argument 0 has type tensor<?xf32>", "static shape"],
    ),
    "dynamic value": (
        step(
            "%k = tensor.extract %n[] : tensor<i32>\n  %i = arith.index_cast %k : i32 to index\n"
            "  %s = tensor.extract_slice %x[0] [%i] [1] : tensor<4xf32> to tensor<?xf32>\n"
            "  %y = tensor.insert_slice %s into %z[0] [%i] [1] : tensor<?xf32> into tensor<4xf32>",
            f"{X}, %n: tensor<i32>, %z: tensor<4xf32>", returned="%y : tensor<4xf32>",
        ),
        ["tensor.extract_slice", "tensor<?xf32>", "static shape"],
    ),
    "scalar argument": (step("", f"{X}, %s: f32"), ["argument 1 has type f32"]),
    "scalar result": (
        step(
            "%i = arith.constant 0 : index\n  %s = tensor.extract %x[%i] : tensor<4xf32>",
            results="f32", returned="%s : f32",
        ),
        ["result 0 has type f32"],
    ),
    "complex elements": (
        step("", f"{X}, %c: tensor<4xcomplex<f32>>"),
        ["argument 1 has type tensor<4xcomplex<f32>>", "Elements may be f16"],
    ),
    "callee without a body": (
        "func.func private @other(tensor<4xf32>) -> tensor<4xf32>\n"
        + step("%y = call @other(%x) : (tensor<4xf32>) -> tensor<4xf32>", returned="%y : tensor<4xf32>"),
        ["call that cannot be inlined", "Define the callee"],
    ),
    "other name": (step("").replace("@step", "@main"), ["no function @step", "has main"]),
    "no module": ("this is no MLIR", ["cannot read the module"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_taken_is_named_with_what_to_do(case: str):
    text, parts = REFUSED[case]
    with pytest.raises(PassError) as raised:
        canonicalise(text, "step", new_context())
    for part in parts:
        assert part in str(raised.value)


def test_refusal_is_of_its_own_kind_and_names_its_stage():
    with pytest.raises(UnsupportedOp) as raised:
        canonicalise(REFUSED["generic stablehlo"][0], "step", new_context())
    assert raised.value.stage == "check" and raised.value.todo


def test_attributes_of_other_tools_are_stripped():
    text = """module @jit_step attributes {mhlo.num_partitions = 1 : i32, jax.uses_shape_polymorphism = false} {
  func.func public @step(%x: tensor<4xf32> {mhlo.sharding = "s", tf.aliasing_output = 0 : i32})
      -> (tensor<4xf32> {jax.result_info = "r"}) {
    %e = tensor.empty() : tensor<4xf32>
    %y = linalg.exp {mhlo.frontend = "f"} ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}"""
    found = str(canonicalise(text, "step", new_context()))
    assert "linalg.exp" in found
    for foreign in ("mhlo", "jax.", "tf."):
        assert foreign not in found


def test_helper_functions_are_inlined_and_dead_code_goes():
    text = """func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.add ins(%x, %x : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %dead = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %y = call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %z = call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.sub ins(%y, %z : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %s : tensor<4xf32>
}"""
    found = canonical_text(text, "step")
    assert "call" not in found and "exp" not in found and "@twice" not in found
    assert found.count("linalg.add") == 1
    np.testing.assert_array_equal(run(text, floats(4))[0], np.zeros(4))


def test_sites_survive_the_way_through_text():
    base, space = numbered(MLP, 2)
    module = parse(base, new_context())
    block = body(function(module, "step"))
    assert [site_of(op) for op in operations(block)[:-1]] == [op.site for op in space.ops]
    assert describe(block, 2, ["leaf0", "leaf1"]) == space
    assert str(module) == base


def test_base_module_on_disk_is_what_the_space_describes(tmp_path: Path):
    write_base(MLP, 2, ["w1", "w2"], tmp_path)
    base = (tmp_path / "base.mlir").read_text()
    space = Space.load(tmp_path / "space.json")
    assert base == numbered(MLP, 2)[0]
    assert [p.name for p in space.parameters] == ["w1", "w2"]
    assert all(f'site = "{op.site}"' in base for op in space.ops)


def test_space_round_trip(tmp_path: Path):
    _, space = numbered(MLP, 2)
    space.save(tmp_path / "space.json")
    assert Space.load(tmp_path / "space.json") == space


def test_identity_genome_has_the_fingerprint_of_the_base():
    base, _ = numbered(MLP, 2)
    variant = apply_genome(base, [])
    assert variant.fingerprint == fingerprint(canonical_text(MLP, "step"))
    assert "site" not in variant.text
    again = cleaned(parse(variant.text, new_context()), "step")
    assert again == variant.text


def test_different_programs_have_different_fingerprints():
    other = MLP.replace("0.01 : f32", "0.02 : f32")
    assert fingerprint(canonical_text(MLP, "step")) != fingerprint(canonical_text(other, "step"))


def test_identity_genome_computes_the_base():
    arguments = [floats(3, 4), floats(4, 2, seed=1), floats(5, 3, seed=2), floats(5, 2, seed=3)]
    variant = apply_genome(numbered(MLP, 2)[0], [])
    program = compile_program(variant.text, "step", 2, 2, ObjectCache(None))
    for got, exact in zip(run_program(program, arguments[:2], arguments[2:]), mlp_reference(*arguments), strict=True):
        np.testing.assert_allclose(got, exact, rtol=3e-6, atol=3e-6)


def named(space: Space, name: str, occurrence: int = 0) -> str:
    return [op.site for op in space.ops if op.name == name][occurrence]


def test_activations_are_the_values_that_backward_reads():
    """Of the forward part: the pre-activation (mask), the hidden layer (its transpose), the difference."""
    _, space = numbered(MLP, 2)
    before_relu, hidden, difference = (
        named(space, "linalg.matmul"),
        named(space, "linalg.max"),
        named(space, "linalg.sub"),
    )
    found = {a.value: a for a in space.activations}
    assert set(found) == {f"{before_relu}#0", f"{hidden}#0", f"{difference}#0"}
    assert [found[f"{s}#0"].bytes for s in (before_relu, hidden, difference)] == [80, 80, 40]
    assert found[f"{hidden}#0"].first_use == found[f"{hidden}#0"].last_use == named(space, "linalg.transpose")
    assert found[f"{difference}#0"].first_use == named(space, "linalg.matmul", 2)
    assert found[f"{difference}#0"].last_use == named(space, "linalg.matmul", 3)


def test_update_chain_holds_what_serves_one_parameter_alone():
    _, space = numbered(MLP, 2)
    first, second = space.parameters
    assert (first.arg, first.name, first.bytes, first.result) == ("arg0", "leaf0", 48, 0)
    assert (second.arg, second.name, second.bytes, second.result) == ("arg1", "leaf1", 32, 1)

    def names(update: tuple[str, ...]) -> list[str]:
        return [space.by_site[s].name for s in update if space.by_site[s].name not in ("tensor.empty", "linalg.fill")]

    # w2: h^T, the product with the difference, the rate, the subtraction
    assert names(second.update) == ["linalg.transpose", "linalg.matmul", "linalg.generic", "linalg.sub"]
    # w1: w2^T, back through w2, the mask, x^T, the product, the rate, the subtraction
    assert names(first.update) == [
        "linalg.transpose", "linalg.matmul", "linalg.generic",
        "linalg.transpose", "linalg.matmul", "linalg.generic", "linalg.sub",
    ]  # fmt: skip
    assert not set(first.update) & set(second.update)
    forward = {named(space, "linalg.matmul"), named(space, "linalg.max"), named(space, "linalg.sub")}
    assert not forward & {*first.update, *second.update}
    assert space.returns[first.result] == f"{first.update[-1]}#0"


def test_new_value_that_others_read_too_has_no_chain_of_its_own():
    """Deleting its last op would change the metric as well."""
    code = """%e = tensor.empty() : tensor<4xf32>
  %y = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.log ins(%y : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>"""
    two = "tensor<4xf32>, tensor<4xf32>"
    (parameter,) = numbered(step(code, results=f"({two})", returned=f"%y, %m : {two}"), 1)[1].parameters
    assert parameter.update == ()
    (alone,) = numbered(step(code, returned="%y : tensor<4xf32>"), 1)[1].parameters
    assert len(alone.update) == 2  # the op and its storage


def test_parameter_that_passes_through_has_no_update():
    text = step("%e = tensor.empty() : tensor<f32>", f"{X}, %b: tensor<f32>", "(tensor<4xf32>, tensor<f32>)",
                "%x, %b : tensor<4xf32>, tensor<f32>")  # fmt: skip
    (parameter,) = numbered(text, 1)[1].parameters
    assert parameter.update == ()


def test_slots_leave_out_what_is_only_written_to():
    _, space = numbered(MLP, 2)
    matmul, relu = space.by_site[named(space, "linalg.matmul")], space.by_site[named(space, "linalg.max")]
    assert matmul.slots == (0, 1, 2)  # a matmul adds to what its output holds
    assert relu.slots == (0, 1)
    assert space.by_site[named(space, "linalg.fill")].slots == ()
    assert not any(op.editable for op in space.ops if op.name == "tensor.empty")
