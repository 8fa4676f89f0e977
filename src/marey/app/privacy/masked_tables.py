"""Tables of records as a scope sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from marey.app.privacy.owners import NOBODY, Owner, WorkloadOwners
from marey.model.access.machine_texts import show_machine_text
from marey.model.access.pseudonyms import NameKind
from marey.model.access.record_mask import RecordMask
from marey.model.events import ClusterEventKind
from marey.model.samples import NO_WORKLOAD, SampleBatch

# What is left of what people wrote about work that is not theirs.
_BLANKS = {"name": "", "experiment": "", "qos": "", "attributes": "{}"}
# Whatever becomes of somebody's work, these tell of a machine.
_OF_MACHINES = frozenset(ClusterEventKind) - {
    ClusterEventKind.CHECKPOINT,
    ClusterEventKind.EVALUATION,
}
# Their words are Marey's own: names of sources and policies.
_OF_NOBODY = frozenset({ClusterEventKind.POLICY_CHANGE, ClusterEventKind.SOURCE_BACK})


@dataclass(frozen=True, slots=True)
class TableMask:
    """Leaves out or renames what a scope may not see."""

    record_mask: RecordMask
    owners: WorkloadOwners

    def show_workloads(self, table: pa.Table) -> pa.Table:
        """Return workloads, each real, masked or left out."""
        users, projects = table["user"].to_pylist(), table["project"].to_pylist()
        known = [self.record_mask.knows(u, p) for u, p in zip(users, projects, strict=True)]
        if all(known):
            return table
        if self.record_mask.scope.hides:
            return table.filter(pa.array(known, pa.bool_()))
        record_mask = self.record_mask
        maskers: dict[str, Callable[[str], str]] = {
            "workload": record_mask.show_id,
            "user": record_mask.show_user,
            "project": record_mask.show_project,
            "reason": record_mask.show_reason,
        }
        own = pa.array(known, pa.bool_())
        for name, blank in _BLANKS.items():
            at = table.column_names.index(name)
            shown_column = pc.if_else(own, table.column(at), blank)
            table = table.set_column(at, table.schema.field(at), shown_column)
        for name, mask in maskers.items():
            values = table[name].to_pylist()
            shown = [v if k else mask(v or "") for v, k in zip(values, known, strict=True)]
            table = _put_column(table, name, shown)
        return table

    def show_rows(self, cluster: str, table: pa.Table) -> pa.Table:
        """Return rows that belong to workloads, each real, renamed or left out."""
        names = table["workload"].to_pylist()
        shown = self.show_ids(cluster, names)
        if self.record_mask.scope.hides:
            kept = [shown.get(name) is not None for name in names]
            return table if all(kept) else table.filter(pa.array(kept, pa.bool_()))
        if "reason" in table.column_names:
            reasons = zip(table["reason"].to_pylist(), names, strict=True)
            visible = [r if shown[n] == n else self.record_mask.show_reason(r) for r, n in reasons]
            table = _put_column(table, "reason", visible)
        return _put_column(table, "workload", [shown.get(name, "") for name in names])

    def show_events(self, cluster: str, table: pa.Table) -> pa.Table:
        """Return events; of what happened to others' work only what a machine did."""
        names = table["workload"].to_pylist()
        owners = self.owners.find(cluster, names)
        known = [not name or self._knows(owners, name) for name in names]
        kinds = table["kind"].to_pylist()
        rows = zip(names, kinds, table["text"].to_pylist(), known, strict=True)
        table = _put_column(table, "text", [_show_event_text(*row) for row in rows])
        if all(known):
            return table
        shown = self.show_ids(cluster, names)
        table = _put_column(table, "workload", [shown.get(name) or "" for name in names])
        if not self.record_mask.scope.hides:
            return table
        kept = [k or kind in _OF_MACHINES for k, kind in zip(known, kinds, strict=True)]
        return table.filter(pa.array(kept, pa.bool_()))

    def show_hosts(self, table: pa.Table) -> pa.Table:
        """Return hosts and why they are out of service, as far as that names nobody."""
        reasons = [show_machine_text(text or "") for text in table["reason"].to_pylist()]
        return _put_column(table, "reason", reasons)

    def show_gpus(self, table: pa.Table) -> pa.Table:
        """Return GPUs and why they failed, as far as that names nobody."""
        reasons = [text and show_machine_text(text) for text in table["failed_reason"].to_pylist()]
        return _put_column(table, "failed_reason", reasons)

    def show_batch(self, batch: SampleBatch) -> SampleBatch:
        """Return samples without the names of workloads that are not shown."""
        if batch.workload is None or not batch.workloads:
            return batch
        shown = self.show_ids(batch.cluster, batch.workloads)
        names = [shown.get(name) for name in batch.workloads]
        hidden = np.array([name is None for name in names] + [False])
        codes = np.where(hidden[batch.workload], NO_WORKLOAD, batch.workload).astype(np.int32)
        return replace(batch, workload=codes, workloads=tuple(name or "" for name in names))

    def show_ids(self, cluster: str, workloads: Sequence[str]) -> dict[str, str | None]:
        """Return the shown id of each workload; None for one that is not shown."""
        owners = self.owners.find(cluster, workloads)
        shown: dict[str, str | None] = {}
        for name in owners:
            if self._knows(owners, name):
                shown[name] = name
            else:
                shown[name] = (
                    None if self.record_mask.scope.hides else self.record_mask.show_id(name)
                )
        return shown

    def find_id(self, cluster: str, shown: str) -> str | None:
        """Return the real id of a workload that is shown under this one; None if there is none."""
        real = shown
        if not self.record_mask.scope.hides:
            real = self.owners.find_real(cluster, NameKind.WORKLOAD, shown) or shown
        return real if self.show_ids(cluster, [real]).get(real) == shown else None

    def _knows(self, owners: Mapping[str, Owner], workload: str) -> bool:
        return self.record_mask.knows(*owners.get(workload, NOBODY))


def _show_event_text(workload: str, kind: str, text: str, known: bool) -> str:
    """Return the words of an event: of one's own work all, of a machine what names nobody."""
    if not known:
        return ""
    if workload or kind in _OF_NOBODY:
        return text
    return show_machine_text(text)


def _put_column(table: pa.Table, name: str, values: Sequence[str | None]) -> pa.Table:
    at = table.column_names.index(name)
    return table.set_column(at, table.schema.field(name), pa.array(values, pa.string()))
