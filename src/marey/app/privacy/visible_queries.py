"""Filters as a scope may use them: over what it is shown, never over what it is not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from marey.app.privacy.owners import WorkloadOwners
from marey.model.access.pseudonyms import NameKind
from marey.model.access.record_mask import RecordMask
from marey.model.predicates import And, Comparison, Not, Or, Predicate, matches
from marey.model.protocols import OrderFigures, WorkloadQuery

_TRUE: Predicate = And(())
_FALSE: Predicate = Or(())
_NAMED = {"user": NameKind.USER, "project": NameKind.PROJECT, "workload": NameKind.WORKLOAD}
# Of others these are shown empty.
_BLANK = ("name", "experiment", "qos")
# Of others only a scheduler's word is shown, no sentence.
_WORD = "reason"
_UNORDERED = (*_NAMED, *_BLANK, _WORD)


@dataclass(frozen=True, slots=True)
class QueryRewriter:
    """Turns a query over what is shown into one over what is kept."""

    record_mask: RecordMask
    owners: WorkloadOwners

    def rewrite(self, query: WorkloadQuery) -> WorkloadQuery:
        """Return the query that chooses, among what may be seen, the same as it shows."""
        scope = self.record_mask.scope
        if scope.hides:
            return replace(query, where=And((self._choose_known(), query.where)))
        # Others' order by a real name would tell something of the name.
        order_by = "" if query.order_by in _UNORDERED else query.order_by
        where = self._rewrite(query.where, query.cluster)
        figures = query.figures and self._rename_figures(query.figures, query.cluster)
        return replace(query, where=where, order_by=order_by, figures=figures)

    def _rename_figures(self, figures: OrderFigures, cluster: str) -> OrderFigures:
        """Return the figures under the names that are kept; one's own are shown as they are."""
        by_workload = {
            self.owners.find_real(cluster, NameKind.WORKLOAD, shown) or shown: figure
            for shown, figure in figures.by_workload.items()
        }
        return replace(figures, by_workload=by_workload)

    def _choose_known(self) -> Predicate:
        scope = self.record_mask.scope
        parts: list[Predicate] = []
        if scope.user:
            parts.append(Comparison("user", "eq", scope.user))
        if scope.projects:
            parts.append(Comparison("project", "in", sorted(scope.projects)))
        return Or(tuple(parts))

    def _rewrite(self, predicate: Predicate, cluster: str) -> Predicate:
        if isinstance(predicate, And):
            return And(tuple(self._rewrite(part, cluster) for part in predicate.parts))
        if isinstance(predicate, Or):
            return Or(tuple(self._rewrite(part, cluster) for part in predicate.parts))
        if isinstance(predicate, Not):
            return Not(self._rewrite(predicate.part, cluster))
        head = predicate.field.partition(".")[0]
        if head not in (*_UNORDERED, "attributes"):
            return predicate
        own = self._choose_known()
        others = self._compare_others(predicate, cluster)
        return Or((And((own, predicate)), And((Not(own), others))))

    def _compare_others(self, asked: Comparison, cluster: str) -> Predicate:
        """Return the comparison for work whose names are made up."""
        if asked.field == _WORD:
            return self._compare_words(asked)
        kind = _NAMED.get(asked.field)
        if kind is None:
            shown = {asked.field: ""} if asked.field in _BLANK else {}
            return _TRUE if matches(asked, shown) else _FALSE
        if asked.op == "missing":
            return asked
        if asked.op in ("eq", "ne", "in"):
            return self._compare_names(asked, kind, cluster)
        if kind is NameKind.WORKLOAD:
            # A piece of a number would also find what is no number; the whole one does not.
            exact = Comparison(asked.field, "eq", asked.value)
            return self._compare_names(exact, kind, cluster)
        fitting = self.record_mask.pseudonyms.find_all(
            kind, lambda name: matches(asked, {asked.field: name})
        )
        return Comparison(asked.field, "in", fitting[:10_000])

    def _compare_words(self, asked: Comparison) -> Predicate:
        """Return the comparison for reasons, which are shown only if they are one word."""
        values = asked.value if asked.op == "in" else [asked.value]
        named = {value for value in values if isinstance(value, str) and value.isalnum()}
        words = {*self.record_mask.pseudonyms.list_words(), *named}
        fits = {word: matches(asked, {_WORD: word}) for word in words}
        if matches(asked, {_WORD: ""}):
            # Whatever is not shown fits: all but the words that do not.
            return Not(Comparison(_WORD, "in", sorted(w for w in words if not fits[w])))
        return Comparison(_WORD, "in", sorted(word for word in words if fits[word]))

    def _compare_names(self, asked: Comparison, kind: NameKind, cluster: str) -> Predicate:
        values = asked.value if asked.op == "in" else [asked.value]
        found = [self.owners.find_real(cluster, kind, str(value)) for value in values]
        real = [name for name in found if name is not None]
        if asked.op == "ne":
            return Comparison(asked.field, "ne", real[0]) if real else _TRUE
        return Comparison(asked.field, "in", real) if real else _FALSE
