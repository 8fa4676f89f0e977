import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { getJson, postJson } from "@/api/client";
import { formatCount, formatDuration, formatTime } from "@/base/format";
import { Permitted } from "@/base/ui/Permitted";
import { PageHead } from "@/base/ui/PageHead";
import {
  ago,
  conditionOf,
  failingEndpoints,
  failuresText,
  rateText,
  reloadedText,
  summaryText,
  tookText,
} from "@/features/sources/words";
import type { Reloaded, Source, SourcesDocument } from "@/features/sources/words";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/sources/Sources.module.css";
import { sourcesTexts as texts } from "@/texts";

const EVERY_MS = 2_000;

/** Where the facts come from: who answers, who does not, and what to do about it. */
export function Sources() {
  const sources = useQuery({
    queryKey: ["sources"],
    queryFn: () => getJson<SourcesDocument>("/sources"),
    refetchInterval: EVERY_MS,
    retry: false,
  });
  const document = sources.data;
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={`${pageStyles["page-body"]} ${styles["sources-page"]}`}>
        <div className={pageStyles["page-line"]}>
          <h1>{texts.sources}</h1>
          <p className={ui["muted"]} role="status">
            {document && !sources.isError ? summaryText(document.rows) : ""}
          </p>
          <span className={pageStyles["spring"]} />
          {document?.reloads && (
            <Permitted to="operate">
              <Reload file={document.file ?? texts.theConfiguration} />
            </Permitted>
          )}
        </div>
        {sources.isError && (
          <p className={styles["sources-lost"]} role="alert">
            {sources.error.message} {document ? texts.thisIsTheLastKnownState : texts.retrying}
          </p>
        )}
        {sources.isPending && (
          <p className={pageStyles["page-notice"]} role="status">
            {texts.loadingSources}
          </p>
        )}
        {document && document.rows.length === 0 && <Empty />}
        {document && document.rows.length > 0 && (
          <ul className={styles["source-list"]} data-testid="sources">
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
      setSaid({
        text: reloadedText(await postJson<Reloaded>("/sources/reload", {})),
        wrong: false,
      });
      await client.invalidateQueries({ queryKey: ["sources"] });
    } catch (error) {
      setSaid({
        text: error instanceof Error ? error.message : texts.reloadingFailed,
        wrong: true,
      });
    }
    setBusy(false);
  };
  return (
    <>
      {said && (
        <p
          className={said.wrong ? `${styles["reloaded"]} ${styles["wrong"]}` : styles["reloaded"]}
          role={said.wrong ? "alert" : "status"}
          data-testid="reloaded"
        >
          {said.text}
        </p>
      )}
      <button type="button" className={ui["button"]} disabled={busy} onClick={() => void reload()}>
        {busy ? texts.reloading : texts.reload(file)}
      </button>
    </>
  );
}

function Empty() {
  return (
    <section className={styles["sources-empty"]}>
      <h2>{texts.noSourcesConfigured}</h2>
      <p>
        {texts.thisServerShowsWhatItsStore} <code>{texts.initCommand}</code>{" "}
        {texts.toDetectWhatIsAvailableAnd} <code>{texts.serveCommand}</code>.
      </p>
    </section>
  );
}

function One({ source }: { source: Source }) {
  const condition = conditionOf(source);
  return (
    <article
      className={styles["source"]}
      data-tone={condition.tone}
      aria-label={source.name}
      data-state={condition.word}
    >
      <header>
        <span className={styles["source-condition"]}>{condition.word}</span>
        <h2>{source.name}</h2>
        <span className={ui["muted"]}>
          {[
            source.kind !== source.name ? source.kind : "",
            source.cluster && texts.cluster(source.cluster),
          ]
            .filter(Boolean)
            .join(" · ")}
        </span>
      </header>
      <dl>
        <Fact name={texts.lastPoll} title={formatTime(source.last_ms)} value={ago(source.age_ms)} />
        <Fact name={texts.latestData} title={texts.ageOfItsLatestData} value={ago(source.lag_ms)} />
        <Fact name={texts.valuesPerPoll} value={formatCount(source.values)} />
        <Fact
          name={texts.rate}
          title={texts.valuesPerSecondOverTheLatest}
          value={rateText(source.rate_per_s)}
        />
        <Fact name={texts.pollTime} value={tookText(source)} />
        <Fact
          name={texts.failedPolls}
          title={texts.pollsWithoutAnAnswer}
          value={failuresText(source)}
        />
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
      <div className={styles["source-problem"]} role={source.removed ? undefined : "alert"}>
        <p>{source.error}</p>
        {source.mend && (
          <p>
            <b>{texts.whatToDo}</b> {source.mend}
          </p>
        )}
        {source.backoff_ms > 0 && !source.error.includes(texts.nextAttempt) && (
          <p className={ui["muted"]}>
            {texts.nextAttemptIn(formatDuration(source.backoff_ms / 1000))}
          </p>
        )}
      </div>
    );
  if (source.last_error)
    return (
      <p className={`${ui["muted"]} ${styles["before"]}`}>
        {texts.lastFailure(formatTime(source.last_error_ms), source.last_error)}
      </p>
    );
  return null;
}

function Endpoints({ source }: { source: Source }) {
  const found = failingEndpoints(source);
  if (!found) return null;
  return (
    <details className={styles["endpoints"]}>
      <summary>
        {texts.ofExportersAreNotResponding(formatCount(found.failing), formatCount(found.all))}
      </summary>
      <ul>
        {found.listed.map((one) => (
          <li key={one.endpoint}>
            <b>{one.endpoint}</b> {one.error}
          </li>
        ))}
        {found.failing > found.listed.length && (
          <li className={ui["muted"]}>
            {texts.andMore(formatCount(found.failing - found.listed.length))}
          </li>
        )}
      </ul>
    </details>
  );
}
