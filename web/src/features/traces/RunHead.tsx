import { callGraphAddress, traceAddress } from "@/base/addresses";
import { PageLink } from "@/base/ui/PageLink";
import type { RunDetail } from "@/features/traces/documents";
import { shorten } from "@/features/traces/words";
import styles from "@/features/traces/run/Run.module.css";
import { tracesTexts as texts } from "@/texts";

const VIEWS = [
  ["run", texts.summary],
  ["marey", texts.mareyView],
  ["flow", texts.executionFlow],
] as const;

/** The run's name and the way between its views; the step and the selection go along. */
export function RunHead({
  detail,
  view,
  step,
  where,
}: {
  detail: RunDetail;
  view: "run" | "marey" | "flow";
  step?: number | undefined;
  where?: string;
}) {
  const { id, name } = detail.run;
  return (
    <div className={styles["head"]}>
      <h1 title={shorten(name, 500)}>{shorten(name, 70)}</h1>
      <nav className={styles["views"]} aria-label={texts.viewsOfThisRun}>
        {VIEWS.map(([key, label]) => (
          <PageLink
            key={key}
            href={traceAddress(key, id, { step, where })}
            {...(key === view ? { "aria-current": "page" } : {})}
          >
            {label}
          </PageLink>
        ))}
        <PageLink href={callGraphAddress(`run:${id}`)}>{texts.callGraphs}</PageLink>
      </nav>
    </div>
  );
}
