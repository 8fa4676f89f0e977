import { useQuery } from "@tanstack/react-query";
import { getJson } from "@/api/client";
import { entityAddress } from "@/base/addresses";
import { PageLink } from "@/base/ui/PageLink";
import type { HostPerformance } from "@/features/queue/line";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/queue/Queue.module.css";
import { queueTexts as texts } from "@/texts";

/** Hosts whose runs are persistently slower, and what else explains run times. */
export function SlowHosts() {
  const found = useQuery({
    queryKey: ["queue-performance"],
    queryFn: ({ signal }) => getJson<HostPerformance>("/queue-performance", undefined, signal),
    staleTime: 300_000,
    retry: 0,
  });
  return (
    <section className={styles["section"]} aria-label={texts.slowHosts}>
      <h2>{texts.slowHosts}</h2>
      <p className={ui["muted"]}>{texts.slowHostsIntro}</p>
      {found.isError && <p role="alert">{found.error.message}</p>}
      {found.isPending && !found.isError && <p role="status">{texts.loading}</p>}
      {found.data && (
        <div data-testid="queue-hosts">
          {found.data.slow_hosts.length === 0 && <p>{texts.noSlowHosts}</p>}
          <ul>
            {found.data.slow_hosts.map((row) => (
              <li key={row.host}>
                <PageLink href={entityAddress("host", row.host)}>{row.host}</PageLink>{" "}
                {texts.slowerBy(Math.round(row.slower * 100))}
              </li>
            ))}
          </ul>
          <p className={ui["muted"]}>{found.data.sentence}</p>
        </div>
      )}
    </section>
  );
}
