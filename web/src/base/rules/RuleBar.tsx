/**
 * The rule bar: which rules are violated, now and before, ranked, each with its place and colour.
 *
 * A view gives it a board (`useRuleBoard`) and what it does when a rule is lit, filtered or coloured by; controls
 * without a handler are not shown. Lenses belong to the view: it keeps them and hands them in.
 */

import { lazy, Suspense, useState } from "react";
import { formatCount } from "@/base/format";
import { AllRules } from "@/base/rules/AllRules";
import type { Lens } from "@/base/rules/documents";
import { PREPARING, type RuleBoard } from "@/base/rules/queries";
import { RuleDetails } from "@/base/rules/RuleDetails";
import { RuleMark } from "@/base/rules/RuleMark";
import type { RuleEntry } from "@/base/rules/slots";
import { isViolated, pagesOf } from "@/base/rules/slots";
import type { RuleVerdict } from "@/base/rules/verdicts";
import { IconButton, Popover } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import "@/base/rules/rules.css";

const RuleEditor = lazy(async () => ({ default: (await import("@/base/rules/RuleEditor")).RuleEditor }));

export interface RuleBarProps {
  board: RuleBoard;
  /** Whether the board is of a past moment: it then tells what had been found. */
  past?: boolean;
  /** The lenses of this view, and what happens when they change. */
  lenses: readonly Lens[];
  onLenses: (lenses: Lens[]) => void;
  /** Field of the rule whose units are lit; also lit from elsewhere, such as a bar on the canvas. */
  lit: string | null;
  onLight: (field: string | null) => void;
  /** Fields of the rules that the view is filtered by. */
  filtered?: ReadonlySet<string>;
  onFilter?: (field: string) => void;
  /** Field of the rule that units are coloured by. */
  coloured?: string | null;
  onColour?: (field: string) => void;
  /** Which eight of the violated rules have a place. */
  page?: number;
  onPage?: (page: number) => void;
  /** Whom the draft in the editor matches, to be shown while it is typed. Give the same function each time. */
  onDraft?: (verdict: RuleVerdict | null) => void;
}

export function RuleBar(props: RuleBarProps) {
  const { board, lit } = props;
  const [editing, setEditing] = useState<RuleEntry | "new" | null>(null);
  const shown = board.slots.flatMap((field, slot) => {
    const entry = field === null ? undefined : board.entries.find((one) => one.field === field);
    return entry ? [{ entry, slot }] : [];
  });
  const rest = board.entries.length - shown.length;
  const litEntry = board.entries.find((entry) => entry.field === lit);
  return (
    <section className="rule-bar" aria-label="Rules" data-testid="rule-bar">
      {props.past ? <h2 title="Findings that were open at this moment; nothing is judged anew, and lenses are judged for now only.">Found then</h2> : <h2>Rules</h2>}
      <ul className="rule-chips">
        {shown.map(({ entry, slot }) => (
          <li key={entry.field} className={entry.title.length <= 12 ? "short" : ""}>
            <Chip entry={entry} slot={slot} onEdit={() => setEditing(entry)} {...props} />
          </li>
        ))}
        {shown.length === 0 && <li className="muted rule-quiet">{props.past && !board.loading ? "No finding was open at this moment." : quietText(board)}</li>}
      </ul>
      <Pager {...props} />
      {board.entries.length > 0 && (
        <Popover
          label="All rules"
          align="end"
          trigger={
            <button type="button" className="rule-more" data-testid="rule-more">
              {rest > 0 ? `+${formatCount(rest)} more` : "All"}
            </button>
          }
        >
          <AllRules {...props} onEdit={setEditing} />
        </Popover>
      )}
      {!props.past && (
        <button type="button" className="rule-more rule-new" data-testid="rule-new" onClick={() => setEditing("new")}>
          <Icon name="plus" size={13} /> <span>New rule</span>
        </button>
      )}
      {litEntry && (
        <div className="rule-lit" role="status" data-testid="rule-lit">
          <strong>{litEntry.title}</strong> <code>{litEntry.when}</code> <span>{countText(litEntry)}</span>
        </div>
      )}
      {board.problem && (
        <span className="rule-problem" role="alert" title={board.problem}>
          {board.problem}
        </span>
      )}
      {editing && (
        <Suspense fallback={null}>
          <RuleEditor entry={editing === "new" ? null : editing} lenses={props.lenses} onLenses={props.onLenses} onClose={() => setEditing(null)} {...(props.onDraft ? { onDraft: props.onDraft } : {})} />
        </Suspense>
      )}
    </section>
  );
}

function quietText(board: RuleBoard): string {
  if (board.loading || (board.preparing && board.entries.length > 0)) return `No verdicts yet: ${PREPARING}`;
  if (board.entries.length === 0) return "No rules yet.";
  return `No workload violates any of ${formatCount(board.entries.filter((entry) => entry.enabled).length)} rules.`;
}

/** "3 workloads (48 GPUs) now, 5 over their life". */
export function countText(entry: RuleEntry): string {
  if (!entry.enabled) return "switched off";
  const jobs = (count: number) => `${formatCount(count)} workload${count === 1 ? "" : "s"}`;
  const now = entry.now.workloads > 0 ? `${jobs(entry.now.workloads)} (${formatCount(entry.now.gpus)} GPUs) now` : "nobody now";
  const unknown = entry.notJudged > 0 ? `, ${formatCount(entry.notJudged)} not judged` : "";
  return `${now}, ${formatCount(entry.life.workloads)} over their life${unknown}`;
}

function Chip({ entry, slot, lit, onLight, onEdit, ...rest }: RuleBarProps & { entry: RuleEntry; slot: number; onEdit: () => void }) {
  const tags = [rest.filtered?.has(entry.field) && "filtered", rest.coloured === entry.field && "coloured"].filter(Boolean).join(" ");
  return (
    <Popover
      label={entry.title}
      trigger={
        <button
          type="button"
          className={`rule-chip ${entry.severity} ${tags}`}
          data-testid={`chip-${entry.field}`}
          data-lit={lit === entry.field}
          aria-label={`${entry.title}, ${entry.kind === "lens" ? "lens" : entry.severity}, place ${slot + 1}: ${countText(entry)}${tags ? `, ${tags}` : ""}`}
          onPointerEnter={() => onLight(entry.field)}
          onPointerLeave={() => onLight(null)}
          onFocus={() => onLight(entry.field)}
          onBlur={() => onLight(null)}
        >
          <RuleMark slot={slot} now={entry.now.workloads > 0} />
          <span className="rule-title">{entry.title}</span>
          <b title="workloads that violate it now">{formatCount(entry.now.workloads)}</b>
          <small title="workloads that violate it over their life">/{formatCount(entry.life.workloads)}</small>
        </button>
      }
    >
      <RuleDetails entry={entry} onEdit={onEdit} {...rest} />
    </Popover>
  );
}

function Pager({ board, page = 0, onPage }: RuleBarProps) {
  const pages = pagesOf(board.entries);
  if (!onPage || pages < 2) return null;
  const violated = board.entries.filter(isViolated).length;
  return (
    <span className="rule-pager" title={`${formatCount(violated)} rules are violated; eight have a place at a time`}>
      <IconButton icon="left" label="Rules before these" disabled={page === 0} onClick={() => onPage(page - 1)} />
      {page + 1}/{pages}
      <IconButton icon="right" label="Rules after these" disabled={page >= pages - 1} onClick={() => onPage(page + 1)} />
    </span>
  );
}
