"""What `gevo profile` measures and keeps: fits against known lines, files that round-trip, and its ends."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fitness import measure_device as measuring
from fitness.device import Device, KernelRate, PageTier, device_file, load_device
from fitness.errors import FitnessError, StoreError
from fitness.measure_device import SAMPLES, Sample, line, measure_kernel, measure_page, page_tier
from fitness.profile import host_profile
from gevo import profile_command
from gevo.errors import INTERRUPTED, Unwritable
from mlir_passes.llvm import host

SIZES = [1 << 16, 1 << 18, 1 << 20, 1 << 22]
TIER = PageTier("/store", -1, 1e-5, 1e9, 2e-5, 2e9, "by hand")
DEVICE = Device(
    host().cpu, "2026-01-02T03:04:05+00:00", "by hand", (KernelRate("product", "8x8x8", 1e-6, 1024, 768),), 1e10, TIER
)
QUICK = tuple(replace(sample, n=16) for sample in SAMPLES[::3])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEVO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_line_through_exact_times_is_found():
    latency, bandwidth = line(SIZES, [3e-5 + size / 2e9 for size in SIZES])
    assert (latency, bandwidth) == (pytest.approx(3e-5), pytest.approx(2e9))


def test_a_line_never_has_a_latency_below_zero():
    times = [size / 2e9 - 1e-5 for size in SIZES]
    latency, bandwidth = line(SIZES, times)
    slope = [size / t for size, t in zip(SIZES, times, strict=True)]
    best = sum(s * s for s in slope) / sum(slope)  # least squares of relative errors without latency
    assert (latency, bandwidth) == (0, pytest.approx(best))


def test_a_store_is_measured_and_left_as_it_was(tmp_path: Path):
    tier = measure_page(tmp_path, 1 << 18)
    assert list(tmp_path.iterdir()) == []
    assert tier.folder == str(tmp_path) and tier.device == os.stat(tmp_path).st_dev
    assert tier.out_latency_s >= 0 and tier.in_latency_s >= 0 and tier.out_bytes_per_s > 0 and tier.in_bytes_per_s > 0


def test_a_folder_that_cannot_be_paged_to_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(StoreError, match=r"no such page folder: No such file.*missing.*Make it"):
        measure_page(tmp_path / "missing")

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StoreError, match=r"cannot page to it: No space left.*--page-dir"):
        measure_page(tmp_path, 1 << 18)


@pytest.mark.parametrize(
    ("room", "method"), [(1 << 20, "64 KiB to 1 MiB"), (70_000, "4 KiB to 64 KiB"), (5000, "4 KiB to 4 KiB")]
)
def test_a_store_with_little_room_is_measured_by_what_it_has(
    room: int, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def limited(handle: int, offset: int, size: int) -> None:
        if offset + size > room:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", limited)
    tier = measure_page(tmp_path, 4 << 20)
    assert method in tier.method and tier.out_bytes_per_s > 0 and tier.in_bytes_per_s > 0


def test_what_was_measured_round_trips(tmp_path: Path):
    path = device_file(tmp_path, DEVICE.cpu)
    assert load_device(path) is None and host_profile(tmp_path) is None
    path.parent.mkdir()
    path.write_text(json.dumps(DEVICE.to_json()))
    assert load_device(path) == host_profile(tmp_path) == DEVICE


@pytest.mark.parametrize("text", ["", "{}", '{"format": 0}', '{"format": 1, "kernels": 3}'])
def test_a_damaged_file_is_said_to_be_one(tmp_path: Path, text: str):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(FitnessError, match=r"measured profile is damaged.*Run gevo profile again"):
        load_device(tmp_path / "x.json")


def test_the_store_of_the_same_file_system_is_not_measured_again(tmp_path: Path, cache: Path):
    here = replace(DEVICE, page=replace(TIER, device=os.stat(tmp_path).st_dev))
    path = device_file(cache, host().cpu)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(here.to_json()))
    assert page_tier(tmp_path) == here.page
    path.write_text(json.dumps(DEVICE.to_json()))
    assert page_tier(tmp_path).folder == str(tmp_path)


@pytest.mark.parametrize("sample", QUICK, ids=lambda sample: sample.family)
def test_a_sample_is_one_kernel_with_its_costs(sample: Sample):
    rate = measure_kernel(sample)
    elements = {"product": 3 * 256, "elementwise": 3 * 256, "reduction": 256 + 16}.get(sample.family, 2 * 256)
    assert rate.bytes == 4 * elements
    assert rate.time_s > 0 and (rate.flops > 0) == (sample.family != "transposition")


def test_the_command_keeps_and_prints_what_it_measured(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measuring, "copy_bytes_per_s", lambda: 1e10)
    console = Console(record=True, width=160)
    assert profile_command.profile(tmp_path, console, QUICK[:2]) == 0
    kept = host_profile()
    assert kept is not None and [k.family for k in kept.kernels] == ["product", "elementwise"]
    text = console.export_text()
    for word in ("product", "16x16x16", "flop/s", "latency", "10.0 GB/s", str(device_file(cache, host().cpu))):
        assert word in text


def test_ctrl_c_keeps_nothing(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    def stopped() -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "copy_bytes_per_s", stopped)
    assert profile_command.profile(tmp_path, Console(quiet=True), QUICK[:1]) == INTERRUPTED
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GEVO_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(profile_command, "measure_device", lambda *_: DEVICE)
    with pytest.raises(Unwritable, match="cannot write the cache"):
        profile_command.profile(tmp_path, Console(quiet=True))
