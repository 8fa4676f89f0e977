"""A real `marey demo` and a real Chromium; each journey gets a fresh page."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marey.app.access.owner_key import find_owner_key
from tests.waiting import PATIENCE_S, until

# `make test-journeys` walks every journey at the size in which people meet the demo.
GPUS = int(os.environ.get("MAREY_JOURNEY_GPUS", "256"))
# Arrivals follow the hour and the day of the week: a busy Wednesday, whenever the tests run.
MOMENT = "2026-11-11T14:00Z"


@dataclass
class Demo:
    """A running demo server."""

    url: str
    process: subprocess.Popen[str]
    store: Path

    @property
    def link(self) -> str:
        """What `marey demo` prints in a terminal: whoever opens it is the owner."""
        return f"{self.url}/#key={find_owner_key(self.store)}"

    @property
    def owner_headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {find_owner_key(self.store)}"}

    def send(self, method: str, path: str, body: object = None) -> Any:
        """Change something as the owner."""
        headers = self.owner_headers
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(
            self.url + "/api/v1" + path, content, headers, method=method
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + "/api/v1" + path, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def put(self, path: str, body: object) -> Any:
        return self.send("PUT", path, body)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_demo(*arguments: str, folder: Path) -> Demo:
    """Start a demo on a free port, and wait for its first line: the URL."""
    marey = str(Path(sys.executable).with_name("marey"))
    store = folder / "demo.duckdb"
    if "--store" in arguments:
        store = folder / arguments[arguments.index("--store") + 1]
    else:
        arguments = (*arguments, "--store", str(store))
    command = [marey, "demo", "--until", MOMENT, *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    if not url.startswith("http"):
        process.kill()
        pytest.fail(f"marey demo printed {url!r} instead of its URL")
    return Demo(url, process, store)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """The demo that most journeys share."""
    folder = tmp_path_factory.mktemp("demo")
    arguments = ("--gpus", str(GPUS), "--hours", "6", "--speed", "20", "--port", "0")
    running = start_demo(*arguments, folder=folder)
    wait_for_values(running)
    yield running
    running.stop()


def wait_for_values(demo: Demo) -> None:
    """The first live values come with the first tick after the start."""
    until(
        lambda: any(unit["util"] for unit in demo.get("/cluster?metrics=util")["units"]),
        "live values",
        pause_s=0.2,
    )


class Complaints(list[str]):
    """What a page's scripts and its console complained about, but for what a journey provokes."""

    def __init__(self, page: Any) -> None:
        super().__init__()
        self._provoked: list[re.Pattern[str]] = [re.compile("GL Driver Message")]
        page.on("pageerror", lambda error: self.append(str(error)))
        page.on("console", self._note)

    def permit(self, *patterns: str) -> None:
        """Declare what the journey provokes on purpose: the refusal's words, a space, its address.

        Chromium's console says of a request that failed, "… responded with a status of 422 (…)".
        """
        self._provoked += [re.compile(pattern) for pattern in patterns]
        self[:] = [said for said in self if not self._is_provoked(said)]

    def _note(self, message: Any) -> None:
        if message.type != "error":
            return
        said = f"{message.text} {message.location.get('url', '')}"
        if not self._is_provoked(said):
            self.append(said)

    def _is_provoked(self, said: str) -> bool:
        return any(pattern.search(said) for pattern in self._provoked)


class Overview:
    """What a person does and sees on the overview, in words."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.errors = Complaints(page)

    def open(self, query: str = "") -> Overview:
        self.page.goto(f"{self.url}/{query}")
        self.wait_drawn()
        return self

    def follow(self, name: str) -> None:
        """Go to another page by its name; what has no room in the navigation is in its menu."""
        bar = self.page.get_by_role("navigation", name="Pages")
        link = bar.get_by_role("link", name=name, exact=True)
        if not link.count():
            bar.get_by_role("button", name="More").click()
            link = self.page.get_by_role("dialog", name="More pages").get_by_role(
                "link", name=name, exact=True
            )
        link.click()

    def wait_drawn(self) -> None:
        self.page.wait_for_selector("[data-testid=canvas][data-layout-ms]")

    def wait_until(
        self, question: Callable[[], Any], what: str, seconds: float = PATIENCE_S
    ) -> Any:
        """Ask again and again until the answer is yes."""
        end = time.monotonic() + seconds
        while not (answer := question()):
            assert time.monotonic() < end, f"waited {seconds} s in vain: {what}"
            self.page.wait_for_timeout(100)
        return answer

    def still(self) -> None:
        """Wait until nothing moves; the picture must be held or the view calm."""
        self.wait_until(
            lambda: self.page.evaluate("window.marey && window.marey.progress() >= 1"), "stillness"
        )
        self.page.wait_for_timeout(120)

    def units(self) -> int:
        return int(self.page.get_attribute("[data-testid=canvas]", "data-units") or 0)

    def number(self, name: str) -> float:
        return float(self.page.get_attribute(f"[data-testid=number-{name}]", "data-value") or "nan")

    def view(self) -> dict[str, Any]:
        return self.page.evaluate("window.marey.view()")

    def layers(self) -> list[str]:
        return [layer["by"] for layer in self.view()["layers"]]

    def groups(self, layer: int) -> list[dict[str, Any]]:
        return self.page.evaluate(f"window.marey.groups({layer})")

    def where(self, field: str, value: str) -> dict[str, float]:
        predicate = {"field": field, "op": "eq", "value": value}
        return self.page.evaluate("p => window.marey.where(p)", predicate)

    def hold(self) -> None:
        self.page.get_by_role("button", name="Pause", exact=True).click()
        self.page.wait_for_selector("[data-testid=held]")
        # What changed just before is arranged a moment later.
        self.wait_until(lambda: self.page.evaluate("window.marey.arranged()"), "the arrangement")
        self.still()

    def preset(self, name: str) -> None:
        self.page.click("[data-testid=view-button]")
        self.page.click(f"[data-testid=preset-{name}]")
        self.page.wait_for_timeout(300)
        self.still()

    def card(self) -> str:
        return self.page.inner_text("[data-testid=card]")

    def click_unit(self, gpu: str, modifier: str | None = None) -> None:
        place = self.where("gpu", gpu)
        at = (place["x"] + place["width"] * 0.4, place["y"] + place["height"] * 0.4)
        if modifier:
            self.page.keyboard.down(modifier)
        self.page.mouse.click(*at)
        if modifier:
            self.page.keyboard.up(modifier)

    def screenshot(self, folder: Path, name: str) -> Path:
        path = folder / f"{name}.png"
        self.page.screenshot(path=path)
        return path


@pytest.fixture
def overview(browser: Any, demo: Demo) -> Iterator[Overview]:
    """The overview in a fresh window."""
    yield from open_window(browser, demo, reduced_motion="reduce")


@pytest.fixture
def moving_overview(browser: Any, demo: Demo) -> Iterator[Overview]:
    """The same with motion; drawing it in software costs more, so only journeys about motion do."""
    yield from open_window(browser, demo, reduced_motion="no-preference")


def open_window(
    browser: Any, demo: Demo, *, as_owner: bool = True, **context_options: Any
) -> Iterator[Overview]:
    """A fresh window; an error of a script or in the console fails the journey."""
    options = {"viewport": {"width": 1200, "height": 720}, "color_scheme": "dark"}
    context = browser.new_context(**{**options, **context_options})
    context.set_default_timeout(PATIENCE_S * 1000)
    # Journeys are the owner's; how one signs in is a journey of its own.
    if as_owner:
        context.set_extra_http_headers(demo.owner_headers)
    seen = Overview(context.new_page(), demo.url)
    yield seen
    context.close()
    assert seen.errors == []
