import { useState } from "react";
import { Select } from "@/base/ui/controls";
import { formatNs } from "@/charts/marey/window";
import { DataTable } from "@/features/traces/DataTable";
import { useDifference, useRuns } from "@/features/traces/queries";
import type { PanelProps } from "@/features/traces/run/TimePanels";
import { shorten } from "@/features/traces/words";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/run/Run.module.css";
import { tracesTexts as texts } from "@/texts";

const time = (ms: number) => formatNs(ms * 1e6);
const chance = (p: number | null) => (p === null ? "–" : p < 0.001 ? "< 0.001" : p.toFixed(3));

/** What another run, or other steps of the same one, do differently. */
export function DifferencePanel({ detail }: PanelProps) {
  const run = detail.run.id;
  const runs = useRuns("");
  const [other, setOther] = useState(run);
  const last = detail.steps[detail.steps.length - 1]?.step;
  const [steps, setSteps] = useState(String(detail.steps[0]?.step ?? ""));
  const [withSteps, setWithSteps] = useState(last === undefined ? "" : String(last));
  const [asked, setAsked] = useState<[string, string, string] | null>(null);
  const difference = useDifference(run, asked?.[0] ?? "", asked?.[1] ?? "", asked?.[2] ?? "");
  const ready = (runs.data?.runs ?? []).filter((one) => one.state === "ready");
  return (
    <div className={styles["panel"]}>
      <form
        className={pageStyles["page-line"]}
        onSubmit={(event) => {
          event.preventDefault();
          setAsked([other, steps.trim(), withSteps.trim()]);
        }}
      >
        <label className={ui["field"]}>
          <span>{texts.stepsOfThisRun}</span>
          <input type="text" value={steps} onChange={(event) => setSteps(event.target.value)} />
        </label>
        <Select
          label={texts.compareWith}
          value={other}
          options={ready.map((one) => ({
            value: one.id,
            label: one.id === run ? texts.thisRun : shorten(one.name, 60),
          }))}
          onChange={setOther}
        />
        <label className={ui["field"]}>
          <span>{texts.stepsOfTheOther}</span>
          <input
            type="text"
            value={withSteps}
            onChange={(event) => setWithSteps(event.target.value)}
          />
        </label>
        <button className={ui["button"]} type="submit">
          {texts.compare}
        </button>
      </form>
      {asked && asked[0] === run && asked[1] === asked[2] && (
        <p role="status">{texts.sameOnBothSides}</p>
      )}
      {difference.isError && <p role="alert">{difference.error.message}</p>}
      {difference.isFetching && <p role="status">{texts.comparing}</p>}
      {difference.data && (
        <>
          <p>{texts.differenceExplained(difference.data.samples)}</p>
          <DataTable
            name={texts.parts}
            rows={difference.data.parts}
            columns={[
              { key: "name", label: texts.part, text: true },
              { key: "a_ms", label: texts.thisSide, show: (row) => time(row.a_ms) },
              { key: "b_ms", label: texts.otherSide, show: (row) => time(row.b_ms) },
              { key: "delta_ms", label: texts.change, show: (row) => time(row.delta_ms) },
              { key: "p", label: texts.pValue, show: (row) => chance(row.p) },
              { key: "significant", label: texts.significant, text: true },
            ]}
          />
          <DataTable
            name={texts.changes}
            rows={difference.data.changes}
            columns={[
              { key: "layer", label: texts.layer, text: true },
              { key: "name", label: texts.name, text: true },
              { key: "change", label: texts.change, text: true },
              { key: "a_ms", label: texts.thisSide, show: (row) => time(row.a_ms) },
              { key: "b_ms", label: texts.otherSide, show: (row) => time(row.b_ms) },
              { key: "delta_ms", label: texts.difference, show: (row) => time(row.delta_ms) },
              { key: "p", label: texts.pValue, show: (row) => chance(row.p) },
            ]}
          />
        </>
      )}
    </div>
  );
}
