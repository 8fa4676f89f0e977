import { formatAmount } from "@/base/times";
import type { PageState } from "@/features/callgraphs/address";
import type { Change, Difference } from "@/features/callgraphs/queries";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/callgraphs/CallGraphs.module.css";
import { callGraphTexts as texts } from "@/texts";

const GROUPS = ["slower", "faster", "appeared", "vanished"] as const;
const MOST_ROWS = 100;

/** What two sets of profiles differ in, and how that was tested. */
export function DifferencePanel({
  difference,
  set,
}: {
  difference: Difference;
  set: (change: Partial<PageState>) => void;
}) {
  const time = (value: number | null) => formatAmount(value, difference.unit);
  const nothing = GROUPS.every((group) => difference[group].length === 0);
  return (
    <section className={styles["panel"]} aria-label={texts.difference} data-testid="difference">
      <h2>{texts.difference}</h2>
      <p className={ui["muted"]}>
        {texts.tested(
          difference.test,
          difference.tested,
          difference.profiles.before,
          difference.profiles.after,
        )}
      </p>
      {difference.reason && <p role="alert">{difference.reason}</p>}
      {nothing && <p role="status">{texts.noDifference}</p>}
      {GROUPS.filter((group) => difference[group].length > 0).map((group) => (
        <details key={group} open={group === "slower" || group === "faster"}>
          <summary>{texts.groups[group](difference[group].length)}</summary>
          <div className={pageStyles["page-scroll"]}>
            <table className={pageStyles["page-table"]} data-testid={`difference-${group}`}>
              <thead>
                <tr>
                  <th>{texts.callSite}</th>
                  <th className={pageStyles["figure"]}>{texts.before}</th>
                  <th className={pageStyles["figure"]}>{texts.after}</th>
                  <th className={pageStyles["figure"]}>{texts.change}</th>
                  <th className={pageStyles["figure"]}>q</th>
                  <th className={pageStyles["figure"]}>n</th>
                </tr>
              </thead>
              <tbody>
                {difference[group].slice(0, MOST_ROWS).map((change) => (
                  <tr key={change.path.join("\u0000")}>
                    <td>
                      <button
                        type="button"
                        className={ui["link"]}
                        title={change.path.join(" › ")}
                        onClick={() => set({ path: change.path, module: "" })}
                      >
                        {change.path.slice(-2).join(" › ")}
                      </button>
                    </td>
                    <td className={pageStyles["figure"]}>{time(change.before)}</td>
                    <td className={pageStyles["figure"]}>{time(change.after)}</td>
                    <td className={pageStyles["figure"]}>{percent(change)}</td>
                    <td className={pageStyles["figure"]}>
                      {change.q === null ? texts.notTested : change.q.toPrecision(2)}
                    </td>
                    <td className={pageStyles["figure"]}>{change.n}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </details>
      ))}
    </section>
  );
}

function percent({ before, after }: Change): string {
  if (!before || after === null) return "–";
  const share = (after / before - 1) * 100;
  return `${share > 0 ? "+" : ""}${share.toFixed(1)} %`;
}
