"""What every view in a notebook has: the bundle, a lock, and a picture where no script runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import traitlets

from marey.model.errors import Unavailable
from marey.model.predicates import parse_predicate

try:
    import anywidget
except ImportError as error:  # pragma: no cover
    raise Unavailable("Views in notebooks need more packages: pip install marey[notebook].") from (
        error
    )

STATIC = Path(__file__).parent / "static"
BUNDLE = STATIC / "widget.js"


class NotebookView(anywidget.AnyWidget):
    """A view whose state goes both ways.

    Messages from the page are handled in another thread, also while a cell runs: what is read or
    changed together is under ``lock``.
    """

    # The script that draws it; runs and clusters have their own, so that trees stay small.
    bundle = BUNDLE

    def __init__(self, **traits: Any) -> None:
        if not self.bundle.is_file():
            raise Unavailable(
                f"The widget's script is not built: {self.bundle} (run `make setup`)."
            )
        self.lock = threading.RLock()
        super().__init__(_esm=self.bundle.read_text("utf-8"), **traits)

    def open(self) -> None:
        """Open the channel to the page; its messages are handled while a cell runs.

        ipykernel 7.4 hands them to the thread that wrote to the view last, which mostly is the one
        that runs cells: a selection would wait for the cell's end. The page names the right thread.
        """
        super().open()
        if self.comm is not None:
            self.comm._reply_subshell_for = _keep_thread

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the page changed, whole."""
        with self.lock:
            super().set_state(sync_data)

    def picture(self) -> str:
        """Return the view as it is now as HTML without scripts."""
        raise NotImplementedError

    def save_html(self, path: str | Path) -> None:
        """Write the picture to a file that any browser shows."""
        head = '<!doctype html><meta charset="utf-8"><title>Marey</title>'
        Path(path).write_text(head + self.picture(), "utf-8")

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Offer the widget, and the picture for where widgets are not shown."""
        found = super()._repr_mimebundle_(**kwargs)
        if found is None:
            return None
        data, metadata = found if isinstance(found, tuple) else (found, {})
        return {**data, "text/html": self.picture()}, metadata


def _keep_thread(_data: object, named: str | None) -> str | None:
    return named


class GpuSelectionView(NotebookView):
    """A view in which GPUs are selected, by a predicate that is also the selection's state."""

    _query: Any = traitlets.Dict(default_value=None, allow_none=True).tag(sync=True)

    @property
    def selection(self) -> dict[str, Any] | None:
        """The predicate of the selected GPUs, or None."""
        with self.lock:
            return None if self._query is None else dict(self._query)

    @selection.setter
    def selection(self, query: dict[str, Any] | None) -> None:
        if query is not None:
            parse_predicate(query)
        with self.lock:
            self._query = query
