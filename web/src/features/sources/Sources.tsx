import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { getJson, postJson } from "@/api/client";
import { formatCount, formatDuration, formatTime } from "@/base/format";
import { PageHead } from "@/base/ui/PageHead";
import { ago, conditionOf, failingEndpoints, failuresText, rateText, reloadedText, summaryText, tookText } from "@/features/sources/words";
import type { Reloaded, Source, SourcesDocument } from "@/features/sources/words";
import "@/features/sources/sources.css";

const EVERY_MS = 2_000;

/** Where the facts come from: who answers, who does not, and what to do about it. */
export function Sources() {
  const sources = useQuery({ queryKey: ["sources"], queryFn: () => getJson<SourcesDocument>("/sources"), refetchInterval: EVERY_MS, retry: false });
  const document = sources.data;
  return (
    <div className="page">
      <PageHead />
      <main className="page-body sources-page">
        <div className="page-line">
          <h1>Sources</h1>
          <p className="muted" role="status">
            {document && !sources.isError ? summaryText(document.rows) : ""}
          </p>
          <span className="spring" />
          {document?.reloads && <Reload file={document.file ?? "the configuration"} />}
        </div>
        {sources.isError && (
          <p className="sources-lost" role="alert">
            {sources.error.message} {document ? "What stands here is from before. Trying again…" : "Trying again…"}
          </p>
        )}
        {sources.isPending && (
          <p className="page-notice" role="status">
            Asking the server…
          </p>
        )}
        {document && document.rows.length === 0 && <Empty />}
        {document && document.rows.length > 0 && (
          <ul className="source-list" data-testid="sources">
            {document.rows.map((source) => (
              <li key={source.name}>
                <One source={source} />
              </li>
            ))}
          </ul>
        )}
      </main>
    </div>
  );
}

/** Reads the configuration file again; says what that has changed, or why it is refused. */
function Reload({ file }: { file: string }) {
  const client = useQueryClient();
  const [said, setSaid] = useState<{ text: string; wrong: boolean } | null>(null);
  const [busy, setBusy] = useState(false);
  const reload = async () => {
    setBusy(true);
    try {
      setSaid({ text: reloadedText(await postJson<Reloaded>("/sources/reload", {})), wrong: false });
      await client.invalidateQueries({ queryKey: ["sources"] });
    } catch (error) {
      setSaid({ text: error instanceof Error ? error.message : "It could not be read again.", wrong: true });
    }
    setBusy(false);
  };
  return (
    <>
      {said && (
        <p className={said.wrong ? "reloaded wrong" : "reloaded"} role={said.wrong ? "alert" : "status"} data-testid="reloaded">
          {said.text}
        </p>
      )}
      <button type="button" className="button" disabled={busy} onClick={() => void reload()}>
        {busy ? "Reading…" : `Read ${file} again`}
      </button>
    </>
  );
}

function Empty() {
  return (
    <section className="sources-empty">
      <h2>No source is configured</h2>
      <p>
        This server shows what its store holds. To collect from a cluster, let <code>marey init</code> look for what there is and write a configuration, then start <code>marey serve --config marey.toml</code>.
      </p>
    </section>
  );
}

function One({ source }: { source: Source }) {
  const condition = conditionOf(source);
  return (
    <article className={`source ${condition.tone}`} aria-label={source.name} data-state={condition.word}>
      <header>
        <span className={`source-condition ${condition.tone}`}>{condition.word}</span>
        <h2>{source.name}</h2>
        <span className="muted">
          {[source.kind !== source.name ? source.kind : "", source.cluster && `cluster ${source.cluster}`].filter(Boolean).join(" · ")}
        </span>
      </header>
      <dl>
        <Fact name="Last answer" title={formatTime(source.last_ms)} value={ago(source.age_ms)} />
        <Fact name="Newest fact" title="How old the newest thing is that it told" value={ago(source.lag_ms)} />
        <Fact name="Values per answer" value={formatCount(source.values)} />
        <Fact name="Rate" title="Values per second over its last answers" value={rateText(source.rate_per_s)} />
        <Fact name="Answer took" value={tookText(source)} />
        <Fact name="Failed" title="Questions without an answer" value={failuresText(source)} />
      </dl>
      <Problem source={source} />
      <Endpoints source={source} />
    </article>
  );
}

function Fact({ name, value, title }: { name: string; value: string; title?: string }) {
  return (
    <div {...(title ? { title } : {})}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** What is wrong now and how to mend it; else what was wrong last. */
function Problem({ source }: { source: Source }) {
  if (source.error)
    return (
      <div className="source-problem" role={source.removed ? undefined : "alert"}>
        <p>{source.error}</p>
        {source.mend && (
          <p className="mend">
            <b>What to do:</b> {source.mend}
          </p>
        )}
        {source.backoff_ms > 0 && !source.error.includes("Asked again") && <p className="muted">Asked again in {formatDuration(source.backoff_ms / 1000)}.</p>}
      </div>
    );
  if (source.last_error)
    return (
      <p className="muted before">
        Last failed {formatTime(source.last_error_ms)}: {source.last_error}
      </p>
    );
  return null;
}

function Endpoints({ source }: { source: Source }) {
  const found = failingEndpoints(source);
  if (!found) return null;
  return (
    <details className="endpoints">
      <summary>
        {formatCount(found.failing)} of {formatCount(found.all)} exporters do not answer
      </summary>
      <ul>
        {found.listed.map((one) => (
          <li key={one.endpoint}>
            <b>{one.endpoint}</b> {one.error}
          </li>
        ))}
        {found.failing > found.listed.length && <li className="muted">and {formatCount(found.failing - found.listed.length)} more</li>}
      </ul>
    </details>
  );
}
