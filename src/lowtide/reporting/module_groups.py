"""Modules gathered into a readable number of groups."""

from collections.abc import Sequence


def module_groups(modules: Sequence[str], most: int) -> list[str]:
    """For each module path the group that stands for it: an ancestor or itself, at most `most` groups in all.

    The group with most members opens first; where one has too many children to stay readable, its level is the last,
    so that a part is not shown in finer detail than a larger one.
    """
    parts = [tuple(path.split(".")) if path else () for path in modules]
    group: list[tuple[str, ...]] = [()] * len(parts)
    closed: set[tuple[str, ...]] = set()
    deepest = max(map(len, parts), default=0)
    while True:
        sizes: dict[tuple[str, ...], int] = {}
        for key in group:
            sizes[key] = sizes.get(key, 0) + 1
        open_groups = [key for key in sizes if key not in closed and len(key) <= deepest]
        if not open_groups:
            return [".".join(key) for key in group]
        first = max(open_groups, key=lambda key: sizes[key])
        finer = {i: parts[i][: len(first) + 1] for i, key in enumerate(group) if key == first}
        children = set(finer.values())
        if len(sizes) - 1 + len(children) > most:
            closed.add(first)
            deepest = min(deepest, len(first))
            continue
        for i, key in finer.items():
            group[i] = key
        if first in children:
            closed.add(first)
