"""Take a picture of every page in both themes: ``page_pictures.py FOLDER [URL]``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

FLAGS = ["--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--no-first-run"]
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SIZES = {"wide": (1440, 900), "large": (1920, 1080), "narrow": (420, 820)}


def main(argv: list[str]) -> int:
    """Start a demo unless a server is named, and write the pictures."""
    if argv and argv[0].startswith("-"):
        print(__doc__)
        return 0
    folder = Path(argv[0] if argv else "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    with find_server(argv[1] if len(argv) > 1 else "") as url:
        take_pictures(url, folder)
    return 0


@contextmanager
def find_server(url: str) -> Iterator[str]:
    """Yield the address of a server, a demo's where none was named."""
    if url:
        yield url.rstrip("/")
        return
    marey = str(Path(sys.executable).with_name("marey"))
    command = [marey, "demo", "--gpus", "512", "--hours", "6", "--port", "0"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert demo.stdout is not None
    try:
        yield demo.stdout.readline().strip()
    finally:
        demo.terminate()
        demo.wait(60)


def list_pages(url: str) -> dict[str, str]:
    """Return every page by name; those of a job, a person or a run by one that is there."""
    job = ask(url, "jobs?state=running&sort=gpus&limit=1")["rows"][0]
    gpu = ask(url, f"workloads/{job['workload']}")["allocations"][0]["gpu"]
    pages = {
        "overview": "/",
        "overview-projects": "/?view=projects",
        "overview-waiting": "/?view=waiting",
        "overview-selected": f"/?view=workloads&sel={select('workload', job['workload'])}",
        "jobs": "/jobs",
        "jobs-failed": "/jobs?state=failed",
        "queue": "/queue",
        "capacity": "/capacity",
        "findings": "/findings?group=workload",
        "waste": "/waste?since=24h",
        "sources": "/sources",
        "traces": "/traces",
        "callgraphs": "/callgraphs",
        "compare": "/compare",
        "user": f"/about?user={job['user']}",
        "project": f"/about?project={job['project']}",
        "partition": f"/about?partition={job['partition']}",
        "host": f"/about?host={gpu.split(':')[0]}",
        "gpu": f"/about?gpu={gpu}",
        "workload": f"/workload?id={job['workload']}",
        "nothing": "/no-such-page",
    }
    for state in ("pending", "failed"):
        rows = ask(url, f"jobs?state={state}&limit=1")["rows"]
        if rows:
            pages[f"workload-{state}"] = f"/workload?id={rows[0]['workload']}"
    runs = [run for run in ask(url, "traces")["runs"] if run["state"] == "ready"]
    for view in ("run", "marey", "flow"):
        if runs:
            pages[f"trace-{view}"] = f"/traces/{view}?id={runs[0]['id']}"
    return pages


def ask(url: str, path: str) -> Any:
    """Return the answer to a question to the API."""
    with urllib.request.urlopen(f"{url}/api/v1/{path}") as answer:
        return json.load(answer)


def select(field: str, value: str) -> str:
    """Write a selection of the overview as its address does."""
    return urllib.parse.quote(json.dumps([{"field": field, "op": "eq", "value": value}]))


def take_pictures(url: str, folder: Path) -> None:
    """Write one picture per page, theme and size."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        for size, (width, height) in SIZES.items():
            for theme in THEMES:
                page = browser.new_page(
                    viewport={"width": width, "height": height},
                    color_scheme=theme,
                    reduced_motion="reduce",
                )
                page.set_default_timeout(180_000)
                for name, place in list_pages(url).items():
                    page.goto(url + place)
                    page.wait_for_selector("h1", state="attached")
                    page.wait_for_load_state("networkidle")
                    # Charts and the canvas are drawn after their data has come.
                    page.wait_for_timeout(1_500)
                    page.screenshot(path=folder / f"{name}-{size}-{theme}.png")
                page.close()
        browser.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
