import { useQuery } from "@tanstack/react-query";
import { getJson } from "@/api/client";
import { formatCount, formatTime } from "@/base/format";
import type { Mute, Notifications } from "@/features/findings/documents";
import { MuteLine } from "@/features/findings/Detail";

/** Every mute that is kept. */
export function Mutes() {
  const mutes = useQuery({ queryKey: ["mutes"], queryFn: () => getJson<Mute[]>("/mutes"), retry: 1 });
  if (!mutes.data || mutes.data.length === 0) return null;
  return (
    <details className="findings-more" data-testid="mutes">
      <summary>
        {formatCount(mutes.data.length)} mute{mutes.data.length === 1 ? "" : "s"}
      </summary>
      {mutes.data.map((mute) => (
        <MuteLine key={mute.id} mute={mute} />
      ))}
    </details>
  );
}

/** Who was told of what, and what still waits to be told. */
export function NotificationLog() {
  const told = useQuery({ queryKey: ["notifications"], queryFn: () => getJson<Notifications>("/notifications"), refetchInterval: 15_000, retry: 1 });
  const data = told.data;
  return (
    <details className="findings-more" data-testid="notifications">
      <summary>Notifications {data && <small className="muted">{summary(data)}</small>}</summary>
      {told.isError && <p role="alert">{told.error.message}</p>}
      {data && data.log.length === 0 && data.waiting.length === 0 && <p className="muted">Nothing was sent. {data.receivers.length === 0 && "Receivers are named in the configuration ([notify])."}</p>}
      {data?.waiting.map((parcel, i) => (
        <p key={i}>
          To {parcel.receiver}: {formatCount(parcel.notices)} wait{parcel.notices === 1 ? "s" : ""}, tried {formatCount(parcel.attempts)} times, next {formatTime(parcel.due_ms)} {parcel.error && <span className="muted">({parcel.error})</span>}
        </p>
      ))}
      {data && data.log.length > 0 && (
        <div className="page-scroll">
          <table className="page-table">
            <thead>
              <tr>
                <th>When</th>
                <th>To</th>
                <th>What</th>
                <th>Outcome</th>
              </tr>
            </thead>
            <tbody>
              {data.log.slice(0, 200).map((entry, i) => (
                <tr key={i}>
                  <td>{formatTime(entry.time_ms)}</td>
                  <td>{entry.receiver}</td>
                  <td>{entry.subject}</td>
                  <td>
                    {entry.outcome} {entry.error && <span className="muted">{entry.error}</span>}
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
  if (receivers.length === 0) return "nobody is told: no receiver is set up";
  const to = `${dry_run ? "dry run, " : ""}to ${receivers.join(", ")}`;
  return waiting.length > 0 ? `${to}; ${formatCount(waiting.length)} wait` : to;
}
