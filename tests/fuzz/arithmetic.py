"""Functions that compute: products, reductions, scans and elementwise ones."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.fuzz.kinds import ANY, KINDS, Call, Function, Kind, Pick, Shape, function


@function()
def einsum(shape: Shape, pick: Pick) -> Function:
    equation = pick("equation", "n...f,m...f->nm", "n...f,n...g->nfg", "n...f,n...f->nf")
    return lambda x: torch.einsum(equation, x.tanh(), x) * 0.3


@function(3, 4)
def matmul(shape: Shape, pick: Pick) -> Function:
    return lambda x: x @ x.transpose(-1, -2) * 0.3


@function(3)
def bmm(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "bmm", "baddbmm", "matmul_vector")

    def call(x: Tensor) -> Tensor:
        product = torch.bmm(x, x.transpose(1, 2))
        if how == "baddbmm":
            return torch.baddbmm(x, product, x, beta=0.5, alpha=0.2)
        return x @ x.mean(1).unsqueeze(-1) if how == "matmul_vector" else product * 0.3

    return call


@function(2)
def addmm(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "addmm", "outer", "kron", "mv")

    def call(x: Tensor) -> Tensor:
        if how == "addmm":
            return torch.addmm(x, x @ x.t(), x, beta=0.5, alpha=0.1)
        if how == "outer":
            return x + torch.outer(x[:, 0], x[0])
        return torch.kron(x, torch.ones(1, 2, dtype=x.dtype)) if how == "kron" else x * (x @ x[0]).unsqueeze(1) * 0.3

    return call


@function(weight=15)
def scan(shape: Shape, pick: Pick) -> Function:
    how, dim = pick("how", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"), pick("dim", 1, -1)

    def call(x: Tensor) -> Tensor:
        if how == "cumprod":
            return x.tanh().cumprod(dim)
        if how == "cummax":
            return x.cummax(dim).values
        if how == "cummin":
            return x.cummin(dim).values
        return x.cumsum(dim) * 0.3 if how == "cumsum" else x.logcumsumexp(dim)

    return call


@function()
def prod(shape: Shape, pick: Pick) -> Function:
    dim = pick("dim", 1, -1)
    return lambda x: x + x.tanh().prod(dim, keepdim=True)


_REDUCTIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "mean": lambda x, dim: x.mean(dim, keepdim=True),
    "sum": lambda x, dim: x.sum(dim, keepdim=True) * 0.1,
    "std": lambda x, dim: (x + torch.arange(x.shape[dim]).view(*([-1] + [1] * (x.dim() - 1 - dim % x.dim())))).std(
        dim, correction=0, keepdim=True
    ),
    "var": lambda x, dim: x.var(dim, correction=0, keepdim=True),
    "norm": lambda x, dim: (x + 0.1).norm(2, dim, keepdim=True),
    "norm1": lambda x, dim: x.norm(1, dim, keepdim=True),
    "vector_norm": lambda x, dim: torch.linalg.vector_norm(x + 0.1, 3, dim, keepdim=True),
    "logsumexp": lambda x, dim: x.logsumexp(dim, keepdim=True),
    "amax": lambda x, dim: x.amax(dim, keepdim=True),
    "amin": lambda x, dim: x.amin(dim, keepdim=True),
    "max": lambda x, dim: x.max(dim, keepdim=True).values,
    "min": lambda x, dim: x.min(dim, keepdim=True).values,
    "var_mean": lambda x, dim: torch.stack(torch.var_mean(x, dim, correction=0, keepdim=True)).sum(0),
    "nansum": lambda x, dim: x.nansum(dim, keepdim=True),
    "argmax": lambda x, dim: x.argmax(dim, keepdim=True).to(x.dtype) + x,
    "softmax": lambda x, dim: x.softmax(dim) * x,
}


def _reduction(reduce: Callable[[Tensor, int], Tensor], keeps: bool) -> Callable[[Shape, Pick], Call]:
    def build(shape: Shape, pick: Pick) -> Call:
        dim = pick("dim", *range(1, len(shape)), -1)
        if keeps:
            return Call(lambda x: x - reduce(x, dim))
        return Call(lambda x: reduce(x, dim))

    return build


for _name, _reduce in _REDUCTIONS.items():
    KINDS[f"less_{_name}"] = Kind(f"less_{_name}", ANY, _reduction(_reduce, True), weight=5)
    KINDS[f"to_{_name}"] = Kind(f"to_{_name}", ANY, _reduction(_reduce, False), weight=1)

_POINTWISE: dict[str, Function] = {
    "exp": lambda x: x.clamp(max=2).exp(),
    "expm1": lambda x: x.clamp(max=1).expm1(),
    "log": lambda x: (x.abs() + 0.5).log(),
    "log1p": lambda x: x.abs().log1p(),
    "sqrt": lambda x: (x.square() + 0.1).sqrt(),
    "rsqrt": lambda x: (x * x + 0.2).rsqrt(),
    "reciprocal": lambda x: (x.abs() + 0.7).reciprocal(),
    "pow": lambda x: (x.abs() + 0.1).pow(1.5),
    "power_of": lambda x: torch.pow(1.5, x.clamp(-3, 3)),
    "sin_cos": lambda x: x.sin() * x.cos(),
    "atan2": lambda x: torch.atan2(x, x.flip(-1).abs() + 1),
    "erf": lambda x: x.erf() + x.sigmoid().logit(1e-3) * 0.1,
    "clamp": lambda x: x.clamp(-0.8, 0.9).sub_(0.1),
    "clamp_tensor": lambda x: torch.clamp(x, x.mean() - 1, x.mean() + 1),
    "minimum": lambda x: torch.minimum(x, x.flip(-1)) + torch.maximum(x, x.roll(1, -1)),
    "lerp": lambda x: torch.lerp(x, x.flip(-1), 0.3),
    "addcmul": lambda x: torch.addcmul(x, x, x.tanh(), value=0.2) + torch.addcdiv(x, x, x.abs() + 1, value=0.1),
    "round": lambda x: x + (x.round() + x.floor() + x.sign()).detach() * 0.1,
    "fmod": lambda x: x.fmod(1.3) + x.remainder(0.7),
    "hypot": lambda x: torch.hypot(x, x + 1) + torch.logaddexp(x, -x),
    "xlogy": lambda x: torch.xlogy(x, x.abs() + 0.3),
    "bfloat16_and_back": lambda x: x.to(torch.bfloat16).to(x.dtype),
    "nan_to_num": lambda x: x.nan_to_num(0.0).sgn() + x,
    "division": lambda x: x / (x.abs().sum(-1, keepdim=True) + 1) + torch.div(x, 3.0),
    "comparison": lambda x: x * (x > 0) + x * x.ge(0.5).to(x.dtype) - (x == 0).to(x.dtype),
    "sinc": lambda x: torch.sinc(x + 0.37) + torch.special.i0(x.clamp(-2, 2)) * 0.1,
    "digamma": lambda x: torch.digamma(x.abs() + 1.5) + torch.lgamma(x.abs() + 1),
}


def _pointwise(call: Function) -> Callable[[Shape, Pick], Call]:
    return lambda shape, pick: Call(call)


KINDS.update({name: Kind(name, ANY, _pointwise(call), weight=4) for name, call in _POINTWISE.items()})


@function(2, 3)
def cdist(shape: Shape, pick: Pick) -> Function:
    p = pick("p", 1.0, 2.0)
    return lambda x: torch.cdist(x, x.detach() + 0.5, p=p) * 0.5


@function()
def cosine_similarity(shape: Shape, pick: Pick) -> Function:
    return lambda x: x + F.cosine_similarity(x, x.flip(0) + 0.1, dim=-1).unsqueeze(-1)


@function()
def pairwise_distance(shape: Shape, pick: Pick) -> Function:
    return lambda x: x * F.pairwise_distance(x, x.flip(0) + 0.3, keepdim=True)


@function(2, 3, 4)
def fft(shape: Shape, pick: Pick) -> Function:
    return lambda x: torch.fft.irfft(torch.fft.rfft(x.float()), n=x.shape[-1]).to(x.dtype).tanh()


@function(2, 3, 4)
def fft_magnitude(shape: Shape, pick: Pick) -> Function:
    return lambda x: (torch.view_as_real(torch.fft.fft(x.float())).square().sum(-1) + 0.1).sqrt().to(x.dtype)


@function(3, 4)
def linear_algebra(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "solve", "cholesky", "det", "inverse")

    def call(x: Tensor) -> Tensor:
        square = x @ x.transpose(-1, -2) * 0.1 + torch.eye(x.shape[-2], dtype=x.dtype)
        if how == "solve":
            return torch.linalg.solve(square, x)  # type: ignore[no-any-return]
        if how == "cholesky":
            return torch.linalg.cholesky(square)  # type: ignore[no-any-return]
        return (  # type: ignore[no-any-return]
            torch.linalg.inv(square) @ x if how == "inverse" else x * torch.linalg.det(square).tanh()[..., None, None]
        )

    return call


@function()
def noise(shape: Shape, pick: Pick) -> Function:
    how = pick("how", "randn_like", "rand", "bernoulli", "normal_", "uniform_", "multinomial", "randperm", "gumbel")

    def call(x: Tensor) -> Tensor:
        if how == "randn_like":
            return x + 0.1 * torch.randn_like(x)
        if how == "rand":
            return x * torch.rand(x.shape, dtype=x.dtype)
        if how == "bernoulli":
            return x * torch.bernoulli(x.detach().sigmoid())
        if how == "normal_":
            return x + torch.empty_like(x).normal_(0, 0.1)
        if how == "uniform_":
            return x + torch.empty_like(x).uniform_(-0.1, 0.1)
        if how == "multinomial":
            chosen = torch.multinomial(x.detach().flatten(1).float().softmax(-1), 1)
            return x + x.flatten(1).gather(1, chosen).view(-1, *[1] * (x.dim() - 1))
        return x[:, torch.randperm(x.shape[1])] if how == "randperm" else F.gumbel_softmax(x, dim=-1)

    return call
