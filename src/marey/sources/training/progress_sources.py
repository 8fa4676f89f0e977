"""Progress of live workloads from trackers of experiments: event files in a folder, or MLflow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from marey.model.errors import InvalidInput, MareyError, Unavailable, shown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.observation import Observation
from marey.model.training.run_series import RunSeries
from marey.model.workloads import Progress
from marey.sources.join.joined_sources import JoinedSource
from marey.sources.training.event_files import find_event_folders, read_scalars
from marey.sources.training.mlflow_runs import MlflowServer
from marey.sources.training.scalar_series import make_series

# A run that was never read before may be long: so many of its newest reports are taken.
MOST_REPORTS = 10_000


class Tracker(Protocol):
    """Something that knows how far runs are."""

    def read_changed(self) -> Iterator[RunSeries]:
        """Yield the runs that may have more to say, named by their workload."""

    def close(self) -> None:
        """Close the connections."""


@dataclass
class ProgressSource:
    """What training runs report of themselves, as progress of the workloads of a cluster."""

    name: str
    tracker: Tracker
    cluster: str = DEFAULT_CLUSTER
    # The newest report of each workload that was taken.
    _taken_ms: dict[str, int] = field(default_factory=dict)

    def poll(self, now_ms: int) -> Sequence[Observation]:
        """Return reports since the last time, in order of time."""
        found: list[Progress] = []
        for run in self.tracker.read_changed():
            new = [
                report
                for report in make_reports(run)
                if self._taken_ms.get(run.name, -1) < report.time_ms <= now_ms
            ][-MOST_REPORTS:]
            if new:
                self._taken_ms[run.name] = new[-1].time_ms
                found += new
        if not found:
            return []
        found.sort(key=lambda report: report.time_ms)
        return [Observation(now_ms, self.cluster, progress=tuple(found))]

    def details(self) -> dict[str, Any]:
        """Return how many workloads it has heard of."""
        return {"workloads": len(self._taken_ms)}

    def close(self) -> None:
        """Close the connections."""
        self.tracker.close()


class PassingSource(JoinedSource):
    """A source that names neither hosts nor jobs: nothing is brought together."""

    def poll(self, now_ms: int) -> Sequence[Observation]:
        """Return the source's observations unchanged."""
        return self.source.poll(now_ms)


def make_reports(run: RunSeries) -> Iterator[Progress]:
    """Yield one report per moment of a run; a value that is no number is left out."""
    for n, time_ms in enumerate(run.time_ms):
        loss, throughput = (_read_known(float(column[n])) for column in (run.loss, run.throughput))
        if math.isfinite(time_ms) and (loss is not None or throughput is not None):
            step = _read_known(float(run.step[n]))
            yield Progress(
                run.name,
                int(time_ms),
                step=None if step is None else int(step),
                throughput=throughput,
                unit=run.unit,
                loss=loss,
            )


def _read_known(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass
class EventFolder:
    """A folder with one folder of event files per workload, named ``prefix`` and its id."""

    folder: Path
    prefix: str = ""
    _stamps: dict[Path, tuple[Any, ...]] = field(default_factory=dict)

    def read_changed(self) -> Iterator[RunSeries]:
        """Yield the runs whose files have changed."""
        try:
            places = find_event_folders(self.folder)
        except (OSError, InvalidInput) as error:
            raise Unavailable(f"The folder of event files cannot be read: {error}") from None
        for place in places:
            parts = place.relative_to(self.folder).parts
            name = parts[0] if parts else ""
            if not name.startswith(self.prefix) or name == self.prefix:
                continue
            stamp = tuple((f.name, f.stat().st_size) for f in sorted(place.glob("*tfevents*")))
            if self._stamps.get(place) != stamp:
                scalars, _ = read_scalars(place)
                self._stamps[place] = stamp
                yield make_series(scalars, name=name.removeprefix(self.prefix))

    def close(self) -> None:
        """Close nothing: nothing is held open."""


@dataclass
class MlflowExperiment:
    """The runs of an experiment whose tag names a workload."""

    server: MlflowServer
    experiment: str
    tag: str = "marey.workload"

    def read_changed(self) -> Iterator[RunSeries]:
        """Yield every run with that tag: MLflow does not say which have changed."""
        try:
            runs = self.server.find_runs(self.experiment)
        except Unavailable:
            raise
        except MareyError as error:
            raise Unavailable(f"Experiment '{shown(self.experiment)}': {error}") from None
        for run in runs:
            if workload := run.tags.get(self.tag):
                keys = run.metric_keys
                scalars = {key: self.server.read_metric(run.run_id, key) for key in keys}
                yield make_series(scalars, name=workload)

    def close(self) -> None:
        """Close the connections."""
        self.server.close()
