import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { FormEvent } from "react";
import { useState } from "react";
import { getJson, postJson, putJson, remove } from "@/api/client";
import { formatCount, formatDuration, formatTime } from "@/base/format";
import { links } from "@/base/links";
import { useLanguage, useRules } from "@/base/rules/queries";
import { boundText } from "@/base/rules/slots";
import { Choice, IconButton } from "@/base/ui/controls";
import type { Finding, Mute } from "@/features/findings/documents";
import { mutesOf, readingText } from "@/features/findings/documents";

const ME = "marey.me";

/** Who speaks; remembered in this browser. */
function useMe(): [string, (me: string) => void] {
  const [me, setMe] = useState(() => {
    try {
      return localStorage.getItem(ME) ?? "";
    } catch {
      return "";
    }
  });
  const keep = (next: string) => {
    setMe(next);
    try {
      localStorage.setItem(ME, next);
    } catch {
      // A browser that keeps nothing asks again.
    }
  };
  return [me, keep];
}

/** One finding: why, since when, at what cost, and what people say of it. */
export function Detail({ id, onClose }: { id: string; onClose: () => void }) {
  const finding = useQuery({ queryKey: ["finding", id], queryFn: ({ signal }) => getJson<Finding>(`/findings/${encodeURIComponent(id)}`, {}, signal), refetchInterval: 10_000, retry: 1 });
  const rules = useRules();
  const rule = rules.data?.find((one) => one.id === finding.data?.rule);
  return (
    <section className="finding-detail" aria-label="Finding" data-testid="finding-detail">
      <header>
        <h2>{finding.data?.title ?? "Finding"}</h2>
        <IconButton icon="close" label="Close the finding" onClick={onClose} />
      </header>
      {finding.isError && <p role="alert">{finding.error.message}</p>}
      {finding.isPending && <p role="status">Reading…</p>}
      {finding.data && (
        <>
          <Facts finding={finding.data} />
          {rule && (
            <>
              <code className="rule-text">{boundText(rule.when, rule.thresholds ?? {})}</code>
              {rule.explanation && <p>{rule.explanation}</p>}
              {rule.cause && (
                <p>
                  <b>Likely cause:</b> {rule.cause}
                </p>
              )}
              {rule.next_step && (
                <p>
                  <b>Next:</b> {rule.next_step}
                </p>
              )}
              {rule.false_positives && (
                <p className="muted">
                  <b>May be wrong:</b> {rule.false_positives}
                </p>
              )}
            </>
          )}
          <Evidence finding={finding.data} />
          <Speak finding={finding.data} />
          <MuteForm finding={finding.data} />
          <History finding={finding.data} />
        </>
      )}
    </section>
  );
}

function Facts({ finding }: { finding: Finding }) {
  const only = JSON.stringify([{ field: "workload", op: "eq", value: finding.workload }]);
  const rows: [string, string][] = [
    ["Severity", finding.severity],
    ["User", finding.user],
    ["Project", finding.project],
    ["Partition", finding.partition],
    ["GPUs", `${formatCount(finding.gpu_count)} of ${formatCount(finding.gpus_held)}`],
    ["Affected", `${formatCount(finding.gpu_hours)} GPU-hours${finding.waste ? ", counted as wasted" : ""}`],
  ];
  return (
    <>
      <div className="page-line">
        <a className="button" href={links.diagnose?.(finding.workload)}>
          Diagnose {finding.workload}
        </a>
        <a className="button" href={`/?view=workloads&sel=${encodeURIComponent(only)}`}>
          On the overview
        </a>
      </div>
      <dl className="finding-facts">
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
    <section aria-label="Evidence">
      <h3>Evidence</h3>
      <div className="page-scroll">
        <table className="page-table" data-testid="evidence">
          <thead>
            <tr>
              <th>GPU</th>
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
                <th scope="row">{gpu}</th>
                {readings.map((reading) => (
                  <td key={reading.condition} title={`limit ${readingText(reading.condition, reading.limit, language.data)}`}>
                    {readingText(reading.condition, reading.value, language.data)} <span className="muted">against {readingText(reading.condition, reading.limit, language.data)}</span>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {finding.gpu_count > gpus.length && <p className="muted">and {formatCount(finding.gpu_count - gpus.length)} more GPUs</p>}
    </section>
  );
}

function useChanged(id: string) {
  const client = useQueryClient();
  return () => Promise.all([["finding", id], ["findings"], ["mutes"]].map((queryKey) => client.invalidateQueries({ queryKey })));
}

function Speak({ finding }: { finding: Finding }) {
  const [me, setMe] = useMe();
  const [text, setText] = useState("");
  const changed = useChanged(finding.id);
  const done = async () => {
    setText("");
    await changed();
  };
  const path = `/findings/${encodeURIComponent(finding.id)}`;
  const acknowledge = useMutation({ mutationFn: () => putJson(`${path}/acknowledgement`, { text, by: me }), onSuccess: done });
  const comment = useMutation({ mutationFn: () => postJson(`${path}/comments`, { text, by: me }), onSuccess: done });
  const failed = acknowledge.error ?? comment.error;
  return (
    <form
      className="finding-speak"
      onSubmit={(event) => {
        event.preventDefault();
        comment.mutate();
      }}
    >
      <div className="page-line">
        <label className="field">
          <span>Your name</span>
          <input type="text" value={me} maxLength={200} onChange={(event) => setMe(event.target.value)} />
        </label>
        <label className="field finding-words">
          <span>Comment</span>
          <input type="text" value={text} maxLength={4000} placeholder="What you know or do about it" onChange={(event) => setText(event.target.value)} />
        </label>
        <button type="submit" data-testid="comment" disabled={text.trim() === "" || comment.isPending}>
          Comment
        </button>
        <button type="button" data-testid="acknowledge" disabled={acknowledge.isPending} title="Somebody looks after it" onClick={() => acknowledge.mutate()}>
          {finding.acknowledged ? "Acknowledge again" : "Acknowledge"}
        </button>
      </div>
      {failed && <p role="alert">{failed.message}</p>}
    </form>
  );
}

const UNTIL = [
  { value: "1", label: "1 day" },
  { value: "7", label: "7 days" },
  { value: "30", label: "30 days" },
  { value: "", label: "for good" },
];

function MuteForm({ finding }: { finding: Finding }) {
  const mutes = useQuery({ queryKey: ["mutes"], queryFn: () => getJson<Mute[]>("/mutes"), retry: 1 });
  const [me] = useMe();
  const [scope, setScope] = useState<"workload" | "user" | "project">("workload");
  const [days, setDays] = useState("7");
  const [why, setWhy] = useState("");
  const changed = useChanged(finding.id);
  const mute = useMutation({
    mutationFn: () => {
      // The cluster's clock, not this browser's: a simulated cluster may be elsewhere in time.
      const until = days === "" ? null : new Date(finding.updated_ms + Number(days) * 86_400_000).toISOString();
      return postJson("/mutes", { scope, value: finding[scope], rule: finding.rule, why, by: me, until });
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
    <details className="finding-mute" open={covering.length > 0}>
      <summary>{covering.length > 0 ? "Muted" : "Mute"}</summary>
      {covering.map((one) => (
        <MuteLine key={one.id} mute={one} />
      ))}
      <form className="page-line" onSubmit={submit}>
        <Choice label="Tell nobody of this rule for" value={scope} options={scopes.map((value) => ({ value, label: `${value} ${finding[value]}` }))} onChange={setScope} />
        <Choice label="Until" value={days} options={UNTIL} onChange={setDays} />
        <label className="field finding-words">
          <span>Why</span>
          <input type="text" value={why} maxLength={4000} onChange={(event) => setWhy(event.target.value)} />
        </label>
        <button type="submit" data-testid="mute" disabled={why.trim() === "" || mute.isPending}>
          Mute
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
    <p className="finding-muted">
      {mute.scope} <b>{mute.value}</b>
      {mute.rule && mute.scope !== "rule" && ` (${mute.rule})`} until {mute.until_ms === null ? "it is ended" : formatTime(mute.until_ms)}: {mute.why} {mute.by && <span className="muted">– {mute.by}</span>}{" "}
      <button type="button" className="link" disabled={end.isPending} onClick={() => end.mutate()}>
        End
      </button>
      {end.error && <span role="alert">{end.error.message}</span>}
    </p>
  );
}

function History({ finding }: { finding: Finding }) {
  const entries = [
    ...finding.episodes.flatMap((episode) => [
      { time_ms: episode.opened_ms, text: "opened" },
      ...(episode.closed_ms === null ? [] : [{ time_ms: episode.closed_ms, text: `closed after ${formatDuration((episode.closed_ms - episode.opened_ms) / 1000)}${episode.because ? `: ${episode.because}` : ""}` }]),
    ]),
    ...(finding.acknowledged ? [{ time_ms: finding.acknowledged.time_ms, text: said("acknowledged", finding.acknowledged) }] : []),
    ...finding.comments.map((comment) => ({ time_ms: comment.time_ms, text: said("", comment) })),
  ].sort((a, b) => b.time_ms - a.time_ms);
  return (
    <section aria-label="History">
      <h3>History</h3>
      <ol className="finding-history" data-testid="history">
        {entries.map((entry, i) => (
          <li key={i}>
            <time dateTime={new Date(entry.time_ms).toISOString()}>{formatTime(entry.time_ms)}</time> {entry.text}
          </li>
        ))}
      </ol>
    </section>
  );
}

function said(what: string, { by, text }: { by: string; text: string }): string {
  return [what, by && `by ${by}`].filter(Boolean).join(" ") + (text ? `${what || by ? ": " : ""}${text}` : "");
}
