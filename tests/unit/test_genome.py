import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import make_space

from gevo.genome import IDENTITY, Genome
from gevo.variation import mutate

SPACE = make_space()


def drawn(seed: int, edits: int) -> Genome:
    rng, genome = random.Random(seed), IDENTITY
    for _ in range(edits):
        genome = mutate(genome, SPACE, rng, max_edits=20)
    return genome


@given(st.integers(0, 2**32), st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_genome_to_text_to_genome_is_the_identity(seed: int, edits: int) -> None:
    genome = drawn(seed, edits)
    again = Genome.parse(genome.text)
    assert again == genome
    assert again.text == genome.text and again.key == genome.key


def test_schedule_genes_survive_the_round_trip() -> None:
    genome = Genome((), (("remat", "op3", ("op4", 2)), ("order", 1.5)))
    assert Genome.parse(genome.text) == genome


def test_key_depends_on_content_and_order_only() -> None:
    genome = next(g for g in (drawn(s, 6) for s in range(50)) if len(set(g.edits)) >= 2)
    assert Genome.from_json(json.loads(json.dumps(genome.to_json()))).key == genome.key
    assert Genome(tuple(reversed(genome.edits))).key != genome.key
    assert IDENTITY.key != genome.key and len(genome.key) == 20


def test_unknown_edit_kind_is_named() -> None:
    with pytest.raises(ValueError, match="unknown edit kind 'melt'; known: delete"):
        Genome.from_json({"edits": [{"kind": "melt"}]})


def test_storage_is_part_of_text_key_and_size_and_f32_is_the_base() -> None:
    made = [replace(IDENTITY, storage=storage) for storage in ("f32", "f16", "bf16")]
    assert made[0] == IDENTITY and "storage" not in IDENTITY.to_json()
    assert [Genome.parse(g.text) for g in made] == made and len({g.key for g in made}) == 3
    assert [g.size for g in made] == [0, 1, 1] and made[1].to_json()["storage"] == "f16"
