"""The command line."""

from io import StringIO

from click.testing import CliRunner
from rich.console import Console

from shardwise import __version__
from shardwise.cli import main
from shardwise.tour import show


def test_the_tour_runs_on_real_data_and_agrees_with_numpy():
    console = Console(record=True, width=120, file=StringIO())
    assert show(console)
    text = console.export_text()
    assert text.count("equal to plain NumPy's") == 6
    assert "all weights are equal to those of one device" in text
    assert "different from" not in text
    for word in ("exchange", "the least possible", "gather, then slice", "permute", "halo_exchange", "0+1+2+3"):
        assert word in text


def test_a_wrong_result_makes_the_tour_fail(monkeypatch):
    monkeypatch.setattr("shardwise.tour.show", lambda: False)
    result = CliRunner().invoke(main, ["tour"])
    assert result.exit_code == 1
    assert "differs from plain NumPy" in result.output


def test_help_and_version():
    assert "tour" in CliRunner().invoke(main, ["--help"]).output
    assert __version__ in CliRunner().invoke(main, ["--version"]).output
