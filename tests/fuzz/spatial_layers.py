"""Convolutions, pools, pads, resampling and shuffles."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.fuzz.kinds import Function, Pick, Shape, function, layer

_CONVOLUTIONS: dict[int, Any] = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}
_TRANSPOSED: dict[int, Any] = {3: nn.ConvTranspose1d, 4: nn.ConvTranspose2d, 5: nn.ConvTranspose3d}


def _convolution(shape: Shape, pick: Pick) -> nn.Module:
    kernel = min(pick("kernel", 1, 2, 3), *shape[2:])
    groups = pick("groups", 1, 1, 2, shape[1])
    groups = groups if shape[1] % groups == 0 else 1
    return _CONVOLUTIONS[len(shape)](  # type: ignore[no-any-return]
        shape[1],
        groups * pick("out", 2, 4),
        kernel,
        stride=pick("stride", 1, 1, 2),
        padding=pick("padding", 0, 1),
        groups=groups,
        bias=pick("bias", True, False),
        padding_mode=pick("mode", "zeros", "zeros", "circular", "replicate"),
    )


layer(3, weight=15, name="conv1d")(_convolution)
layer(4, weight=30, name="conv2d")(_convolution)
layer(5, weight=15, name="conv3d")(_convolution)


@layer(4)
def dilated_conv2d(shape: Shape, pick: Pick) -> nn.Module:
    return nn.Conv2d(shape[1], pick("out", 3, 4), 2, dilation=2, padding="same")


def _transposed_convolution(shape: Shape, pick: Pick) -> nn.Module:
    stride = pick("stride", 1, 2)
    return _TRANSPOSED[len(shape)](  # type: ignore[no-any-return]
        shape[1],
        pick("out", 2, 4),
        pick("kernel", 2, 3),
        stride=stride,
        padding=pick("padding", 0, 1),
        output_padding=stride - 1,
        bias=pick("bias", True, False),
    )


layer(3, name="conv_transpose1d")(_transposed_convolution)
layer(4, name="conv_transpose2d")(_transposed_convolution)
layer(5, name="conv_transpose3d")(_transposed_convolution)


def _window(shape: Shape, pick: Pick) -> tuple[int, int, int]:
    kernel = min(pick("kernel", 2, 3), *shape[2:])
    return kernel, pick("stride", 1, 2), pick("padding", 0, kernel // 2)


@layer(3, 4, 5, weight=20)
def max_pool(shape: Shape, pick: Pick) -> nn.Module:
    which = {3: nn.MaxPool1d, 4: nn.MaxPool2d, 5: nn.MaxPool3d}[len(shape)]
    return which(*_window(shape, pick), ceil_mode=pick("ceil", False, True))


@layer(3, 4, 5)
def avg_pool(shape: Shape, pick: Pick) -> nn.Module:
    which: Any = {3: nn.AvgPool1d, 4: nn.AvgPool2d, 5: nn.AvgPool3d}[len(shape)]
    kernel, stride, padding = _window(shape, pick)
    return which(kernel, stride, padding, count_include_pad=pick("count", True, False))  # type: ignore[no-any-return]


@layer(3, 4)
def lp_pool(shape: Shape, pick: Pick) -> nn.Module:
    which: Any = {3: nn.LPPool1d, 4: nn.LPPool2d}[len(shape)]
    return nn.Sequential(nn.Softplus(), which(pick("norm", 1.0, 2.0), 2 if min(shape[2:]) > 1 else 1))


@layer(3, 4, 5)
def adaptive_pool(shape: Shape, pick: Pick) -> nn.Module:
    dims = len(shape) - 2
    which: Any = getattr(nn, f"Adaptive{pick('of', 'Max', 'Avg')}Pool{dims}d")
    return which(pick("size", 1, 2, 3))  # type: ignore[no-any-return]


@layer(4, 5)
def fractional_max_pool(shape: Shape, pick: Pick) -> nn.Module:
    which: Any = {4: nn.FractionalMaxPool2d, 5: nn.FractionalMaxPool3d}[len(shape)]
    return which(2 if min(shape[2:]) > 2 else 1, output_ratio=0.6)  # type: ignore[no-any-return]


@function(4)
def pool_and_unpool(shape: Shape, pick: Pick) -> Function:
    def call(x: Tensor) -> Tensor:
        pooled, indices = F.max_pool2d(x, 2, ceil_mode=True, return_indices=True)
        return F.max_unpool2d(pooled, indices, [2, 2], output_size=x.shape[2:])

    return call


@function(3, 4)
def max_with_indices(shape: Shape, pick: Pick) -> Function:
    def call(x: Tensor) -> Tensor:
        if x.dim() == 3:
            pooled, indices = F.adaptive_max_pool1d(x, 2, return_indices=True)
        else:
            pooled, indices = F.adaptive_max_pool2d(x, 2, return_indices=True)
        return pooled * (indices % 3).to(x.dtype)

    return call


@function(3, 4, 5)
def pad(shape: Shape, pick: Pick) -> Function:
    mode = pick("mode", "constant", "reflect", "replicate", "circular")
    dims = len(shape) - 2
    return lambda x: F.pad(x, [1, 0] * dims, mode) if min(x.shape[2:]) > 1 else x


@function()
def crop(shape: Shape, pick: Pick) -> Function:
    return lambda x: F.pad(x, (1, -1)) if x.shape[-1] > 1 else x


@layer(4)
def zero_pad(shape: Shape, pick: Pick) -> nn.Module:
    return nn.ZeroPad2d((0, 1, pick("top", 0, 2), 0))


@function(3, 4, 5)
def interpolate(shape: Shape, pick: Pick) -> Function:
    smooth = {3: "linear", 4: "bilinear", 5: "trilinear"}[len(shape)]
    mode = pick("mode", "nearest", "nearest-exact", smooth, "area")
    size = pick("size", 3, 5)
    return lambda x: F.interpolate(x, size, mode=mode)


@function(4)
def upsample_bicubic(shape: Shape, pick: Pick) -> Function:
    align, antialias = pick("align", False, True), pick("antialias", False, True)
    mode = pick("mode", "bicubic", "bilinear")
    return lambda x: F.interpolate(x, scale_factor=1.5, mode=mode, align_corners=align, antialias=antialias)


@layer(4)
def pixel_shuffle(shape: Shape, pick: Pick) -> nn.Module:
    return nn.Sequential(nn.Conv2d(shape[1], 8, 1), nn.PixelShuffle(2))


@function(4)
def pixel_unshuffle(shape: Shape, pick: Pick) -> Function:
    return lambda x: F.pixel_unshuffle(F.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2)), 2)


@layer(3, 4)
def channel_shuffle(shape: Shape, pick: Pick) -> nn.Module:
    return nn.ChannelShuffle(2 if shape[1] % 2 == 0 else 1)


@function(4)
def unfold(shape: Shape, pick: Pick) -> Function:
    return lambda x: F.unfold(x, 2, padding=1, stride=2)


@function(4)
def unfold_and_fold(shape: Shape, pick: Pick) -> Function:
    return lambda x: F.fold(F.unfold(x, 2, padding=1).tanh(), x.shape[2:], 2, padding=1)


class Grid(nn.Module):
    """A picture seen through a learned affine map."""

    def __init__(self, mode: str, padding: str, align: bool) -> None:
        super().__init__()
        self.mode, self.padding, self.align = mode, padding, align
        self.theta = nn.Parameter(torch.tensor([[0.9, 0.1, 0.05], [-0.1, 0.8, 0.02]]))

    def forward(self, x: Tensor) -> Tensor:
        """Sampled where the map says."""
        grid = F.affine_grid(self.theta.expand(x.shape[0], 2, 3), list(x.shape), align_corners=self.align)
        return F.grid_sample(x, grid, mode=self.mode, padding_mode=self.padding, align_corners=self.align)


@layer(4, weight=5)
def grid_sample(shape: Shape, pick: Pick) -> nn.Module:
    mode = pick("mode", "bilinear", "nearest", "bicubic")
    return Grid(mode, pick("padding", "zeros", "border", "reflection"), pick("align", False, True))


@function(4)
def sample_along_given_grid(shape: Shape, pick: Pick) -> Function:
    def call(x: Tensor) -> Tensor:
        grid = torch.linspace(-1, 1, 2 * 9, dtype=x.dtype).view(1, 3, 3, 2).expand(x.shape[0], 3, 3, 2)
        return F.grid_sample(x, grid + 0.1 * x.mean().tanh(), align_corners=False)

    return call


@layer(4)
def separable_convolution(shape: Shape, pick: Pick) -> nn.Module:
    channels = shape[1]
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
        nn.Hardswish(),
        nn.Conv2d(channels, 4, 1),
        nn.BatchNorm2d(4),
    )


@layer(4)
def squeeze_and_excite(shape: Shape, pick: Pick) -> nn.Module:
    gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(shape[1], shape[1], 1), nn.Hardsigmoid())
    return Gated(gate)


class Gated(nn.Module):
    """x times a gate computed from x."""

    def __init__(self, gate: nn.Module) -> None:
        super().__init__()
        self.gate = gate

    def forward(self, x: Tensor) -> Tensor:
        """The gated input."""
        return x * self.gate(x)  # type: ignore[no-any-return]
