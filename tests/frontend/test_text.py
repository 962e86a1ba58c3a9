"""The text of the byte models: the standard library's own source, split by file, the same at each call."""

import sysconfig

import numpy as np
import pytest

from workloads import WorkloadError
from workloads.text import MASK, NOT_ASKED, masked_bytes, next_bytes, standard_library

SMALL = (20, 10, 10)
SPLITS = ("train", "validation", "test")


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A folder that stands for the standard library: 60 files, each of 48 bytes that tell its number."""
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    for number in range(60):
        file = tmp_path / f"package{number % 3}" / f"file{number}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes([number]) * 48)
    return tmp_path


def files(text):
    return set(text[::48])


def test_each_file_is_in_one_split(library):
    texts = standard_library()
    numbers = [files(texts[name]) for name in SPLITS]
    assert sum(map(len, numbers)) == len(set.union(*numbers)) == 60
    assert len(numbers[0]) > 40 and min(map(len, numbers)) > 0


def test_a_file_stays_in_its_split_when_others_come_and_go(library):
    before = standard_library()
    (library / "package1" / "file7.py").unlink()
    (library / "new.py").write_bytes(b"\xff" * 48)
    after = standard_library()
    assert all(files(before[name]) - {7} == files(after[name]) - {255} for name in SPLITS)


@pytest.mark.parametrize("folder", ["test", "package0/tests", "site-packages/numpy", "idlelib/idle_test"])
def test_tests_and_installed_packages_are_left_out(library, folder):
    before = standard_library()
    (library / folder).mkdir(parents=True)
    (library / folder / "more.py").write_text("x = 1\n" * 100)
    assert standard_library() == before


def test_a_library_without_its_source_says_so(library):
    with pytest.raises(WorkloadError, match=r"pieces of 17 bytes to train, not 20000.*whole library as \.py files"):
        next_bytes(16)


def test_the_label_of_a_byte_is_the_one_after_it():
    for x, y in next_bytes(32, SMALL).values():
        assert x.shape == y.shape and x.dtype == y.dtype == np.int32
        assert np.array_equal(x[:, 1:], y[:, :-1])
        assert x.min() >= 0 and x.max() < 256


def test_as_many_bytes_are_hidden_in_each_row_and_their_labels_are_the_bytes():
    splits = masked_bytes(32, rows=SMALL)
    assert [len(splits[name][0]) for name in SPLITS] == list(SMALL)
    for x, y in splits.values():
        hidden = x == MASK
        assert (hidden.sum(axis=1) == 5).all()  # 15 % of 32
        assert np.array_equal(hidden, y != NOT_ASKED)
        assert x[~hidden].max() < 256 and y[hidden].min() >= 0 and y[hidden].max() < 256
    assert len(np.unique(splits["train"][0] == MASK, axis=0)) > 10


def test_the_rows_are_the_same_at_each_call():
    first, again = (masked_bytes(32, rows=SMALL) for _ in range(2))
    assert all(np.array_equal(a, b) for name in SPLITS for a, b in zip(first[name], again[name], strict=True))
