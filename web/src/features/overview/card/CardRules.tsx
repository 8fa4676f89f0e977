import { useMemo } from "react";
import { formatCount } from "@/base/format";
import type { Predicate } from "@/base/predicate";
import { select } from "@/base/predicate";
import { RuleMark } from "@/base/verdicts/RuleMark";
import type { RuleEntry } from "@/base/verdicts/slots";
import { isViolated } from "@/base/verdicts/slots";
import type { ClusterState } from "@/base/units";
import { buildUnits } from "@/base/units";
import { isFilteredBy, toggleRuleFilter, useOverview } from "@/features/overview/store";
import ui from "@/base/ui/ui.module.css";
import ruleStyles from "@/base/verdicts/rules.module.css";
import styles from "@/features/overview/card/CardRules.module.css";
import { overviewTexts as texts } from "@/texts";

interface Line {
  entry: RuleEntry;
  now: number;
  life: number;
}

// A card is read, not scrolled through.
const MOST_LINES = 12;

/** The rules that selected units violate: what the bars on the canvas say, as a list for the keyboard. */
export function CardRules({
  state,
  selection,
}: {
  state: ClusterState;
  selection: readonly Predicate[];
}) {
  const rules = useOverview((overview) => overview.rules);
  const slots = useOverview((overview) => overview.slots);
  const view = useOverview((overview) => overview.view);
  const { verdicts, allocations } = state;
  const lines = useMemo(
    () => violatedBy(state, selection, rules),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- metrics that change with every tick change nothing here
    [verdicts, allocations, selection, rules],
  );
  if (lines.length === 0) return null;
  return (
    <section
      className={styles["card-rules"]}
      aria-label={texts.violatedRules}
      data-testid="card-rules"
    >
      <h3>{texts.violatedRules}</h3>
      <ul>
        {lines.slice(0, MOST_LINES).map(({ entry, now, life }) => (
          <li key={entry.field}>
            <button
              type="button"
              className={ruleStyles["rule-row"]}
              title={texts.clickToShowOnlyItsUnits(entry.when)}
              aria-pressed={isFilteredBy(view, entry.field)}
              onClick={() => toggleRuleFilter(entry.field)}
              onPointerEnter={() => useOverview.setState({ lit: entry.field })}
              onPointerLeave={() => useOverview.setState({ lit: null })}
              onFocus={() => useOverview.setState({ lit: entry.field })}
              onBlur={() => useOverview.setState({ lit: null })}
            >
              <RuleMark
                slot={slots.includes(entry.field) ? slots.indexOf(entry.field) : null}
                now={now > 0}
              />
              <span>{entry.title}</span>
              <small>
                {now > 0 ? texts.now(formatCount(now)) : ""}
                {now > 0 && life > now ? ", " : ""}
                {life > now ? texts.overTheWholeRun(formatCount(life)) : ""}
              </small>
            </button>
          </li>
        ))}
        {lines.length > MOST_LINES && (
          <li className={ui["muted"]}>{texts.andMore(formatCount(lines.length - MOST_LINES))}</li>
        )}
      </ul>
    </section>
  );
}

/** Rules with the number of selected GPUs that violate them, now and in all. */
function violatedBy(
  state: ClusterState,
  selection: readonly Predicate[],
  rules: readonly RuleEntry[],
): Line[] {
  const units = buildUnits(state, { units: "gpus", waiting_unit: "gpu" });
  const chosen = select({ or: [...selection] }, units);
  const lines = rules.filter(isViolated).map((entry): Line => {
    const column = units.column(entry.field);
    const counts = [0, 0];
    if (column?.kind === "text")
      for (let i = 0; i < units.rows; i++)
        if (chosen[i] && column.codes[i] >= 0 && column.codes[i] < 2) counts[column.codes[i]]++;
    return { entry, now: counts[0], life: counts[0] + counts[1] };
  });
  return lines.filter((line) => line.life > 0).sort((a, b) => b.now - a.now || b.life - a.life);
}
