import { useQuery } from "@tanstack/react-query";
import type { FormEvent } from "react";
import { useState } from "react";
import { getJson } from "@/api/client";
import { formatCount, formatDuration } from "@/base/format";
import type { Asked, AskedStart } from "@/features/queue/line";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/queue/Queue.module.css";
import { queueTexts as texts } from "@/texts";

interface Request {
  gpus: string;
  type: string;
  time: string;
}

/** Before submitting: when would this start, and what would start sooner? */
export function AskForm() {
  const [typed, setTyped] = useState<Request>({ gpus: "8", type: "", time: "12h" });
  const [asked, setAsked] = useState<Request | null>(null);
  const answer = useQuery({
    queryKey: ["queue-ask", asked],
    queryFn: ({ signal }) => getJson<Asked>("/queue-ask", { ...asked }, signal),
    enabled: asked !== null,
    retry: 0,
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setAsked({ ...typed });
  };
  const field = (name: keyof Request, label: string) => (
    <label className={ui["field"]}>
      <span>{label}</span>
      <input
        type="text"
        value={typed[name]}
        onChange={(event) => setTyped({ ...typed, [name]: event.target.value })}
      />
    </label>
  );
  return (
    <section className={styles["section"]} aria-label={texts.beforeSubmitting}>
      <h2>{texts.beforeSubmitting}</h2>
      <form className={styles["ask"]} onSubmit={submit}>
        {field("gpus", texts.gpus)}
        {field("type", texts.gpuType)}
        {field("time", texts.timeLimit)}
        <button type="submit" className={ui["button"]}>
          {texts.whenWouldItStart}
        </button>
      </form>
      {answer.isError && <p role="alert">{answer.error.message}</p>}
      {answer.isFetching && <p role="status">{texts.loading}</p>}
      {answer.data && !answer.isError && (
        <div data-testid="queue-asked">
          <p>
            <b>{answer.data.asked.sentence}</b>{" "}
            <span className={ui["muted"]}>{texts.from(answer.data.method)}</span>
          </p>
          <Alternatives rows={answer.data.alternatives} />
        </div>
      )}
    </section>
  );
}

function Alternatives({ rows }: { rows: readonly AskedStart[] }) {
  if (rows.length === 0) return <p className={ui["muted"]}>{texts.nothingSooner}</p>;
  return (
    <ul>
      {rows.map((row) => (
        <li key={`${row.gpus}/${row.gpu_model}/${row.partition}/${row.time_limit_s}`}>
          {texts.alternative(
            formatCount(row.gpus),
            row.gpu_model,
            row.partition,
            formatDuration(row.time_limit_s),
            row.p50_s === null ? texts.cannotTell : formatDuration(row.p50_s),
          )}
        </li>
      ))}
    </ul>
  );
}
