"""Options are defined once, and those that are wrong are told of before those that are missing."""

import inspect
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.cli.groups import grouped
from lowtide.cli.options import Chosen
from lowtide.errors import InputError

COMMANDS = {
    **{name: [name] for name in ("profile", "train", "fit", "policies", "sweep", "largest")},
    **{f"bench {name}": ["bench", name] for name in ("budgets", "capture", "process", "startup", "swap")},
    "animate saved": ["animate", "saved"],
}


def command(words: list[str]) -> typer.core.TyperCommand:
    found = typer.main.get_command(app)
    for word in words:
        found = found.commands[word]  # type: ignore[attr-defined]
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command_takes_the_same_model_and_its_options(words: list[str]) -> None:
    mine = {param.name: param for param in command(words).params}
    usual = {param.name: param for param in command(["profile"]).params}
    for name in inspect.signature(Chosen).parameters:
        assert getattr(mine[name], "help", None) == getattr(usual[name], "help", None)
        assert mine[name].default == usual[name].default or (words, name) == (["fit"], "optimizer")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "budgets", "mlp", "--left", "many"], "--left takes per cents such as 75,50,12, not 'many'"),
        (["bench", "process", "mlp", "--warmup", "1"], "--warmup must be at least 2, not 1"),
        (["bench", "swap", "mlp", "--rounds", "0"], "--rounds must be at least 1, not 0"),
        (["bench", "startup", "mlp", "--policy", "best"], "best"),
        (["bench", "startup", "mlp", "--shapes", "-1"], "--shapes must be at least 0, not -1"),
        (["bench", "capture", "mlp", "--steps", "0"], "--steps must be at least 1, not 0"),
        (["animate", "saved", "mlp", "--budget", "three"], "three"),
        (["fit", "mlp", "--dtype", "int4"], "--dtype must be one of fp32, bf16, fp16, amp-bf16, amp-fp16, not 'int4'"),
        (["largest", "mlp", "--time-limit", "nan"], "the time limit must be a number of seconds above zero"),
        (["sweep", "mlp", "--op-runs", "0"], "--op-runs must be at least 1, not 0"),
    ],
)
def test_a_missing_option_hides_no_wrong_one(words: list[str], said: str) -> None:
    """Each of these lacks --out, --device, --budget or --memory-limit as well."""
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, InputError), result.output
    assert said in str(result.exception)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "budgets", "mlp"])
    assert result.exit_code == 2
    assert "Missing option '--out'" in result.output


def test_a_group_becomes_its_fields_and_comes_back_whole() -> None:
    seen = []

    @grouped(lr=0.5)
    def run(chosen: Chosen, steps: int = 3) -> None:
        """Says it."""
        seen.append((chosen, steps))

    alone = typer.Typer()
    alone.command()(run)
    result = CliRunner().invoke(alone, ["mlp", "--seq-len", "9", "--steps", "4"])
    assert result.exit_code == 0, result.output
    assert seen == [(Chosen("mlp", seq_len=9, lr=0.5), 4)]
