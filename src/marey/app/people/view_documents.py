"""What a saved view holds: the overview's grammar, or the address of a table of jobs.

The web app checks a view in full against ``web/src/charts/units/view.schema.json``, of which these
types are the names, kinds and words (held by a test). A key that is not in them is kept as it is:
scripts may save what they like beside it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict, TypeGuard, cast

import msgspec
from msgspec import Meta

from marey.model.errors import InvalidInput

Layout = Literal["pack", "fill_x", "fill_y", "list_x", "list_y"]
Scheme = Literal[
    "viridis", "cividis", "magma", "blues", "teal", "blue_orange",
    "marey", "okabe_ito", "bright", "muted",
]  # fmt: skip
# A predicate, in the form that every filter of the API has.
ViewFilter = dict[str, Any]


class ViewSort(TypedDict, total=False):
    """In which order siblings stand."""

    by: Annotated[str, Meta(description="'name', 'count', or an attribute.")]
    aggregate: Literal["mean", "sum", "min", "max"]
    order: Literal["ascending", "descending"]


class ViewLayer(TypedDict, total=False):
    """One level of groups."""

    by: Annotated[str, Meta(description="The attribute whose values make the groups.")]
    bins: int
    layout: Layout
    size: Literal["uniform", "count"]
    sort: ViewSort
    margin: float
    padding: float
    label: float
    aspect: float
    across: int


class ViewUnits(TypedDict, total=False):
    """How the units stand in the innermost group."""

    layout: Layout
    sort: ViewSort
    gap: float
    aspect: float
    across: int
    align: Literal["start", "end"]


class ViewColour(TypedDict, total=False):
    """What the colour of a unit says."""

    by: str
    scheme: Scheme
    scale: Literal["linear", "log", "quantile", "quantize"]
    min: float | None
    max: float | None
    bins: int
    remap: bool
    reverse: bool


class ViewLens(TypedDict, total=False):
    """A personal rule that highlights units in a view."""

    name: str
    when: Annotated[str, Meta(description="The rule's text.")]


class SavedView(TypedDict, total=False):
    """A saved view; every key may be missing, and keys of one's own are kept."""

    version: Literal[1]
    title: str
    units: Literal["gpus", "waiting", "both"]
    waiting_unit: Literal["gpu", "workload"]
    layers: Annotated[list[ViewLayer], Meta(description="Groups, the outermost first.")]
    unit: ViewUnits
    colour: ViewColour
    filter: Annotated[
        list[ViewFilter] | ViewFilter,
        Meta(description="A condition, or conditions that must all hold."),
    ]
    others: Literal["hide", "fade"]
    lenses: list[ViewLens]
    jobs: Annotated[str, Meta(description="Address of a saved table of jobs.")]


def check_view(document: object) -> SavedView:
    """Return a document as the view it is, with every key it has; refuse one that is none."""
    try:
        msgspec.convert(document, SavedView)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"This is no saved view. {error}. Keys and allowed words: docs/view-grammar.md."
        ) from None
    return cast(SavedView, document)


def is_view(document: object) -> TypeGuard[SavedView]:
    """Say whether a stored document is a view; earlier versions took any JSON object."""
    try:
        check_view(document)
    except InvalidInput:
        return False
    return True
