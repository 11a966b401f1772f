"""How far it goes: the largest batch, the longest samples, the fewest devices."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from lowtide.fitting.devices import Device
from lowtide.fitting.fit import Setting, planned
from lowtide.fitting.record import MOST_UNITS, Most
from lowtide.fitting.sharding import MOST_DEVICES, NODE
from lowtide.fitting.sketch import Sizes, Sketch
from lowtide.planning.policies import BudgetInfeasible
from lowtide.planning.simulate import simulate


def largest(make: Callable[[int], Sketch], device: Device, limit: int, setting: Setting, *, time_limit: float) -> Most:
    """The most units, samples or stretches of tokens, that fit as it is, and with a plan, to within a thirty-second.

    `make` captures the step with so many. Three sizes are enough where their ops are the same.
    """
    sizes = Sizes(make)
    plain = _last(lambda units: _fits(sizes.at(units), device, setting, limit), 0)
    return Most(
        plain,
        _last(lambda units: units <= plain or _trains(sizes.at(units), device, setting, limit, time_limit), plain),
    )


def devices_needed(drawn: Sketch, device: Device, limit: int, setting: Setting, *, time_limit: float) -> Most:
    """The fewest devices, a power of two of them, on which it fits as it is, and with a plan."""
    worlds = [1 << k for k in range(MOST_DEVICES.bit_length())]
    if setting.parallel == "hsdp":
        worlds = [world for world in worlds if world > NODE]
    if setting.sharing > 1:
        worlds = [world for world in worlds if world > setting.sharing and world % setting.sharing == 0]
    settings = [replace(setting, world=world) for world in worlds]
    plain = _first(settings, lambda each: _fits(drawn, device, each, limit))
    fewer = settings[: len(settings) if plain is None else worlds.index(plain)]
    found = _first(fewer, lambda each: _trains(drawn, device, each, limit, time_limit))
    return Most(plain, plain if found is None else found)


def _fits(drawn: Sketch, device: Device, setting: Setting, limit: int) -> bool:
    rank, order = setting.of(drawn, device)
    return simulate(rank.problem, order).peak <= limit


def _trains(drawn: Sketch, device: Device, setting: Setting, limit: int, time_limit: float) -> bool:
    rank, order = setting.of(drawn, device)
    try:
        planned(drawn, device, setting, simulate(rank.problem, order), limit, time_limit)
    except BudgetInfeasible:
        return False
    return True


def _last(holds: Callable[[int], bool], known: int) -> int:
    """The largest number for which it holds, nearly; it holds for `known`, and for no more once it fails."""
    step = max(1, known)
    low = known
    while low + step <= MOST_UNITS and holds(low + step):
        low += step
        step *= 2
    if low + step > MOST_UNITS:
        return MOST_UNITS
    high = low + step
    while high - low > max(1, low // 32):
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _first(settings: Sequence[Setting], holds: Callable[[Setting], bool]) -> int | None:
    """The world of the first for which it holds; it holds for all behind that one."""
    low, high = 0, len(settings)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(settings[middle]) else (middle + 1, high)
    return settings[low].world if low < len(settings) else None
