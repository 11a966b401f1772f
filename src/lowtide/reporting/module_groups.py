"""Modules gathered into a readable number of groups."""

from collections.abc import Sequence


def module_groups(modules: Sequence[str], most: int) -> list[str]:
    """For each module path the group that stands for it: an ancestor or itself, at most `most` groups in all.

    Groups open from the top, the one with most members first, as long as they stay readable.
    """
    parts = [tuple(path.split(".")) if path else () for path in modules]
    group: list[tuple[str, ...]] = [()] * len(parts)
    closed: set[tuple[str, ...]] = set()
    while True:
        sizes: dict[tuple[str, ...], int] = {}
        for key in group:
            sizes[key] = sizes.get(key, 0) + 1
        open_groups = [key for key in sizes if key not in closed]
        if not open_groups:
            return [".".join(key) for key in group]
        largest = max(open_groups, key=lambda key: sizes[key])
        members = [i for i, key in enumerate(group) if key == largest]
        finer = {i: parts[i][: len(largest) + 1] for i in members}
        new = set(finer.values())
        if new == {largest} or len(sizes) - 1 + len(new) > most:
            closed.add(largest)
            continue
        for i, key in finer.items():
            group[i] = key
        if largest in new:
            closed.add(largest)
