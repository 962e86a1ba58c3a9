"""The packages import each other, and third parties, only along the arrows that pyproject.toml states."""

from pathlib import Path

from importlinter.cli import lint_imports


def test_arrows_and_fences_hold(monkeypatch, capsys):
    monkeypatch.chdir(Path(__file__).parents[2])
    assert lint_imports(no_cache=True) == 0, capsys.readouterr().out
