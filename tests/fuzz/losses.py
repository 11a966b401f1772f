"""The losses of random programs: targets of n samples, what compares (N, CLASSES) with them, and a head."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from tests.fuzz.kinds import Adapt, Pick, Shape

CLASSES = 5
Target = Callable[[Generator, int], Tensor]
Compare = Callable[[Tensor, Tensor], Tensor]


def _labels(generator: Generator, n: int) -> Tensor:
    return torch.randint(0, CLASSES, (n,), generator=generator)


def _values(generator: Generator, n: int) -> Tensor:
    return torch.randn(n, CLASSES, generator=generator)


def _shares(generator: Generator, n: int) -> Tensor:
    return torch.randn(n, CLASSES, generator=generator).softmax(-1)


def _bits(generator: Generator, n: int) -> Tensor:
    return torch.randint(0, 2, (n, CLASSES), generator=generator).float()


def _signs(generator: Generator, n: int) -> Tensor:
    return torch.randint(0, 2, (n, CLASSES), generator=generator).float() * 2 - 1


def _multilabel(generator: Generator, n: int) -> Tensor:
    chosen = torch.stack([torch.randperm(CLASSES, generator=generator) for _ in range(n)])
    return torch.cat([chosen[:, :2], torch.full((n, CLASSES - 2), -1)], 1)


def _weights(pick: Pick) -> Tensor | None:
    return torch.linspace(0.5, 1.5, CLASSES) if pick("weight", False, False, True) else None


def _reduction(pick: Pick) -> str:
    return pick("reduction", "mean", "mean", "sum")


def _cross_entropy(pick: Pick) -> tuple[Target, Compare]:
    criterion = nn.CrossEntropyLoss(
        weight=_weights(pick),
        label_smoothing=pick("smoothing", 0.0, 0.1),
        ignore_index=pick("ignore", -100, 0),
        reduction=_reduction(pick),
    )
    return _labels, lambda out, target: criterion(out.float(), target)


def _soft_cross_entropy(pick: Pick) -> tuple[Target, Compare]:
    return _shares, lambda out, target: F.cross_entropy(out, target.to(out.dtype))


def _spatial_cross_entropy(pick: Pick) -> tuple[Target, Compare]:
    def target(generator: Generator, n: int) -> Tensor:
        return torch.randint(0, CLASSES, (n, 3), generator=generator)

    return target, lambda out, target: F.cross_entropy(out.unsqueeze(-1) * torch.arange(1, 4).to(out.dtype), target)


def _nll(pick: Pick) -> tuple[Target, Compare]:
    weight, ignore, reduction = _weights(pick), pick("ignore", -100, 1), _reduction(pick)

    def compare(out: Tensor, target: Tensor) -> Tensor:
        given = None if weight is None else weight.to(out.dtype)
        return F.nll_loss(out.log_softmax(-1), target, given, ignore_index=ignore, reduction=reduction)

    return _labels, compare


def _bce_with_logits(pick: Pick) -> tuple[Target, Compare]:
    weight, reduction, positive = _weights(pick), _reduction(pick), pick("pos_weight", False, True)

    def compare(out: Tensor, target: Tensor) -> Tensor:
        scale = torch.full((CLASSES,), 1.5, dtype=out.dtype) if positive else None
        given = None if weight is None else weight.to(out.dtype)
        return F.binary_cross_entropy_with_logits(
            out, target.to(out.dtype), given, pos_weight=scale, reduction=reduction
        )

    return _bits, compare


def _bce(pick: Pick) -> tuple[Target, Compare]:
    reduction = _reduction(pick)
    return _bits, lambda out, target: F.binary_cross_entropy(out.float().sigmoid(), target.float(), reduction=reduction)


def _regression(pick: Pick) -> tuple[Target, Compare]:
    reduction = _reduction(pick)
    which = pick("which", "mse", "l1", "smooth_l1", "huber", "smooth_l1_sharp")

    def compare(out: Tensor, target: Tensor) -> Tensor:
        wanted = target.to(out.dtype)
        if which == "smooth_l1_sharp":
            return F.smooth_l1_loss(out, wanted, beta=0.1, reduction=reduction)
        if which == "huber":
            return F.huber_loss(out, wanted, delta=0.7, reduction=reduction)
        return {"mse": F.mse_loss, "l1": F.l1_loss, "smooth_l1": F.smooth_l1_loss}[which](
            out, wanted, reduction=reduction
        )

    return _values, compare


def _kl_div(pick: Pick) -> tuple[Target, Compare]:
    log, reduction = pick("log_target", False, True), pick("reduction", "batchmean", "sum")

    def compare(out: Tensor, target: Tensor) -> Tensor:
        wanted = target.to(out.dtype)
        return F.kl_div(out.log_softmax(-1), wanted.log() if log else wanted, reduction=reduction, log_target=log)

    return _shares, compare


def _margins(pick: Pick) -> tuple[Target, Compare]:
    which = pick("which", "hinge", "ranking", "soft", "cosine", "triplet", "triplet_distance")

    def compare(out: Tensor, target: Tensor) -> Tensor:
        sign = target.to(out.dtype)
        if which == "hinge":
            return F.hinge_embedding_loss(out, sign)
        if which == "ranking":
            return F.margin_ranking_loss(out, out.flip(-1), sign, margin=0.2)
        if which == "soft":
            return F.soft_margin_loss(out, sign)
        if which == "cosine":
            return F.cosine_embedding_loss(out, out.flip(0) + 0.1, sign[:, 0], margin=0.1)
        if which == "triplet":
            return F.triplet_margin_loss(out, out.flip(0) + 0.1, sign, swap=True)
        return F.triplet_margin_with_distance_loss(
            out, out.flip(0) + 0.1, sign, distance_function=lambda a, b: 1 - F.cosine_similarity(a, b)
        )

    return _signs, compare


def _multi_margin(pick: Pick) -> tuple[Target, Compare]:
    p = pick("p", 1, 2)
    return _labels, lambda out, target: F.multi_margin_loss(out.float(), target, p=p)


def _multilabel_margin(pick: Pick) -> tuple[Target, Compare]:
    return _multilabel, lambda out, target: F.multilabel_margin_loss(out.float(), target)


def _multilabel_soft_margin(pick: Pick) -> tuple[Target, Compare]:
    return _bits, lambda out, target: F.multilabel_soft_margin_loss(out, target.to(out.dtype))


def _likelihoods(pick: Pick) -> tuple[Target, Compare]:
    which = pick("which", "poisson", "gaussian")

    def compare(out: Tensor, target: Tensor) -> Tensor:
        wanted = target.to(out.dtype)
        if which == "poisson":
            return F.poisson_nll_loss(out.clamp(-3, 3), wanted)
        return F.gaussian_nll_loss(out, wanted, F.softplus(out.flip(-1)) + 0.1)

    return _bits, compare


def _ctc(pick: Pick) -> tuple[Target, Compare]:
    def target(generator: Generator, n: int) -> Tensor:
        return torch.randint(1, CLASSES, (n, 2), generator=generator)

    def compare(out: Tensor, target: Tensor) -> Tensor:
        steps = (out.float().unsqueeze(0) * torch.linspace(0.5, 1.5, 6).view(6, 1, 1)).log_softmax(-1)
        n = out.shape[0]
        return F.ctc_loss(steps, target, torch.full((n,), 6), torch.full((n,), 2))

    return target, compare


def _plain(pick: Pick) -> tuple[Target, Compare]:
    which = pick("which", "square", "logsumexp", "product", "norm", "mean")

    def compare(out: Tensor, target: Tensor) -> Tensor:
        if which == "logsumexp":
            return out.logsumexp(-1).mean()
        if which == "product":
            return (out * target.to(out.dtype)).sum()
        if which == "norm":
            return (out + 0.1).norm()  # type: ignore[no-any-return]
        return out.pow(2).mean() if which == "square" else out.mean()

    return _values, compare


LOSSES: dict[str, Callable[[Pick], tuple[Target, Compare]]] = {
    "cross_entropy": _cross_entropy,
    "soft_cross_entropy": _soft_cross_entropy,
    "spatial_cross_entropy": _spatial_cross_entropy,
    "nll": _nll,
    "bce_with_logits": _bce_with_logits,
    "bce": _bce,
    "regression": _regression,
    "kl_div": _kl_div,
    "margins": _margins,
    "multi_margin": _multi_margin,
    "multilabel_margin": _multilabel_margin,
    "multilabel_soft_margin": _multilabel_soft_margin,
    "likelihoods": _likelihoods,
    "ctc": _ctc,
    "plain": _plain,
}


def make_head(shape: Shape, pick: Pick) -> nn.Module:
    """From the model's output to (N, CLASSES)."""
    features = 1
    for size in shape[1:]:
        features *= size
    if features <= 256 and pick("head", "linear", "linear", "none") == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(features, CLASSES))
    return Adapt((CLASSES,))
