/**
 * The rule bar: which rules are violated, now and before, ranked, each with its place and colour.
 *
 * A view gives it a board (`useRuleBoard`) and what it does when a rule is lit, filtered or coloured by; controls
 * without a handler are not shown. Lenses belong to the view: it keeps them and hands them in.
 */

import { lazy, Suspense, useEffect, useLayoutEffect, useRef, useState } from "react";
import { formatCount } from "@/base/format";
import { AllRules } from "@/features/rules/AllRules";
import { preparingText, type RuleBoard } from "@/base/verdicts/queries";
import { RuleDetails } from "@/features/rules/RuleDetails";
import { RuleMark } from "@/base/verdicts/RuleMark";
import type { RuleEntry } from "@/base/verdicts/slots";
import { isViolated, pagesOf } from "@/base/verdicts/slots";
import type { RuleBarProps } from "@/base/verdicts/ruleBar";
import { IconButton, Popover } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/rules/RuleBar.module.css";
import { rulesTexts as texts } from "@/texts";

const RuleEditor = lazy(async () => ({
  default: (await import("@/features/rules/RuleEditor")).RuleEditor,
}));

export function RuleBar(props: RuleBarProps) {
  const { board, lit } = props;
  const [editing, setEditing] = useState<RuleEntry | "new" | null>(null);
  const shown = board.slots.flatMap((field, slot) => {
    const entry = field === null ? undefined : board.entries.find((one) => one.field === field);
    return entry ? [{ entry, slot }] : [];
  });
  const names = shown.map(({ entry }) => `${entry.title} ${entry.now.workloads}`).join();
  const [bar, left] = useTwoRows(`${names} ${board.entries.length}`);
  const rest = board.entries.length - shown.length + left;
  const litEntry = board.entries.find((entry) => entry.field === lit);
  return (
    <section
      className={styles["rule-bar"]}
      ref={bar}
      aria-label={texts.rules}
      data-testid="rule-bar"
    >
      {props.past ? (
        <h2 title={texts.findingsThatWereOpenAtThis}>{texts.findingsThen}</h2>
      ) : (
        <h2>{texts.rules}</h2>
      )}
      <ul className={styles["rule-chips"]}>
        {shown.map(({ entry, slot }) => (
          <li key={entry.field} data-chip data-asked={entry.asked}>
            <Chip entry={entry} slot={slot} onEdit={() => setEditing(entry)} {...props} />
          </li>
        ))}
        {shown.length === 0 && (
          <li className={`${ui["muted"]} ${styles["rule-quiet"]}`}>
            {props.past && !board.loading ? pastText(board) : quietText(board)}
          </li>
        )}
      </ul>
      <Pager {...props} />
      {board.entries.length > 0 && (
        <Popover
          label={texts.allRules}
          align="end"
          trigger={
            <button type="button" className={styles["rule-more"]} data-testid="rule-more">
              {rest > 0 && shown.length > 0 ? texts.more3(formatCount(rest)) : texts.allRules}
            </button>
          }
        >
          <AllRules {...props} onEdit={setEditing} />
        </Popover>
      )}
      {!props.past && (
        <button
          type="button"
          className={`${styles["rule-more"]} ${styles["rule-new"]}`}
          data-testid="rule-new"
          aria-label={texts.newRule}
          title={texts.newRule}
          onClick={() => setEditing("new")}
        >
          <Icon name="plus" size={13} /> <span>{texts.newRule}</span>
        </button>
      )}
      {litEntry && (
        <div className={styles["rule-lit"]} role="status" data-testid="rule-lit">
          <strong>{litEntry.title}</strong> <code>{litEntry.when}</code>{" "}
          <span>{countText(litEntry)}</span>
        </div>
      )}
      {board.problem && (
        <span className={styles["rule-problem"]} role="alert" title={board.problem}>
          {board.problem}
        </span>
      )}
      {editing && (
        <Suspense fallback={null}>
          <RuleEditor
            entry={editing === "new" ? null : editing}
            lenses={props.lenses}
            onLenses={props.onLenses}
            onClose={() => setEditing(null)}
            {...(props.onDraft ? { onDraft: props.onDraft } : {})}
          />
        </Suspense>
      )}
    </section>
  );
}

/** Two rows of chips and the edges of the bar, in pixels: what a third one would exceed. */
const TWO_ROWS_PX = 78;

/** Hide the last chips where all of them would need a third row; how many, for the count of the rest. */
function useTwoRows(content: string) {
  const bar = useRef<HTMLElement>(null);
  const [left, setLeft] = useState(0);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = bar.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    const found = [...(bar.current?.querySelectorAll<HTMLElement>("[data-chip]") ?? [])];
    for (const chip of found) chip.hidden = false;
    // What somebody asked for is hidden last.
    const isAsked = (chip: HTMLElement) => chip.dataset["asked"] === "true";
    const chips = [...found.filter(isAsked), ...found.filter((chip) => !isAsked(chip))];
    let shown = chips.length;
    while (shown > 1 && (bar.current?.clientHeight ?? 0) > TWO_ROWS_PX)
      chips[--shown].hidden = true;
    setLeft(chips.length - shown);
  }, [content, width]);
  return [bar, left] as const;
}

/** Of a moment that the rules have not come to, nobody knows whether anything was wrong. */
function pastText({ preparing, shareRead }: RuleBoard): string {
  return preparing ? texts.notKnownYet(preparingText(shareRead)) : texts.noFindingsWereOpenAtThis;
}

function quietText(board: RuleBoard): string {
  if (board.loading) return texts.loadingVerdicts;
  if (board.preparing && board.entries.length > 0)
    return texts.noVerdictsYet(preparingText(board.shareRead));
  if (board.entries.length === 0) return texts.noRulesYet;
  return texts.noneViolated(formatCount(board.entries.filter((entry) => entry.enabled).length));
}

/** "3 workloads (48 GPUs) now, 5 over their life". */
export function countText(entry: RuleEntry): string {
  if (!entry.enabled) return texts.off;
  const jobs = (count: number) => texts.workloads(formatCount(count), count === 1 ? "" : "s");
  const now =
    entry.now.workloads > 0
      ? texts.gpusNow(jobs(entry.now.workloads), formatCount(entry.now.gpus))
      : texts.noneNow;
  const unknown = entry.notJudged > 0 ? texts.notEvaluated(formatCount(entry.notJudged)) : "";
  return texts.overTheWholeRun(now, formatCount(entry.life.workloads), unknown);
}

function Chip({
  entry,
  slot,
  lit,
  onLight,
  onEdit,
  ...rest
}: RuleBarProps & { entry: RuleEntry; slot: number; onEdit: () => void }) {
  const tags = [
    rest.filtered?.has(entry.field) && "filtered",
    rest.coloured === entry.field && "coloured",
  ]
    .filter(Boolean)
    .join(" ");
  return (
    <Popover
      label={entry.title}
      trigger={
        <button
          type="button"
          className={styles["rule-chip"]}
          data-severity={entry.severity}
          data-used={tags !== ""}
          data-testid={`chip-${entry.field}`}
          data-lit={lit === entry.field}
          aria-description={texts.place(
            entry.title,
            entry.kind === "lens" ? texts.lens : entry.severity,
            slot + 1,
            countText(entry),
            tags ? `, ${tags}` : "",
          )}
          onPointerEnter={() => onLight(entry.field)}
          onPointerLeave={() => onLight(null)}
          onFocus={() => onLight(entry.field)}
          onBlur={() => onLight(null)}
        >
          <RuleMark slot={slot} now={entry.now.workloads > 0} />
          <span className={styles["rule-title"]}>{entry.title}</span>
          <Counts entry={entry} />
        </button>
      }
    >
      <RuleDetails entry={entry} onEdit={onEdit} {...rest} />
    </Popover>
  );
}

/** "3 now · 5 total". */
export function Counts({ entry }: { entry: RuleEntry }) {
  return (
    <small className={styles["rule-counts"]}>
      <b title={texts.workloadsViolatingItNow}>
        {texts.countNow(formatCount(entry.now.workloads))}
      </b>
      {" · "}
      <span title={texts.workloadsViolatingItOverTheWhole}>
        {texts.countOverall(formatCount(entry.life.workloads))}
      </span>
    </small>
  );
}

function Pager({ board, page = 0, onPage }: RuleBarProps) {
  const pages = pagesOf(board.entries);
  if (!onPage || pages < 2) return null;
  const violated = board.entries.filter(isViolated).length;
  return (
    <span
      className={styles["rule-pager"]}
      title={texts.rulesAreViolatedEightAreShown(formatCount(violated))}
    >
      <IconButton
        icon="left"
        label={texts.previousRules}
        disabled={page === 0}
        onClick={() => onPage(page - 1)}
      />
      {page + 1}/{pages}
      <IconButton
        icon="right"
        label={texts.nextRules}
        disabled={page >= pages - 1}
        onClick={() => onPage(page + 1)}
      />
    </span>
  );
}
