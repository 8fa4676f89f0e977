import { useState } from "react";
import { formatCount } from "@/base/format";
import { RuleActions } from "@/features/rules/RuleDetails";
import type { RuleBarProps } from "@/base/verdicts/ruleBar";
import { Counts, countText } from "@/features/rules/RuleBar";
import { RuleMark } from "@/base/verdicts/RuleMark";
import type { FaultGroup, RuleEntry } from "@/base/verdicts/slots";
import { byFault } from "@/base/verdicts/slots";
import ui from "@/base/ui/ui.module.css";
import ruleStyles from "@/base/verdicts/rules.module.css";
import styles from "@/features/rules/AllRules.module.css";
import { rulesTexts as texts } from "@/texts";

// Thousands of rules are searched, not scrolled.
const PAGE = 40;

/** Every rule by kind of fault, with a search; as legible with thousands as with five. */
export function AllRules(props: RuleBarProps & { onEdit: (entry: RuleEntry) => void }) {
  const [search, setSearch] = useState("");
  const wanted = search.trim().toLowerCase();
  const found =
    wanted === ""
      ? props.board.entries
      : props.board.entries.filter((entry) =>
          `${entry.title} ${entry.field} ${entry.when}`.toLowerCase().includes(wanted),
        );
  const groups = byFault(found);
  return (
    <div className={`${ui["settings"]} ${styles["all-rules"]}`} data-testid="all-rules">
      <input
        type="search"
        aria-label={texts.searchRules}
        placeholder={texts.searchAmongRules(formatCount(props.board.entries.length))}
        value={search}
        onChange={(event) => setSearch(event.target.value)}
      />
      {groups.map((group) => (
        <Group
          key={group.fault}
          group={group}
          open={wanted !== "" || group.violated > 0 || groups.length < 4}
          {...props}
        />
      ))}
      {groups.length === 0 && <p className={ui["muted"]}>{texts.noMatches}</p>}
    </div>
  );
}

function Group({
  group,
  open,
  ...props
}: RuleBarProps & { group: FaultGroup; open: boolean; onEdit: (entry: RuleEntry) => void }) {
  const [count, setCount] = useState(PAGE);
  return (
    <details open={open}>
      <summary>
        {group.label}
        <small>
          {group.violated > 0
            ? texts.ofViolated(formatCount(group.violated), formatCount(group.entries.length))
            : formatCount(group.entries.length)}
        </small>
      </summary>
      <ul>
        {group.entries.slice(0, count).map((entry) => (
          <Row key={entry.field} entry={entry} {...props} />
        ))}
      </ul>
      {group.entries.length > count && (
        <button type="button" className={ui["link"]} onClick={() => setCount(count + PAGE)}>
          {texts.more(formatCount(group.entries.length - count))}
        </button>
      )}
    </details>
  );
}

function Row({
  entry,
  board,
  onEdit,
  lit,
  onLight,
  ...actions
}: RuleBarProps & { entry: RuleEntry; onEdit: (entry: RuleEntry) => void }) {
  const [open, setOpen] = useState(false);
  const slot = board.slots.indexOf(entry.field);
  return (
    <li
      className={entry.enabled ? undefined : styles["off"]}
      onPointerEnter={() => onLight(entry.field)}
      onPointerLeave={() => onLight(null)}
      data-lit={lit === entry.field}
    >
      <button
        type="button"
        className={ruleStyles["rule-row"]}
        aria-expanded={open}
        data-testid={`row-${entry.field}`}
        onClick={() => setOpen(!open)}
        onFocus={() => onLight(entry.field)}
        onBlur={() => onLight(null)}
      >
        <RuleMark slot={slot < 0 ? null : slot} now={entry.now.workloads > 0} />
        <span>{entry.title}</span>
        {entry.enabled ? <Counts entry={entry} /> : <small>{texts.off}</small>}
      </button>
      {open && (
        <div className={styles["rule-open"]}>
          <code className={ruleStyles["rule-text"]}>{entry.when}</code>
          <p className={ui["muted"]}>{countText(entry)}</p>
          <RuleActions entry={entry} onEdit={() => onEdit(entry)} {...actions} />
        </div>
      )}
    </li>
  );
}
