"""Durations and sizes as people write them, to numbers and back."""

from __future__ import annotations

import math
import re

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def parse_duration(text: str) -> float:
    """Seconds of "90s", "30m", "8h", "1h30m"; raises ValueError."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text.strip().lower())
    if not parts or "".join(n + u for n, u in parts) != text.strip().lower():
        raise ValueError(f"expected a duration such as 90s, 30m, 8h or 1h30m, got {text!r}")
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def parse_bytes(text: str) -> int:
    """Bytes of "4MiB", "512KiB", "1GB", "65536"; raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or (match[2] or "b") not in BYTES:
        raise ValueError(f"expected a size such as 4MiB, 512KiB or 65536, got {text!r}")
    return round(float(match[1]) * BYTES[match[2] or "b"])


def seconds(value: float) -> str:
    """A time with a fitting unit: "12.3 us", "4.56 ms", "1.20 s"."""
    if not math.isfinite(value):
        return "-"
    for unit, scale in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        if abs(value) * scale < 1000:
            return f"{_three_digits(value * scale)} {unit}"
    return f"{_three_digits(value)} s"


def joules(value: float) -> str:
    for unit, scale in (("nJ", 1e9), ("uJ", 1e6), ("mJ", 1e3)):
        if abs(value) * scale < 1000:
            return f"{_three_digits(value * scale)} {unit}"
    return f"{_three_digits(value)} J"


def count(value: float) -> str:
    """A number with a metric prefix: "412", "6.43 M"."""
    if abs(value) < 1000:
        return f"{value:.0f}"
    for prefix, scale in (("k", 1e3), ("M", 1e6)):
        if abs(value) < 1000 * scale:
            return f"{_three_digits(value / scale)} {prefix}"
    return f"{_three_digits(value / 1e9)} G"


def size(value: float) -> str:
    """Bytes with a binary unit and three digits: "412 B", "1.43 MiB", exact in JSON and Parquet only."""
    if abs(value) < 1024:
        return f"{value:.0f} B"
    for unit, scale in (("KiB", 1 << 10), ("MiB", 1 << 20)):
        if abs(value) < 1024 * scale:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{_three_digits(value / (1 << 30))} GiB"


def _three_digits(value: float) -> str:
    return f"{value:.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def span(value: float) -> str:
    """A wait in whole units: "45 s", "12m 05s", "7h 59m"."""
    whole = max(0, round(value))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


OBJECTIVE_TEXT = {"runtime_s": seconds, "peak_bytes": size, "energy_j": joules, "error": lambda v: f"{v:.4f}"}
