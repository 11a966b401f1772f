"""The blocks that a model repeats: what people checkpoint one by one, and what `fully_shard` is given one by one."""

from torch import nn

BLOCKS = ("BertLayer", "ResNetBottleNeckLayer", "GPT2Block", "ViTLayer", "UNetBlock")
"""Classes of the reference models."""


def reference_blocks(model: nn.Module) -> list[nn.Module]:
    """Those of a reference model; none of any other."""
    return [module for module in model.modules() if type(module).__name__ in BLOCKS]


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Those of a reference model; of any other the items of its outermost lists and sequences."""
    found = reference_blocks(model)
    return found or _items(model)


def _items(module: nn.Module) -> list[nn.Module]:
    if isinstance(module, nn.Sequential | nn.ModuleList):
        return [item for item in module if any(True for _ in item.parameters())]
    return [item for child in module.children() for item in _items(child)]
