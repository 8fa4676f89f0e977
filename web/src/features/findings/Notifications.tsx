import { useQuery } from "@tanstack/react-query";
import { getJson } from "@/api/client";
import { formatCount, formatTime } from "@/base/format";
import type { Mute, Notifications } from "@/features/findings/documents";
import { MuteLine } from "@/features/findings/Detail";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/findings/Notifications.module.css";
import { findingsTexts as texts } from "@/texts";

/** Every mute that is kept. */
export function Mutes() {
  const mutes = useQuery({
    queryKey: ["mutes"],
    queryFn: () => getJson<Mute[]>("/mutes"),
  });
  if (!mutes.data || mutes.data.length === 0) return null;
  return (
    <details className={styles["findings-more"]} data-testid="mutes">
      <summary>
        {texts.mutes(formatCount(mutes.data.length), mutes.data.length === 1 ? "" : "s")}
      </summary>
      {mutes.data.map((mute) => (
        <MuteLine key={mute.id} mute={mute} />
      ))}
    </details>
  );
}

/** Who was told of what, and what still waits to be told. */
export function NotificationLog() {
  const deliveries = useQuery({
    queryKey: ["notifications"],
    queryFn: () => getJson<Notifications>("/notifications"),
    refetchInterval: 15_000,
  });
  const data = deliveries.data;
  return (
    <details className={styles["findings-more"]} data-testid="notifications">
      <summary>
        {texts.notifications} {data && <small className={ui["muted"]}>{summary(data)}</small>}
      </summary>
      {deliveries.isError && <p role="alert">{deliveries.error.message}</p>}
      {data && data.log.length === 0 && data.waiting.length === 0 && (
        <p className={ui["muted"]}>
          {texts.nothingSentYet(
            data.receivers.length === 0 ? texts.receiversAreSetInTheConfiguration : "",
          )}
        </p>
      )}
      {data && data.digests.length > 0 && (
        <ul data-testid="planned-digests">
          {data.digests.map((digest, i) => (
            <li key={i}>
              {texts.digestPlanned(digest.subject, digest.when, digest.to.join(", "))}{" "}
              <span className={ui["muted"]}>
                {digest.sent_ms === null
                  ? texts.digestNext(formatTime(digest.next_ms))
                  : texts.digestSent(formatTime(digest.sent_ms), formatTime(digest.next_ms))}
                {digest.error && ` ${digest.error}`}
              </span>
            </li>
          ))}
        </ul>
      )}
      {data?.waiting.map((delivery, i) => (
        <p key={i}>
          {texts.toWaitingAttemptsSoFarNext(
            delivery.receiver,
            formatCount(delivery.notices),
            formatCount(delivery.attempts),
            formatTime(delivery.due_ms),
          )}{" "}
          {delivery.error && <span className={ui["muted"]}>({delivery.error})</span>}
        </p>
      ))}
      {data && data.log.length > 0 && (
        <div className={pageStyles["page-scroll"]}>
          <table className={pageStyles["page-table"]}>
            <thead>
              <tr>
                <th>{texts.when}</th>
                <th>{texts.toWord}</th>
                <th>{texts.what}</th>
                <th>{texts.outcome}</th>
              </tr>
            </thead>
            <tbody>
              {data.log.slice(0, 200).map((entry, i) => (
                <tr key={i}>
                  <td>{formatTime(entry.time_ms)}</td>
                  <td>{entry.receiver}</td>
                  <td>{entry.subject}</td>
                  <td>
                    {entry.outcome}{" "}
                    {entry.error && <span className={ui["muted"]}>{entry.error}</span>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}

function summary({ dry_run, receivers, waiting }: Notifications): string {
  if (receivers.length === 0) return texts.notificationsOffNoReceiversConfigured;
  const to = texts.sentTo(dry_run ? texts.dryRun : "", receivers.join(", "));
  return waiting.length > 0 ? texts.waiting(to, formatCount(waiting.length)) : to;
}
