"""The data file, the user's own device, and bad ones."""

import json
from pathlib import Path

import pytest

from lowtide.errors import InputError
from lowtide.fitting.devices import HERE, find_device, known_devices

OWN = {
    "name": "mine",
    "memory_MiB": 8192,
    "bandwidth_GB_s": 100,
    "tflops": {"float32": 1},
    "peer_GB_s": 8,
    "source": "me",
}


@pytest.mark.parametrize("name", known_devices())
def test_every_device_has_bytes_rates_and_a_source(name: str) -> None:
    device = find_device(name)
    assert 13 << 30 < device.usable_B < device.memory_B < 300 << 30
    assert device.rates.ms(10**9, 0.0, "float32") > 0
    assert device.rates.ms(0, 1e12, "float16") < device.rates.ms(0, 1e12, "float32")
    assert device.source


def test_this_machine_is_measured() -> None:
    device = find_device(HERE)
    assert device.memory_B > 1 << 28
    assert device.rates.flops_per_ms["float32"] > 1e5


def test_a_device_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(OWN))
    assert find_device(str(path)).memory_B == 8192 << 20


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h1000", "unknown device 'h1000': write one of a100-40"),
        ("nowhere.json", "cannot read the device"),
        ("broken.json", "cannot read the device"),
        ("list.json", "must have the fields"),
        ("little.json", "must have the fields"),
        ("zero.json", "numbers above zero"),
        ("words.json", "numbers above zero"),
    ],
)
def test_bad_devices_get_one_sentence(name: str, words: str, tmp_path: Path) -> None:
    files = {
        "broken.json": "{",
        "list.json": "[]",
        "little.json": json.dumps({"name": "x"}),
        "zero.json": json.dumps(OWN | {"memory_MiB": 0}),
        "words.json": json.dumps(OWN | {"tflops": "many"}),
    }
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=words) as raised:
        find_device(str(tmp_path / name) if name.endswith(".json") else name)
    assert "\n" not in str(raised.value)
