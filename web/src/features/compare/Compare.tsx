/** Training runs side by side: figures per group, how they were tested, and curves of the loss. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { navigate, useSearch } from "@/base/router";
import { inCluster } from "@/api/chosen";
import { getJson } from "@/api/client";
import type { Document } from "@/api/documents";
import { categoryColours } from "@/base/colour";
import { formatCount } from "@/base/format";
import { useTheme } from "@/base/theme";
import { Choice } from "@/base/ui/controls";
import { PageHead } from "@/base/ui/PageHead";
import { drawLines } from "@/charts/lines";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import { compareTexts as texts } from "@/texts";

type Comparison = Document<"TrainingComparison">;
type Figure = Document<"TrainingFigure">;

const FIGURES = [
  "throughput",
  "step_ms",
  "peak_memory_bytes",
  "communication_share",
  "final_loss",
  "hours_to_loss",
  "samples_to_loss",
  "gpu_hours_to_loss",
  "hours",
] as const;

export function Compare() {
  const query = new URLSearchParams(useSearch());
  const [runs, setRuns] = useState(query.getAll("run").join(", "));
  const [loss, setLoss] = useState(query.get("loss") ?? "");
  const wanted = new URLSearchParams();
  for (const run of query.getAll("run")) wanted.append("run", run);
  if (query.get("loss")) wanted.set("loss", query.get("loss") ?? "");
  const text = wanted.toString();
  const found = useQuery({
    queryKey: ["comparison", text],
    queryFn: ({ signal }) => getJson<Comparison>(`/comparison?${text}`, {}, signal),
    enabled: query.has("run"),
    placeholderData: keepPreviousData,
    retry: false,
  });
  const show = () => {
    const next = new URLSearchParams();
    for (const run of runs.split(",").map((one) => one.trim())) if (run) next.append("run", run);
    if (loss.trim()) next.set("loss", loss.trim());
    navigate(inCluster(`${location.pathname}?${next.toString()}`));
  };
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={pageStyles["page-body"]}>
        <h1>{texts.title}</h1>
        <p className={ui["muted"]}>{texts.about}</p>
        <form
          className={pageStyles["page-line"]}
          onSubmit={(event) => {
            event.preventDefault();
            show();
          }}
        >
          <label className={ui["field"]}>
            <span>{texts.runs}</span>
            <input
              type="text"
              size={48}
              value={runs}
              placeholder={texts.runsExample}
              onChange={(event) => setRuns(event.target.value)}
            />
          </label>
          <label className={ui["field"]}>
            <span>{texts.loss}</span>
            <input
              type="text"
              inputMode="decimal"
              size={8}
              value={loss}
              onChange={(event) => setLoss(event.target.value)}
            />
          </label>
          <button type="submit" className={ui["button"]}>
            {texts.compare}
          </button>
        </form>
        {found.isError && (
          <p className={pageStyles["page-notice"]} role="alert">
            {found.error.message}
          </p>
        )}
        {!query.has("run") && (
          <p className={pageStyles["page-notice"]} role="status">
            {texts.nothing}
          </p>
        )}
        {found.data && !found.isError && query.has("run") && (
          <>
            <Groups comparison={found.data} />
            <Curves comparison={found.data} />
          </>
        )}
      </main>
    </div>
  );
}

function Groups({ comparison: { baseline, test, unit, groups } }: { comparison: Comparison }) {
  const known = FIGURES.filter((name) => groups.some((group) => group.figures[name].n > 0));
  return (
    <>
      <p role="status" data-testid="comparison-test">
        {texts.tested(baseline, test)}
      </p>
      <div className={pageStyles["page-scroll"]}>
        <table className={pageStyles["page-table"]} data-testid="comparison">
          <thead>
            <tr>
              <th>{texts.figure}</th>
              {groups.map((group) => (
                <th key={group.label} className={pageStyles["figure"]}>
                  {texts.group(group.label, group.n)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {known.map((name) => (
              <tr key={name}>
                <td>
                  {texts.figures[name]}
                  {name === "throughput" && unit ? ` (${unit})` : ""}
                </td>
                {groups.map((group) => (
                  <td key={group.label} className={pageStyles["figure"]}>
                    {figureText(group.figures[name])}
                    <br />
                    <span className={ui["muted"]}>{testText(group.figures[name])}</span>
                  </td>
                ))}
              </tr>
            ))}
            {groups.some((group) => group.efficiency !== null) && (
              <tr>
                <td>{texts.efficiency}</td>
                {groups.map(({ label, efficiency }) => (
                  <td key={label} className={pageStyles["figure"]}>
                    {efficiency === null ? "–" : `${(efficiency * 100).toFixed(1)} %`}
                  </td>
                ))}
              </tr>
            )}
          </tbody>
        </table>
      </div>
    </>
  );
}

function figureText({ n, mean, sd }: Figure): string {
  if (n === 0 || mean === null) return "–";
  const spread = sd === null ? "" : ` ± ${Number(sd.toPrecision(2))}`;
  return `${formatCount(Number(mean.toPrecision(4)))}${spread}`;
}

function testText({ n, change, q, significant, said }: Figure): string {
  if (n === 0 || change === null) return "";
  const share = `${change > 0 ? "+" : ""}${(change * 100).toFixed(1)} %`;
  if (q === null) return `${share}, ${said}`;
  return `${share}, ${significant ? texts.significant : texts.notSignificant}, q = ${q.toPrecision(2)}`;
}

function Curves({ comparison }: { comparison: Comparison }) {
  const [along, setAlong] = useState<"hours" | "samples">("hours");
  const canvas = useRef<HTMLCanvasElement | null>(null);
  const { theme } = useTheme();
  const labels = comparison.groups.map((group) => group.label);
  const colours = categoryColours(labels.length, "okabe_ito").map((rgb) => `rgb(${rgb.join(" ")})`);
  const lines = comparison.runs
    .filter((run) => run.curve.loss.length > 1)
    .map((run) => ({
      x: run.curve[along],
      y: run.curve.loss,
      colour: colours[labels.indexOf(run.label)],
    }));
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const scale = window.devicePixelRatio || 1;
    const width = element.clientWidth;
    element.width = Math.round(width * scale);
    element.height = Math.round(280 * scale);
    const context = element.getContext("2d");
    context?.setTransform(scale, 0, 0, scale, 0, 0);
    const token = (name: string) =>
      getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    if (context)
      drawLines(
        context,
        lines,
        { width, height: 280 },
        { x: texts.along[along], y: texts.lossAxis },
        { text: token("--muted"), line: token("--line"), font: `11.5px ${token("--font")}` },
      );
  }, [lines, along, theme]);
  if (lines.length === 0) return <p className={ui["muted"]}>{texts.noLoss}</p>;
  return (
    <>
      <div className={pageStyles["page-line"]}>
        <h2>{texts.lossTitle}</h2>
        <Choice
          label={texts.against}
          value={along}
          options={(["hours", "samples"] as const).map((value) => ({
            value,
            label: texts.along[value],
          }))}
          onChange={(value) => setAlong(value)}
        />
        {labels.map((label, n) => (
          <span key={label} style={{ color: colours[n] }}>
            {label}
          </span>
        ))}
      </div>
      <canvas
        ref={canvas}
        role="img"
        aria-label={texts.lossTitle}
        data-testid="loss-curves"
        style={{ width: "100%", height: 280 }}
      />
    </>
  );
}
