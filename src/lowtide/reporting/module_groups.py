"""Modules gathered into a readable number of groups: by where they are, or by what they are."""

from collections.abc import Iterable, Sequence

OUTSIDE = "outside of any module"
REST = "all other modules"


def module_groups(modules: Sequence[str], most: int) -> list[str]:
    """For each module path the group that stands for it: an ancestor or itself, at most `most` groups in all.

    The group with most members opens first, together with its siblings of like size, so that equal layers are shown
    alike; where one has too many children to stay readable, nothing below its level opens.
    """
    parts = [tuple(path.split(".")) if path else () for path in modules]
    group: list[tuple[str, ...]] = [()] * len(parts)
    closed: set[tuple[str, ...]] = set()
    deepest = max(map(len, parts), default=0)
    while True:
        sizes: dict[tuple[str, ...], int] = {}
        for key in group:
            sizes[key] = sizes.get(key, 0) + 1
        candidates = [key for key in sizes if key not in closed and len(key) <= deepest]
        if not candidates:
            return [".".join(key) for key in group]
        first = max(candidates, key=lambda key: sizes[key])
        siblings = {key for key in candidates if key[:-1] == first[:-1] and len(key) == len(first)}
        alike = {key for key in siblings if sizes[key] * 2 >= sizes[first]}
        finer = {i: parts[i][: len(key) + 1] for i, key in enumerate(group) if key in alike}
        children = set(finer.values())
        if len(sizes) - len(alike) + len(children) > most:
            closed |= alike
            deepest = min(deepest, len(first))
            continue
        for i, key in finer.items():
            group[i] = key
        closed |= alike & children


def module_kind(path: str) -> str:
    """The path without its numbers, `encoder.layer.*.output`: what all layers alike have in common."""
    return ".".join("*" if part.isdigit() else part for part in path.split(".")) if path else OUTSIDE


def largest_kinds(sized: Iterable[tuple[str, float]], most: int) -> list[str]:
    """Of paths with sizes, the kinds that have most in all, largest first; `REST` at the end where some are left."""
    sizes: dict[str, float] = {}
    for path, size in sized:
        kind = module_kind(path)
        sizes[kind] = sizes.get(kind, 0) + size
    ranked = sorted(sizes, key=lambda kind: -sizes[kind])
    return ranked if len(ranked) <= most else [*ranked[: most - 1], REST]
