import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { getJson } from "@/api/client";
import { entityAddress } from "@/base/addresses";
import { formatCount } from "@/base/format";
import { PageLink } from "@/base/ui/PageLink";
import type { Fairness } from "@/features/queue/line";
import { DAY_MS } from "@/features/queue/line";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/queue/Queue.module.css";
import { queueTexts as texts } from "@/texts";

const PERIODS = [1, 7, 30];

/** Use against share per project over a period that one chooses. */
export function FairnessTable({ nowMs }: { nowMs: number }) {
  const [days, setDays] = useState(7);
  const fairness = useQuery({
    queryKey: ["queue-fairness", days, Math.floor(nowMs / DAY_MS)],
    queryFn: ({ signal }) =>
      getJson<Fairness>("/queue-fairness", { from_ms: String(nowMs - days * DAY_MS) }, signal),
    enabled: nowMs > 0,
  });
  const rows = fairness.data?.rows.slice(0, 20) ?? [];
  // One scale for all, so that the marks can be compared down the column.
  const whole = Math.max(0.01, ...rows.map((row) => Math.max(row.used_share, row.fair_share)));
  return (
    <section className={styles["section"]} aria-label={texts.fairness}>
      <div className={pageStyles["page-line"]}>
        <h2>{texts.fairness}</h2>
        {PERIODS.map((period) => (
          <button
            key={period}
            type="button"
            className={ui["button"]}
            aria-pressed={days === period}
            onClick={() => setDays(period)}
          >
            {texts.days(period)}
          </button>
        ))}
      </div>
      <p className={ui["muted"]}>
        {texts.fairnessIntro} <span data-testid="queue-shares-from">{fairness.data?.sentence}</span>
      </p>
      {fairness.isError && <p role="alert">{fairness.error.message}</p>}
      {fairness.data && (
        <div className={pageStyles["page-scroll"]}>
          <table className={pageStyles["page-table"]} data-testid="queue-fairness">
            <thead>
              <tr>
                <th>{texts.project}</th>
                <th className={pageStyles["figure"]}>{texts.gpuHours}</th>
                <th>{texts.usedAgainstShare}</th>
                <th className={pageStyles["figure"]}>{texts.ratio}</th>
                <th className={pageStyles["figure"]}>{texts.gpusWaiting}</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.project}>
                  <td>
                    {row.project ? (
                      <PageLink href={entityAddress("project", row.project)}>
                        {row.project}
                      </PageLink>
                    ) : (
                      "–"
                    )}
                  </td>
                  <td className={pageStyles["figure"]}>{formatCount(row.gpu_hours)}</td>
                  <td>
                    <ShareBar used={row.used_share} fair={row.fair_share} whole={whole} />
                  </td>
                  <td className={pageStyles["figure"]}>
                    {row.ratio === null ? texts.noShare : `${row.ratio.toFixed(1)}×`}
                  </td>
                  <td className={pageStyles["figure"]}>{formatCount(row.waiting_gpus)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function ShareBar({ used, fair, whole }: { used: number; fair: number; whole: number }) {
  return (
    <span className={styles["share-cell"]}>
      <span className={styles["share"]} aria-hidden="true">
        <b style={{ width: `${(used / whole) * 100}%` }} data-over={used > fair} />
        <i style={{ left: `${(fair / whole) * 100}%` }} />
      </span>
      {texts.usedOfShare(Math.round(used * 100), Math.round(fair * 100))}
    </span>
  );
}
