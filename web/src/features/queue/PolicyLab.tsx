import { useQuery } from "@tanstack/react-query";
import type { FormEvent } from "react";
import { useState } from "react";
import { inCluster } from "@/api/chosen";
import { getJson } from "@/api/client";
import { PREFIX } from "@/api/prefix";
import { formatCount, formatDuration, formatShare } from "@/base/format";
import type { ComparedWaits, PolicyAnswer } from "@/features/queue/line";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/queue/Queue.module.css";
import { queueTexts as texts } from "@/texts";

const CHOICES = {
  order: ["fifo", "multifactor"],
  backfill: ["none", "easy", "conservative"],
  placement: ["most_allocated", "least_allocated", "fgd", "node_order"],
  favor_small: ["false", "true"],
} as const;
const WORDS: Record<string, string> = {
  true: texts.smallFirst,
  false: texts.largeFirst,
  ...texts.policyChoices,
};
const FIRST = {
  partition: "",
  days: "7",
  order: "fifo",
  backfill: "conservative",
  placement: "most_allocated",
  add_hosts: "0",
  favor_small: "false",
  policy: "",
};
type Asked = typeof FIRST;

/** What another policy would have done with a partition's own workloads. */
export function PolicyLab({ partitions }: { partitions: readonly string[] }) {
  const [typed, setTyped] = useState<Asked>(FIRST);
  const [asked, setAsked] = useState<Asked | null>(null);
  const answer = useQuery({
    queryKey: ["queue-whatif", asked],
    queryFn: ({ signal }) => getJson<PolicyAnswer>("/queue-whatif", { ...asked }, signal),
    enabled: asked !== null,
    retry: 0,
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setAsked({ ...typed });
  };
  const select = (name: keyof Asked, label: string, options: readonly string[]) => (
    <label className={ui["field"]}>
      <span>{label}</span>
      <select
        value={typed[name]}
        onChange={(event) => setTyped({ ...typed, [name]: event.target.value })}
      >
        {options.map((option) => (
          <option key={option} value={option}>
            {option === "" ? texts.busiest : (WORDS[option] ?? option.replace("_", " "))}
          </option>
        ))}
      </select>
    </label>
  );
  const field = (name: "days" | "add_hosts", label: string) => (
    <label className={ui["field"]}>
      <span>{label}</span>
      <input
        type="text"
        inputMode="numeric"
        value={typed[name]}
        onChange={(event) => setTyped({ ...typed, [name]: event.target.value })}
      />
    </label>
  );
  return (
    <section className={styles["section"]} aria-label={texts.policyLab}>
      <h2>{texts.policyLab}</h2>
      <p className={ui["muted"]}>{texts.policyIntro}</p>
      <form className={styles["ask"]} onSubmit={submit}>
        {select("partition", texts.partition, ["", ...partitions])}
        {field("days", texts.daysOfHistory)}
        {select("order", texts.order, CHOICES.order)}
        {select("backfill", texts.backfill, CHOICES.backfill)}
        {select("placement", texts.placement, CHOICES.placement)}
        {typed.order === "multifactor" &&
          select("favor_small", texts.sizePriority, CHOICES.favor_small)}
        {field("add_hosts", texts.addHosts)}
        <details className={styles["whole-policy"]}>
          <summary>{texts.wholePolicy}</summary>
          <label className={ui["field"]}>
            <span>{texts.wholePolicyHint}</span>
            <textarea
              rows={4}
              spellCheck={false}
              placeholder={texts.wholePolicyExample}
              value={typed.policy}
              onChange={(event) => setTyped({ ...typed, policy: event.target.value })}
            />
          </label>
        </details>
        <button type="submit" className={ui["button"]}>
          {texts.replayPolicy}
        </button>
      </form>
      {answer.isError && <p role="alert">{answer.error.message}</p>}
      {answer.isFetching && <p role="status">{texts.replaying}</p>}
      {answer.data && asked && !answer.isError && (
        <Outcome answer={answer.data} report={reportAddress(asked)} />
      )}
    </section>
  );
}

/** Whole minutes, rounded as the sentences are: the two stand side by side. */
const span = (seconds: number | null) =>
  seconds === null ? "–" : formatDuration(seconds < 60 ? seconds : Math.round(seconds / 60) * 60);
const signed = (share: number | null) =>
  share === null ? "–" : `${share < 0 ? "−" : "+"}${Math.round(Math.abs(share) * 100)}\u00a0%`;
const policyWord = (word: string) => texts.policyWords[word] ?? word;

/** The same answer as a page of its own, to keep or to hand on. */
const reportAddress = (asked: Asked) =>
  `${PREFIX}/api/v1${inCluster(
    `/queue-whatif?${new URLSearchParams({ ...asked, format: "html" }).toString()}`,
  )}`;

function Outcome({ answer, report }: { answer: PolicyAnswer; report: string }) {
  return (
    <div className={styles["section"]} data-testid="queue-policy">
      <p>
        {texts.replayed(
          formatCount(answer.jobs),
          answer.partition,
          `${policyWord(answer.current.order)}, ${policyWord(answer.current.backfill)}`,
          span(answer.recorded_mean_wait_s),
          span(answer.replayed_mean_wait_s),
          signed(answer.error),
        )}
      </p>
      {answer.refused ? (
        <p role="alert">{answer.refused}</p>
      ) : (
        <>
          <p>
            <b>
              {texts.meanWaitBecomes(span(answer.current_mean_wait_s), span(answer.mean_wait_s))}
            </b>{" "}
            {texts.useBecomes(
              formatShare(answer.current_utilization),
              formatShare(answer.utilization),
            )}{" "}
            {texts.strandedBecomes(
              formatShare(answer.current_stranded),
              formatShare(answer.stranded),
            )}{" "}
            {answer.never_start > 0 && texts.neverStart(formatCount(answer.never_start))}
          </p>
          <p>
            <a href={report} target="_blank" rel="noreferrer" data-testid="queue-policy-report">
              {texts.policyReport}
            </a>
          </p>
          {answer.notes.map((note) => (
            <p key={note} className={ui["muted"]}>
              {note}
            </p>
          ))}
          <div className={styles["pair"]}>
            <Sentences label={texts.whoLoses} rows={answer.losses} change="loses" />
            <Sentences label={texts.whoGains} rows={answer.gains} change="gains" />
          </div>
          <div className={styles["pair"]}>
            <Compared rows={answer.by_size} label={texts.bySize} name={texts.gpus} />
            <Compared rows={answer.by_user.slice(0, 12)} label={texts.byUser} name={texts.user} />
            {answer.by_project.length > 0 && (
              <Compared
                rows={answer.by_project.slice(0, 12)}
                label={texts.byProject}
                name={texts.project}
              />
            )}
          </div>
        </>
      )}
    </div>
  );
}

interface SentencesProps {
  label: string;
  rows: readonly string[];
  change: "loses" | "gains";
}

/** Who would lose or gain, in words; "nobody" is an answer. */
function Sentences({ label, rows, change }: SentencesProps) {
  return (
    <section className={styles["section"]} aria-label={label}>
      <h3>{label}</h3>
      {rows.length === 0 && <p className={ui["muted"]}>{texts.nobody}</p>}
      <ul data-testid={`queue-${change}`}>
        {rows.map((row) => (
          <li key={row} className={styles["then"]} data-change={change}>
            {row}
          </li>
        ))}
      </ul>
    </section>
  );
}

interface ComparedProps {
  rows: readonly ComparedWaits[];
  label: string;
  name: string;
}

function Compared({ rows, label, name }: ComparedProps) {
  return (
    <section className={styles["section"]} aria-label={label}>
      <h3>{label}</h3>
      <table className={pageStyles["page-table"]}>
        <thead>
          <tr>
            <th>{name}</th>
            <th className={pageStyles["figure"]}>{texts.jobs}</th>
            <th className={pageStyles["figure"]}>{texts.waitNow}</th>
            <th className={pageStyles["figure"]}>{texts.waitThen}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name}>
              <td>{row.name}</td>
              <td className={pageStyles["figure"]}>{formatCount(row.jobs)}</td>
              <td className={pageStyles["figure"]}>{span(row.mean_wait_now_s)}</td>
              <td className={`${pageStyles["figure"]} ${styles["then"]}`} data-change={row.verdict}>
                {span(row.mean_wait_s)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
