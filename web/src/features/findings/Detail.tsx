import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { FormEvent, ReactNode } from "react";
import { useState } from "react";
import { getJson, postJson, putJson, remove } from "@/api/client";
import { formatCount, formatDuration, formatTime } from "@/base/format";
import { entityAddress, selectionAddress, workloadAddress } from "@/base/addresses";
import { PageLink } from "@/base/ui/PageLink";
import { useLanguage, useRules } from "@/base/verdicts/queries";
import { boundText } from "@/base/verdicts/slots";
import { Choice, IconButton } from "@/base/ui/controls";
import type { Finding, Mute } from "@/features/findings/documents";
import { mutesOf, plottedSpan, readingText } from "@/features/findings/documents";
import { FindingPlot } from "@/features/findings/FindingPlot";
import pageStyles from "@/base/ui/page.module.css";
import { Permitted } from "@/base/ui/Permitted";
import ui from "@/base/ui/ui.module.css";
import ruleStyles from "@/base/verdicts/rules.module.css";
import styles from "@/features/findings/Detail.module.css";
import { findingsTexts as texts } from "@/texts";

/** One finding: why, since when, at what cost, and what people say of it. */
export function Detail({ id, onClose }: { id: string; onClose: () => void }) {
  const finding = useQuery({
    queryKey: ["finding", id],
    queryFn: ({ signal }) => getJson<Finding>(`/findings/${encodeURIComponent(id)}`, {}, signal),
    refetchInterval: 10_000,
  });
  const rules = useRules();
  const rule = rules.data?.find((one) => one.id === finding.data?.rule);
  return (
    <section
      className={styles["finding-detail"]}
      aria-label={texts.finding}
      data-testid="finding-detail"
    >
      <header>
        <h2>{finding.data?.title ?? texts.finding}</h2>
        <IconButton icon="close" label={texts.closeTheFinding} onClick={onClose} />
      </header>
      {finding.isError && <p role="alert">{finding.error.message}</p>}
      {finding.isPending && <p role="status">{texts.loading}</p>}
      {finding.data && (
        <>
          <Facts finding={finding.data} />
          {rule && (
            <>
              <code className={ruleStyles["rule-text"]}>
                {boundText(rule.when, rule.thresholds ?? {})}
              </code>
              {rule.explanation && <p>{rule.explanation}</p>}
              {rule.cause && (
                <p>
                  <b>{texts.likelyCause}</b> {rule.cause}
                </p>
              )}
              {rule.next_step && (
                <p>
                  <b>{texts.next}</b> {rule.next_step}
                </p>
              )}
              {rule.false_positives && (
                <p className={ui["muted"]}>
                  <b>{texts.possibleFalseAlarm}</b> {rule.false_positives}
                </p>
              )}
            </>
          )}
          <FindingPlot finding={finding.data} />
          <Evidence finding={finding.data} />
          <Permitted to="contribute">
            <Speak finding={finding.data} />
          </Permitted>
          <Permitted to="operate">
            <MuteForm finding={finding.data} />
          </Permitted>
          <History finding={finding.data} />
        </>
      )}
    </section>
  );
}

function Facts({ finding }: { finding: Finding }) {
  const only = { field: "workload", op: "eq", value: finding.workload };
  const link = (kind: string, name: string): ReactNode =>
    name && <PageLink href={entityAddress(kind, name)}>{name}</PageLink>;
  const rows: [string, ReactNode][] = [
    [texts.severity, finding.severity],
    [texts.user, link("user", finding.user)],
    [texts.project, link("project", finding.project)],
    [texts.partition, link("partition", finding.partition)],
    ["GPUs", texts.of(formatCount(finding.gpu_count), formatCount(finding.gpus_held))],
    [
      texts.affected,
      texts.gpuHours(formatCount(finding.gpu_hours), finding.waste ? texts.countedAsWasted : ""),
    ],
  ];
  return (
    <>
      <div className={pageStyles["page-line"]}>
        <PageLink
          className={ui["button"]}
          href={workloadAddress(finding.workload, plottedSpan(finding))}
        >
          {texts.diagnose(finding.workload)}
        </PageLink>
        <PageLink className={ui["button"]} href={selectionAddress(only)}>
          {texts.showOnOverview}
        </PageLink>
      </div>
      <dl className={styles["finding-facts"]}>
        {rows.map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value || "–"}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

const MOST_GPUS = 16;

function Evidence({ finding }: { finding: Finding }) {
  const language = useLanguage();
  const gpus = Object.entries(finding.evidence);
  if (gpus.length === 0) return null;
  const conditions = gpus[0][1].map((reading) => reading.condition);
  return (
    <section aria-label={texts.evidence}>
      <h3>{texts.evidence}</h3>
      <div className={pageStyles["page-scroll"]}>
        <table className={pageStyles["page-table"]} data-testid="evidence">
          <thead>
            <tr>
              <th>{texts.gpu}</th>
              {conditions.map((condition) => (
                <th key={condition}>
                  <code>{condition}</code>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {gpus.slice(0, MOST_GPUS).map(([gpu, readings]) => (
              <tr key={gpu}>
                <th scope="row">
                  <PageLink href={entityAddress("gpu", gpu)}>{gpu}</PageLink>
                </th>
                {readings.map((reading) => (
                  <td
                    key={reading.condition}
                    title={texts.limit(
                      readingText(reading.condition, reading.limit, language.data),
                    )}
                  >
                    {readingText(reading.condition, reading.value, language.data)}{" "}
                    <span className={ui["muted"]}>
                      {texts.limit(readingText(reading.condition, reading.limit, language.data))}
                    </span>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {finding.gpu_count > gpus.length && (
        <p className={ui["muted"]}>
          {texts.andMoreGpus(formatCount(finding.gpu_count - gpus.length))}
        </p>
      )}
    </section>
  );
}

function useChanged(id: string) {
  const client = useQueryClient();
  return () =>
    Promise.all(
      [["finding", id], ["findings"], ["mutes"]].map((queryKey) =>
        client.invalidateQueries({ queryKey }),
      ),
    );
}

function Speak({ finding }: { finding: Finding }) {
  const [text, setText] = useState("");
  const changed = useChanged(finding.id);
  const done = async () => {
    setText("");
    await changed();
  };
  const path = `/findings/${encodeURIComponent(finding.id)}`;
  const acknowledge = useMutation({
    mutationFn: () => putJson(`${path}/acknowledgement`, { text }),
    onSuccess: done,
  });
  const comment = useMutation({
    mutationFn: () => postJson(`${path}/comments`, { text }),
    onSuccess: done,
  });
  const failed = acknowledge.error ?? comment.error;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        comment.mutate();
      }}
    >
      <div className={pageStyles["page-line"]}>
        <label className={`${ui["field"]} ${styles["finding-words"]}`}>
          <span>{texts.comment}</span>
          <input
            type="text"
            value={text}
            maxLength={4000}
            placeholder={texts.whatYouKnowOrWhatYou}
            onChange={(event) => setText(event.target.value)}
          />
        </label>
        <button
          className={ui["button"]}
          type="submit"
          data-testid="comment"
          disabled={text.trim() === "" || comment.isPending}
        >
          {texts.comment}
        </button>
        <button
          className={ui["button"]}
          type="button"
          data-testid="acknowledge"
          disabled={acknowledge.isPending}
          title={texts.markAsAcknowledged}
          onClick={() => acknowledge.mutate()}
        >
          {finding.acknowledged ? texts.acknowledgeAgain : texts.acknowledge}
        </button>
      </div>
      {failed && <p role="alert">{failed.message}</p>}
    </form>
  );
}

const UNTIL = [
  { value: "1", label: texts.n1Day },
  { value: "7", label: texts.n7Days },
  { value: "30", label: texts.n30Days },
  { value: "", label: texts.forever },
];

function MuteForm({ finding }: { finding: Finding }) {
  const mutes = useQuery({
    queryKey: ["mutes"],
    queryFn: () => getJson<Mute[]>("/mutes"),
  });
  const [scope, setScope] = useState<"workload" | "user" | "project">("workload");
  const [days, setDays] = useState("7");
  const [why, setWhy] = useState("");
  const changed = useChanged(finding.id);
  const mute = useMutation({
    mutationFn: () => {
      // The cluster's clock, not this browser's: a simulated cluster may be elsewhere in time.
      const until =
        days === "" ? null : new Date(finding.updated_ms + Number(days) * 86_400_000).toISOString();
      return postJson("/mutes", {
        scope,
        value: finding[scope],
        rule: finding.rule,
        why,
        until,
      });
    },
    onSuccess: async () => {
      setWhy("");
      await changed();
    },
  });
  const covering = mutesOf(finding, mutes.data ?? [], finding.updated_ms);
  const scopes = (["workload", "user", "project"] as const).filter((name) => finding[name] !== "");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    mute.mutate();
  };
  return (
    <details
      data-testid="finding-mute"
      className={styles["finding-mute"]}
      open={covering.length > 0}
    >
      <summary>{covering.length > 0 ? texts.muted : texts.mute}</summary>
      {covering.map((one) => (
        <MuteLine key={one.id} mute={one} />
      ))}
      <form className={pageStyles["page-line"]} onSubmit={submit}>
        <Choice
          label={texts.muteThisRuleFor}
          value={scope}
          options={scopes.map((value) => ({ value, label: `${value} ${finding[value]}` }))}
          onChange={setScope}
        />
        <Choice label={texts.until} value={days} options={UNTIL} onChange={setDays} />
        <label className={`${ui["field"]} ${styles["finding-words"]}`}>
          <span>{texts.reason}</span>
          <input
            type="text"
            value={why}
            maxLength={4000}
            onChange={(event) => setWhy(event.target.value)}
          />
        </label>
        <button
          className={ui["button"]}
          type="submit"
          data-testid="mute"
          disabled={why.trim() === "" || mute.isPending}
        >
          {texts.mute}
        </button>
      </form>
      {mute.error && <p role="alert">{mute.error.message}</p>}
    </details>
  );
}

/** One mute, with the way to end it. */
export function MuteLine({ mute }: { mute: Mute }) {
  const client = useQueryClient();
  const end = useMutation({
    mutationFn: () => remove(`/mutes/${encodeURIComponent(mute.id)}`),
    onSuccess: () => client.invalidateQueries(),
  });
  return (
    <p className={styles["finding-muted"]} data-testid="finding-muted">
      {mute.scope} <b>{mute.value}</b>
      {texts.mutedUntil(
        mute.rule && mute.scope !== "rule" ? ` (${mute.rule})` : "",
        mute.until_ms === null ? texts.unmuted : formatTime(mute.until_ms),
        mute.why,
      )}{" "}
      {mute.by && <span className={ui["muted"]}>– {mute.by}</span>}{" "}
      <Permitted to="operate">
        <button
          type="button"
          className={ui["link"]}
          disabled={end.isPending}
          onClick={() => end.mutate()}
        >
          {texts.unmute}
        </button>
      </Permitted>
      {end.error && <span role="alert">{end.error.message}</span>}
    </p>
  );
}

function History({ finding }: { finding: Finding }) {
  const entries = [
    ...finding.episodes.flatMap((episode) => [
      { time_ms: episode.opened_ms, text: texts.opened },
      ...(episode.closed_ms === null
        ? []
        : [
            {
              time_ms: episode.closed_ms,
              text: texts.closedAfter(
                formatDuration((episode.closed_ms - episode.opened_ms) / 1000),
                episode.because ? `: ${episode.because}` : "",
              ),
            },
          ]),
    ]),
    ...(finding.acknowledged
      ? [
          {
            time_ms: finding.acknowledged.time_ms,
            text: said(texts.acknowledged, finding.acknowledged),
          },
        ]
      : []),
    ...finding.comments.map((comment) => ({ time_ms: comment.time_ms, text: said("", comment) })),
  ].sort((a, b) => b.time_ms - a.time_ms);
  return (
    <section aria-label={texts.history}>
      <h3>{texts.history}</h3>
      <ol className={styles["finding-history"]} data-testid="history">
        {entries.map((entry, i) => (
          <li key={i}>
            <time dateTime={new Date(entry.time_ms).toISOString()}>
              {formatTime(entry.time_ms)}
            </time>{" "}
            {entry.text}
          </li>
        ))}
      </ol>
    </section>
  );
}

function said(what: string, { by, text }: { by: string; text: string }): string {
  return (
    [what, by && texts.by(by)].filter(Boolean).join(" ") +
    (text ? `${what || by ? ": " : ""}${text}` : "")
  );
}
