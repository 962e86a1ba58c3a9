import pytest

from gevo.units import joules, parse_bytes, parse_duration, seconds, size, span


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90), ("30m", 1800), ("8h", 28800), ("1h30m", 5400), ("0.5h", 1800), ("2D", 172800)]
)
def test_durations(text: str, value: float) -> None:
    assert parse_duration(text) == value


@pytest.mark.parametrize("text", ["", "8", "h", "8 hours", "-3s", "1h30", "nan"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 90s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "value"), [("4MiB", 4 << 20), ("512 KiB", 512 << 10), ("1gb", 10**9), ("65536", 65536)]
)
def test_sizes(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["", "4 apples", "MiB", "-1", "1e6"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size such as 4MiB"):
        parse_bytes(text)


def test_figures_have_three_digits_and_a_fitting_unit() -> None:
    assert [seconds(v) for v in (4.5e-8, 1.234e-5, 0.2468, 3.0)] == ["45.0 ns", "12.3 us", "247 ms", "3.00 s"]
    assert seconds(float("nan")) == "-"
    assert [joules(v) for v in (1.39e-3, 2.0)] == ["1.39 mJ", "2.00 J"]
    assert [size(v) for v in (412, 1023 * 1024, 1500000, 5 << 30)] == ["412 B", "1023 KiB", "1.43 MiB", "5.00 GiB"]


def test_waits_are_whole() -> None:
    assert [span(v) for v in (0.2, 59.6, 725, 28740)] == ["0 s", "1m 00s", "12m 05s", "7h 59m"]
