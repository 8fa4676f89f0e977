import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { Document } from "@/api/documents";
import { getJson, putJson } from "@/api/client";
import type { SourceState } from "@/api/wire";
import { formatDuration, formatTime } from "@/base/format";
import { useLive } from "@/base/live/session";
import { useTheme } from "@/base/theme";
import { SOURCES } from "@/base/addresses";
import { PageLink } from "@/base/ui/PageLink";
import { IconButton, Popover, Select, Toggle } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import { useShared } from "@/features/overview/context";
import { useMay } from "@/base/account";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/overview/Status.module.css";
import { overviewTexts as texts } from "@/texts";

/** Whether the picture is live: the connection, a hold, sources that went silent. */
export function Status({
  timeline: open,
  onTimeline,
}: {
  timeline: boolean;
  onTimeline: (open: boolean) => void;
}) {
  const { session } = useShared();
  const live = useLive();
  const now = useNow();
  const stale = live.sources.filter((source) => source.state === "stale");
  return (
    <div className={styles["status"]}>
      {live.connection !== "open" && (
        <span
          className={`${styles["pill"]} ${styles["alert"]}`}
          role="alert"
          data-testid="connection"
        >
          {live.ready
            ? texts.connectionLostAgoReconnecting(formatDuration((now - live.arrivedMs) / 1000))
            : texts.connecting}
        </span>
      )}
      {stale.length > 0 && (
        <PageLink
          className={`${styles["pill"]} ${styles["warn"]}`}
          role="alert"
          href={SOURCES}
          title={stale.map((source) => `${source.name}: ${source.error ?? ""}`).join("\n")}
        >
          {staleWords(stale)}
        </PageLink>
      )}
      {live.connection === "open" && !live.hold && live.at === null && stale.length === 0 && (
        <Popover
          label={texts.sources}
          align="end"
          trigger={
            <button
              type="button"
              className={`${styles["pill"]} ${styles["live"]}`}
              data-testid="live"
            >
              <i /> {texts.live}{" "}
              {live.timeMs > 0 && (
                <time dateTime={new Date(live.timeMs).toISOString()}>
                  {formatTime(live.timeMs)}
                </time>
              )}
              {live.speed !== 1 && <span>{live.speed}×</span>}
            </button>
          }
        >
          <Sources />
        </Popover>
      )}
      {live.at !== null && (
        <span className={`${styles["pill"]} ${styles["warn"]}`} data-testid="past">
          {texts.past(formatTime(live.timeMs))}
        </span>
      )}
      {live.hold && live.at === null && (
        <span className={`${styles["pill"]} ${styles["warn"]}`} data-testid="held">
          {texts.pausedAt(formatTime(live.timeMs))}
        </span>
      )}
      {live.at === null && (
        <IconButton
          icon={live.hold ? "play" : "pause"}
          label={live.hold ? texts.resume : texts.pause}
          pressed={live.hold}
          onClick={() => session.setHold(!live.hold)}
        />
      )}
      <IconButton
        icon="clock"
        label={open ? texts.closeTimeTravel : texts.timeTravel}
        pressed={open}
        onClick={() => onTimeline(!open)}
        data-testid="time-travel"
      />
    </div>
  );
}

/** The one that is silent, or how many are. */
function staleWords(stale: readonly SourceState[]): string {
  const [first] = stale;
  if (!first || stale.length > 1) return texts.sourcesAreStale(stale.length);
  return texts.noData(
    first.name,
    first.age_ms === null || first.age_ms === undefined
      ? texts.yet
      : texts.forWord(formatDuration(first.age_ms / 1000)),
  );
}

function Sources() {
  const sources = useLive((state) => state.sources);
  return (
    <div className={ui["settings"]}>
      <h3>{texts.sources}</h3>
      <table>
        <tbody>
          {sources.map((source) => (
            <tr key={source.name}>
              <th scope="row">{source.name}</th>
              <td>{source.state}</td>
              <td>
                {source.age_ms === null || source.age_ms === undefined
                  ? texts.noDataYet
                  : texts.ago(formatDuration(source.age_ms / 1000))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <PageLink className={ui["link"]} href={SOURCES}>
        {texts.sourceDetails}
      </PageLink>
    </div>
  );
}

function useNow(): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

export function ThemeButton() {
  const { theme, setTheme } = useTheme();
  const other = theme === "dark" ? "light" : "dark";
  return (
    <IconButton
      icon={theme === "dark" ? "sun" : "moon"}
      label={texts.switchToTheme(other)}
      onClick={() => setTheme(other)}
    />
  );
}

type Simulation = Document<"SimulationState">;

/** The simulated scheduler's policy, switched while it runs; only a demo has it. */
export function Policy() {
  const client = useQueryClient();
  const simulation = useQuery({
    queryKey: ["simulation"],
    queryFn: () => getJson<Document<"SimulationState"> | null>("/simulation"),
    staleTime: 60_000,
  });
  const [said, setSaid] = useState("");
  const mayOperate = useMay("operate");
  const now = simulation.data;
  if (!now) return null;
  if (!mayOperate)
    return (
      <span className={`${styles["pill"]} ${styles["policy"]}`}>
        {now.policy.replaceAll("_", " ")} · {now.placement.replaceAll("_", " ")}
      </span>
    );
  const change = async (part: Partial<Simulation>) => {
    try {
      client.setQueryData(["simulation"], await putJson<Simulation>("/simulation", part));
      setSaid(texts.changed);
    } catch (error) {
      setSaid(error instanceof Error ? error.message : texts.theChangeFailed);
    }
  };
  const options = (listed: string[] | undefined, present: string) =>
    [...new Set([...(listed ?? []), present])].map((value) => ({
      value,
      label: value.replaceAll("_", " "),
    }));
  return (
    <Popover
      label={texts.demoScheduler}
      align="end"
      trigger={
        <button
          type="button"
          className={`${styles["pill"]} ${styles["policy"]}`}
          data-testid="policy"
        >
          {now.policy.replaceAll("_", " ")} · {now.placement.replaceAll("_", " ")}{" "}
          <Icon name="down" size={12} />
        </button>
      }
    >
      <div className={ui["settings"]}>
        <h3>{texts.demoScheduler}</h3>
        <Select
          label={texts.policy}
          value={now.policy}
          options={options(now.policies, now.policy)}
          onChange={(policy) => void change({ policy })}
        />
        <Select
          label={texts.placement}
          value={now.placement}
          options={options(now.placements, now.placement)}
          onChange={(placement) => void change({ placement })}
        />
        <Toggle
          label={texts.backfill}
          checked={now.backfill}
          onChange={(backfill) => void change({ backfill })}
        />
        <Select
          label={texts.speed}
          value={String(now.speed)}
          options={options(["1", "10", "60", "300", "1000"], String(now.speed)).map((one) => ({
            ...one,
            label: `${one.label}×`,
          }))}
          onChange={(speed) => void change({ speed: Number(speed) })}
        />
        <p role="status" className={ui["said"]}>
          {said}
        </p>
      </div>
    </Popover>
  );
}
