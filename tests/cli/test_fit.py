"""`lowtide fit` end to end."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from lowtide.cli import app, main
from lowtide.errors import InputError
from lowtide.fitting.record import Fit


def test_a_table_and_files_for_each_device(tmp_path: Path) -> None:
    words = ["fit", "mlp", "--compare", "h100,rtx4090", "--batch-size", "32", "--out", str(tmp_path / "out")]
    ran = CliRunner().invoke(app, words, catch_exceptions=False)
    assert ran.exit_code == 0
    assert "fits as it is" in ran.output
    assert "RTX 4090" in ran.output
    fit = Fit.load(tmp_path / "out" / "rtx4090.json")
    assert fit.model == "mlp"
    assert fit.samples == 32
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "fit.html",
        *(f"{device}.{kind}" for device in ("h100", "rtx4090") for kind in ("json", "png")),
    }
    page = (tmp_path / "out" / "fit.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "RTX 4090" in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.slow
def test_what_fits_nowhere_ends_with_exit_code_1() -> None:
    words = ["fit", "mlp", "--device", "l4", "--budget", "1MiB", "--time-limit", "1"]
    ran = CliRunner().invoke(app, words, catch_exceptions=False)
    assert ran.exit_code == 1
    assert "no: the least found is" in ran.output


@pytest.mark.slow
def test_eight_billion_parameters_take_no_memory() -> None:
    words = ["fit", "llama-3.1-8b", "--device", "h100", "--seq-len", "8192", "--dtype", "bf16"]
    ran = CliRunner().invoke(app, words, catch_exceptions=False)
    assert ran.exit_code == 0
    assert "8,030.3 M parameters" in ran.output


def test_a_model_that_reads_values_while_it_is_built(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "import torch\nfrom torch import nn\n"
        "def make(n):\n    m = nn.Linear(3, int(torch.ones(1).sum().item()))\n    return m, torch.ones(n, 3)\n"
    )
    with pytest.raises(InputError, match=r"cannot be built without data .* leave out what reads values"):
        CliRunner().invoke(app, ["fit", f"{file}:make", "--device", "l4"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "abacus"], "unknown device 'abacus'"),
        (["--device", "l4", "--dtype", "int4"], "--dtype must be one"),
        ([], "which device"),
        (["--device", "l4", "--largest", "model"], "--largest must be batch or length"),
        (["--device", "l4", "--world", "0"], "1 to 512 devices"),
        (["--device", "l4", "--world", "12", "--parallel", "hsdp"], "no multiple of 8"),
        (["--device", "l4", "--world", "8", "--parallel", "tp"], "Sequential does not say how it is spread"),
        (["--device", "l4", "--world", "8", "--parallel", "fsdp+tp"], r"fsdp\+tp needs --tp N"),
        (["--device", "l4", "--world", "8", "--tp", "2"], "no other takes --tp"),
        (["--device", "l4", "--checkpoint", "some"], "unknown checkpointing"),
        (["--device", "l4", "--budget", "30GiB"], "is above the 22.5 GiB of NVIDIA L4"),
        (["--device", "l4", "--time-limit", "0"], "time limit"),
        (["--device", "l4", "--out", "/proc/nowhere"], "cannot write into"),
    ],
)
def test_bad_options(words: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        CliRunner().invoke(app, ["fit", "mlp", *words], catch_exceptions=False)


def test_the_users_own_dtype_stays_unless_another_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "import torch\nfrom torch import nn\n"
        "def make(n):\n"
        "    return nn.Linear(3, 1).bfloat16(), torch.ones(n, 3).bfloat16(), lambda m, b: m(b).mean()\n"
    )
    for words, said in (([], "bfloat16[1, 3]"), (["--dtype", "fp32"], "float32[1, 3]")):
        ran = CliRunner().invoke(app, ["fit", f"{file}:make", "--device", "l4", "--timings", *words])
        assert f"4 parameters, batch: {said}" in " ".join(ran.output.split())
        assert "NVIDIA L4: capture" in ran.output
    with pytest.raises(InputError, match="--largest length does not apply"):
        CliRunner().invoke(
            app, ["fit", f"{file}:make", "--device", "l4", "--largest", "length"], catch_exceptions=False
        )


def test_no_place_to_blame_is_not_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("lowtide.cli.app", Mock(side_effect=InputError(": the loss has shape [1, 64]")))
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == "lowtide: the loss has shape [1, 64]\n"
