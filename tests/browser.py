"""A headless Chromium for tests of the page; tests skip, and say so, where the machine has none."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-default-apps", "--hide-scrollbars"),
)


@contextmanager
def chromium(profile: Path, size: tuple[int, int] = (1280, 900)) -> Iterator[Chrome]:
    """A browser with an empty profile in `profile`, whose console and network requests are written down."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no Chromium with its driver on this machine: install Debian's chromium and chromium-driver")
    options = ChromeOptions()
    options.binary_location = browser
    for flag in (*_FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = Chrome(options=options, service=ChromeService(executable_path=driver))
    try:
        yield chrome
    finally:
        chrome.quit()


def console(chrome: Chrome) -> list[str]:
    """What the page wrote to the console since the last call, errors and violations of its policy included."""
    return [entry["message"] for entry in chrome.get_log("browser")]


def requested(chrome: Chrome, page: str) -> list[str]:
    """Every address that `page` asked for since the last call, its own included; the browser's own pages ask too."""
    events = [json.loads(entry["message"])["message"] for entry in chrome.get_log("performance")]
    asked = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return [each["request"]["url"] for each in asked if each["documentURL"] == page]
