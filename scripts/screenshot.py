"""Take the README's screenshots from a real demo."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--no-first-run"]
Theme = Literal["light", "dark"]
SHOTS: dict[str, tuple[Theme, str]] = {
    "overview-light": ("light", ""),
    "overview-dark": ("dark", "?view=physical"),
}


def main() -> int:
    """Start a demo, look at it, write the pictures."""
    from playwright.sync_api import sync_playwright

    marey = str(Path(sys.executable).with_name("marey"))
    demo = subprocess.Popen(
        [marey, "demo", "--gpus", "2048", "--hours", "2", "--speed", "15", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert demo.stdout is not None
    url = demo.stdout.readline().strip()
    folder = ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with sync_playwright() as playwright:
            path = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
            for name, (theme, query) in SHOTS.items():
                page = browser.new_page(
                    viewport={"width": 1440, "height": 900},
                    color_scheme=theme,
                    reduced_motion="reduce",
                )
                page.set_default_timeout(180_000)
                page.goto(f"{url}/{query}")
                page.wait_for_selector("[data-testid=canvas][data-layout-ms]")
                page.wait_for_selector("[data-testid^=number-] svg path[d^=M]", state="attached")
                # A cluster that was just born has its rules judged over a whole day first.
                page.wait_for_selector("text=Evaluating rules on past data", state="detached")
                page.wait_for_timeout(2500)
                page.screenshot(path=folder / f"{name}.png")
                page.close()
                print(folder / f"{name}.png", file=sys.stderr)
            browser.close()
    finally:
        demo.terminate()
        demo.wait(60)
    return 0


if __name__ == "__main__":
    sys.exit(main())
