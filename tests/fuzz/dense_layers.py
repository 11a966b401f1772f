"""Linear layers, activations, dropouts and norms."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from tests.fuzz.kinds import ANY, KINDS, Function, Kind, Pick, Shape, function, layer


@layer(weight=30)
def linear(shape: Shape, pick: Pick) -> nn.Module:
    return nn.Linear(shape[-1], pick("out", 4, 6, 8, 12), bias=pick("bias", True, False))


class Bilinear(nn.Module):
    """Both halves of the features, and a weight between them."""

    def __init__(self, half: int, out: int) -> None:
        super().__init__()
        self.size = half
        self.inner = nn.Bilinear(half, half, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The bilinear form of x with itself."""
        return self.inner(x[..., : self.size], x[..., -self.size :])  # type: ignore[no-any-return]


@layer()
def bilinear(shape: Shape, pick: Pick) -> nn.Module:
    return Bilinear(max(1, shape[-1] // 2), pick("out", 3, 6))


_ACTIVATIONS: dict[str, Callable[[bool], nn.Module]] = {
    "relu": lambda inplace: nn.ReLU(inplace),
    "relu6": lambda inplace: nn.ReLU6(inplace),
    "leaky_relu": lambda inplace: nn.LeakyReLU(0.1, inplace),
    "elu": lambda inplace: nn.ELU(inplace=inplace),
    "celu": lambda inplace: nn.CELU(inplace=inplace),
    "selu": lambda inplace: nn.SELU(inplace),
    "silu": lambda inplace: nn.SiLU(inplace),
    "mish": lambda inplace: nn.Mish(inplace),
    "hardswish": lambda inplace: nn.Hardswish(inplace),
    "hardsigmoid": lambda inplace: nn.Hardsigmoid(inplace),
    "hardtanh": lambda inplace: nn.Hardtanh(-0.7, 0.9, inplace),
    "threshold": lambda inplace: nn.Threshold(0.1, -0.2, inplace),
    "rrelu": lambda inplace: nn.RReLU(inplace=inplace),
    "dropout": lambda inplace: nn.Dropout(0.3, inplace),
    "alpha_dropout": lambda inplace: nn.AlphaDropout(0.2, inplace),
    "feature_alpha_dropout": lambda inplace: nn.FeatureAlphaDropout(0.2, inplace),
}
_PLAIN_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "logsigmoid": nn.LogSigmoid,
    "softplus": lambda: nn.Softplus(2.0, 5.0),
    "softsign": nn.Softsign,
    "softshrink": lambda: nn.Softshrink(0.2),
    "hardshrink": lambda: nn.Hardshrink(0.2),
    "tanhshrink": nn.Tanhshrink,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU("tanh"),
    "identity": nn.Identity,
}


def _in_place(make: Callable[[bool], nn.Module]) -> Callable[[Shape, Pick], nn.Module]:
    return lambda shape, pick: make(pick("inplace", False, True))


def _plain(make: Callable[[], nn.Module]) -> Callable[[Shape, Pick], nn.Module]:
    return lambda shape, pick: make()


KINDS.update({name: Kind(name, ANY, _in_place(make)) for name, make in _ACTIVATIONS.items()})
KINDS.update({name: Kind(name, ANY, _plain(make), weight=7) for name, make in _PLAIN_ACTIVATIONS.items()})


@layer()
def softmax(shape: Shape, pick: Pick) -> nn.Module:
    return pick("which", nn.Softmax, nn.LogSoftmax, nn.Softmin)(dim=pick("dim", 1, -1))


@layer()
def prelu(shape: Shape, pick: Pick) -> nn.Module:
    return nn.PReLU(pick("parameters", 1, shape[1]))


@function()
def glu(shape: Shape, pick: Pick) -> Function:
    def call(x: torch.Tensor) -> torch.Tensor:
        return F.glu(x if x.shape[-1] % 2 == 0 else torch.cat([x, x], -1), -1)

    return call


@layer(3)
def dropout1d(shape: Shape, pick: Pick) -> nn.Module:
    return nn.Dropout1d(0.3, inplace=pick("inplace", False, True))


@layer(4)
def dropout2d(shape: Shape, pick: Pick) -> nn.Module:
    return nn.Dropout2d(0.3, inplace=pick("inplace", False, True))


@layer(5)
def dropout3d(shape: Shape, pick: Pick) -> nn.Module:
    return nn.Dropout3d(0.3)


@function()
def functional_dropout(shape: Shape, pick: Pick) -> Function:
    p = pick("p", 0.0, 0.1, 0.5)
    return lambda x: F.dropout(x, p)


@layer(2, 3, weight=20)
def batch_norm1d(shape: Shape, pick: Pick) -> nn.Module:
    return nn.BatchNorm1d(
        shape[1],
        affine=pick("affine", True, False),
        momentum=pick("momentum", 0.1, None),
        track_running_stats=pick("track", True, True, False),
    )


@layer(4, weight=20)
def batch_norm2d(shape: Shape, pick: Pick) -> nn.Module:
    norm = nn.BatchNorm2d(shape[1], affine=pick("affine", True, False), track_running_stats=pick("track", True, False))
    return norm.eval() if pick("frozen", False, False, True) else norm


@layer(5)
def batch_norm3d(shape: Shape, pick: Pick) -> nn.Module:
    return nn.BatchNorm3d(shape[1], affine=pick("affine", True, False))


class Transposed(nn.Module):
    """A module between two transposes."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Swap dimensions 1 and -1, there and back."""
        return self.inner(x.transpose(1, -1)).transpose(1, -1)  # type: ignore[no-any-return]


@layer(3)
def batch_norm_between_transposes(shape: Shape, pick: Pick) -> nn.Module:
    return Transposed(nn.BatchNorm1d(shape[-1]))


@layer(weight=15)
def layer_norm(shape: Shape, pick: Pick) -> nn.Module:
    last = shape[-pick("dims", 1, 1, 2) :] if len(shape) > 2 else shape[-1:]
    return nn.LayerNorm(last, elementwise_affine=pick("affine", True, False))


@layer()
def rms_norm(shape: Shape, pick: Pick) -> nn.Module:
    return nn.RMSNorm(shape[-1], elementwise_affine=pick("affine", True, False))


class Grouped(nn.GroupNorm):
    """Contiguous where no gradient is wanted: torch's backward of channels_last ends the process there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As ever."""
        return super().forward(x if x.requires_grad else x.contiguous())


@layer(3, 4, 5)
def group_norm(shape: Shape, pick: Pick) -> nn.Module:
    return Grouped(pick("groups", 1, 2) if shape[1] % 2 == 0 else 1, shape[1], affine=pick("affine", True, False))


@layer(3, 4, 5)
def instance_norm(shape: Shape, pick: Pick) -> nn.Module:
    which = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}[len(shape)]
    return which(shape[1], affine=pick("affine", True, False), track_running_stats=pick("track", False, True))


@layer(3, 4, 5)
def local_response_norm(shape: Shape, pick: Pick) -> nn.Module:
    return nn.LocalResponseNorm(pick("size", 2, 3))


@function()
def normalize(shape: Shape, pick: Pick) -> Function:
    p, dim = pick("p", 1.0, 2.0, 3.0), pick("dim", 1, -1)
    return lambda x: F.normalize(x, p, dim)


@function()
def functional_linear(shape: Shape, pick: Pick) -> Function:
    weight = torch.randn(pick("out", 4, 6), shape[-1]) / shape[-1]
    return lambda x: F.linear(x, weight.to(x.dtype))
