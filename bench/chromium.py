"""How Chromium is started wherever a page is measured or tested."""

from __future__ import annotations

# WebGL2 in software, quick only with --disable-gpu; and nothing is fetched behind the page's back.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
