"""Options that take several values: each value is given its own option before click sees it."""

import click
import pytest
from click.testing import CliRunner

from shardwise.commands.several import taking_several


@click.command(cls=taking_several("--only"))
@click.argument("name", required=False)
@click.option("--only", multiple=True)
@click.option("--quick", is_flag=True)
def command(name: str | None, only: tuple[str, ...], quick: bool) -> None:
    click.echo(f"{name} {only} {quick}")


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        ([], "None () False"),
        (["--only", "a"], "None ('a',) False"),
        (["--only", "a", "b", "c"], "None ('a', 'b', 'c') False"),
        (["x", "--only", "a", "b"], "x ('a', 'b') False"),
        (["--only", "a", "b", "--quick", "x"], "x ('a', 'b') True"),
        (["--only", "a", "--only", "b", "c"], "None ('a', 'b', 'c') False"),
        (["--only", "-", "b"], "None ('-', 'b') False"),  # a dash alone is a value
        (["--only=a", "x"], "x ('a',) False"),
    ],
)
def test_values_that_follow_belong_to_the_option(args: list[str], shown: str) -> None:
    found = CliRunner().invoke(command, args)
    assert found.exit_code == 0, found.output
    assert found.output.strip() == shown


def test_an_option_without_a_value_is_refused() -> None:
    assert CliRunner().invoke(command, ["--only"]).exit_code == 2
