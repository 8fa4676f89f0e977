"""Pages are made by templates that escape every value they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template

Filters = Mapping[str, Callable[..., Any]]


@cache
def read_template(package: str, name: str) -> str:
    """Return the source of a template that lies in a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def open_template(package: str, name: str, filters: Filters | None = None) -> Template:
    """Return a template: values are escaped, and a name that it was not given is an error."""
    # Imported here: most commands write no page.
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters.update(filters or {})
    return environment.from_string(read_template(package, name))
