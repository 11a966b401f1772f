"""What is missing or makes no sense is said in one sentence, before anything changes."""

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import lowtide

CASES = [
    ("lowtide.integrations.accelerate", "LowtidePlugin", "accelerate"),
    ("lowtide.integrations.lightning", "LowtideCallback", "lightning"),
    ("lowtide.integrations.trainer", "LowtideCallback", "trainer"),
]


@pytest.mark.parametrize(("module", "name", "extra"), CASES)
def test_a_missing_framework_is_named(monkeypatch: pytest.MonkeyPatch, module: str, name: str, extra: str) -> None:
    monkeypatch.setattr("lowtide.extras._installed", lambda package: False)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(lowtide.MissingExtra, match=rf"^{name}.* needs .*pip install 'lowtide\[{extra}\]'$"):
        importlib.import_module(module)


@pytest.mark.parametrize(("module", "name", "extra"), CASES)
@pytest.mark.parametrize(
    ("options", "says"),
    [({"budget": "60%"}, "only bytes make sense"), ({"budget": 1, "speed": 2}, "no option 'speed'")],
)
def test_options_are_refused_at_once(module: str, name: str, extra: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(lowtide.InputError, match=says):
        getattr(importlib.import_module(module), name)(**options)


def test_accelerate_compiles_with_lowtide() -> None:
    plugin = lowtide.LowtidePlugin(budget="1GiB", time_limit=3.0)
    arguments = plugin.to_kwargs()
    assert arguments["options"] == {"budget": "1GiB", "time_limit": 3.0}
    torch.compile(nn.Linear(2, 2), **arguments)


def test_a_module_that_is_compiled_already_is_refused() -> None:
    callback = importlib.import_module("lowtide.integrations.lightning").LowtideCallback(budget="1GiB")
    module: Any = SimpleNamespace(_compiler_ctx={"compiler": "dynamo"})
    with pytest.raises(lowtide.InputError, match="compiled or replaced already"):
        callback.on_fit_start(None, module)
    callback.on_exception(None, module, ValueError())
    assert vars(module) == {"_compiler_ctx": {"compiler": "dynamo"}}
