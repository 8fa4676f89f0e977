import { useEffect, useMemo, useState } from "react";
import type { Attribute } from "@/base/attributes";
import { useLive } from "@/base/live/session";
import type { Lens } from "@/base/verdicts/documents";
import { useRuleBoard } from "@/base/verdicts/queries";
import type { RuleBarComponent } from "@/base/verdicts/ruleBar";
import type { RuleEntry } from "@/base/verdicts/slots";
import type { RuleVerdict } from "@/base/verdicts/verdicts";
import { DRAFT_FIELD } from "@/base/verdicts/verdicts";
import { useShared } from "@/features/overview/context";
import {
  editView,
  isFilteredBy,
  toggleRuleColour,
  toggleRuleFilter,
  useOverview,
} from "@/features/overview/store";

// A lens is judged for now: on the past it would be somebody else's verdict.
const NO_LENSES: readonly Lens[] = [];

/** The rule bar of the overview: verdicts go to the canvas, filters and colours into the view. */
export function Rules({ RuleBar }: { RuleBar: RuleBarComponent }) {
  const { session, attributes } = useShared();
  const view = useOverview((state) => state.view);
  const lit = useOverview((state) => state.lit);
  const [page, setPage] = useState(0);
  const at = useLive((state) => state.at);
  const past = at !== null;
  const board = useRuleBoard(past ? NO_LENSES : view.lenses, page, undefined, at);
  const { entries, slots, verdicts } = board;
  const [draft, setDraft] = useState<RuleVerdict | null>(null);
  const shown = useMemo(
    () => (draft && !past ? new Map([...verdicts, [DRAFT_FIELD, draft]]) : verdicts),
    [verdicts, draft, past],
  );
  useEffect(() => {
    session.setVerdicts(shown, past);
    useOverview.setState({ draft: shown.has(DRAFT_FIELD) ? DRAFT_FIELD : null });
  }, [session, shown, past]);
  useEffect(() => {
    for (const entry of entries) attributes.set(entry.field, attributeOf(entry));
    useOverview.setState({ rules: entries });
  }, [entries, attributes]);
  useEffect(() => useOverview.setState({ slots }), [slots]);
  const filtered = useMemo(
    () => new Set(entries.map((entry) => entry.field).filter((field) => isFilteredBy(view, field))),
    [entries, view],
  );
  return (
    <RuleBar
      board={board}
      past={past}
      lenses={view.lenses}
      onLenses={(lenses) => editView({ lenses })}
      lit={lit}
      onLight={(field) => useOverview.setState({ lit: field })}
      filtered={filtered}
      onFilter={toggleRuleFilter}
      coloured={view.colour.by}
      onColour={toggleRuleColour}
      page={page}
      onPage={setPage}
      onDraft={setDraft}
    />
  );
}

function attributeOf(entry: RuleEntry): Attribute {
  return {
    id: entry.field,
    label: entry.title,
    kind: "text",
    unit: "",
    description: entry.when,
    min: null,
    max: null,
    metric: false,
  };
}
