"""The drawing code of reports, which the web app is built with."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from marey.model.system.page_code import Drawing


@cache
def read_drawing_code(name: str) -> Drawing | None:
    """Return the code of one kind of report; none where the web app was not built."""
    folder = files("marey").joinpath("api", "web", "report")
    script, style = folder.joinpath(f"{name}.js"), folder.joinpath(f"{name}.css")
    if not script.is_file():
        return None
    looks = style.read_text(encoding="utf-8") if style.is_file() else ""
    return Drawing(script.read_text(encoding="utf-8"), looks)
