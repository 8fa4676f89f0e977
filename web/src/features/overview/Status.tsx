import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { ApiError, getJson, putJson } from "@/api/client";
import type { SourceState } from "@/api/wire";
import { formatDuration, formatTime } from "@/base/format";
import { useLive } from "@/base/live";
import { useTheme } from "@/base/theme";
import { IconButton, Popover, Select, Toggle } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import { useShared } from "@/features/overview/context";

/** Whether the picture is live: the connection, a hold, sources that went silent. */
export function Status({ timeline: open, onTimeline }: { timeline: boolean; onTimeline: (open: boolean) => void }) {
  const { session } = useShared();
  const live = useLive();
  const now = useNow();
  const stale = live.sources.filter((source) => source.state === "stale");
  return (
    <div className="status">
      {live.connection !== "open" && (
        <span className="pill alert" role="alert" data-testid="connection">
          {live.ready ? `Connection lost ${formatDuration((now - live.arrivedMs) / 1000)} ago; trying again` : "Connecting…"}
        </span>
      )}
      {stale.length > 0 && (
        <a className="pill warn" role="alert" href="/sources" title={stale.map((source) => `${source.name}: ${source.error ?? ""}`).join("\n")}>
          {staleWords(stale)}
        </a>
      )}
      {live.connection === "open" && !live.hold && live.at === null && stale.length === 0 && (
        <Popover
          label="Sources"
          align="end"
          trigger={
            <button type="button" className="pill live" data-testid="live">
              <i /> live {live.timeMs > 0 && <time dateTime={new Date(live.timeMs).toISOString()}>{formatTime(live.timeMs)}</time>}
              {live.speed !== 1 && <span>{live.speed}×</span>}
            </button>
          }
        >
          <Sources />
        </Popover>
      )}
      {live.at !== null && (
        <span className="pill warn" data-testid="past">
          past: {formatTime(live.timeMs)}
        </span>
      )}
      {live.hold && live.at === null && (
        <span className="pill warn" data-testid="held">
          held at {formatTime(live.timeMs)}
        </span>
      )}
      {live.at === null && <IconButton icon={live.hold ? "play" : "pause"} label={live.hold ? "Go on live" : "Hold the picture"} pressed={live.hold} onClick={() => session.setHold(!live.hold)} />}
      <IconButton icon="clock" label={open ? "Close the timeline" : "Travel in time"} pressed={open} onClick={() => onTimeline(!open)} data-testid="time-travel" />
    </div>
  );
}

/** The one that is silent, or how many are. */
function staleWords(stale: readonly SourceState[]): string {
  const [first] = stale;
  if (!first || stale.length > 1) return `${stale.length} sources are stale`;
  return `${first.name}: nothing new ${first.age_ms === null || first.age_ms === undefined ? "yet" : `for ${formatDuration(first.age_ms / 1000)}`}`;
}

function Sources() {
  const sources = useLive((state) => state.sources);
  return (
    <div className="settings">
      <h3>Sources</h3>
      <table>
        <tbody>
          {sources.map((source) => (
            <tr key={source.name}>
              <th scope="row">{source.name}</th>
              <td>{source.state}</td>
              <td>{source.age_ms === null || source.age_ms === undefined ? "never heard of" : `${formatDuration(source.age_ms / 1000)} ago`}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <a className="link" href="/sources">
        More about the sources
      </a>
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
  return <IconButton icon={theme === "dark" ? "sun" : "moon"} label={`Use the ${other} theme`} onClick={() => setTheme(other)} />;
}

interface Simulation {
  policy: string;
  placement: string;
  backfill: boolean;
  speed: number;
  policies?: string[];
  placements?: string[];
  allowed?: { policy?: string[]; placement?: string[] };
}

/** The simulated scheduler's policy, switched while it runs; only a demo has it. */
export function Policy() {
  const client = useQueryClient();
  const simulation = useQuery({
    queryKey: ["simulation"],
    queryFn: () => getJson<Simulation>("/simulation").catch((error: unknown) => (error instanceof ApiError ? null : Promise.reject(error as Error))),
    staleTime: 60_000,
  });
  const [said, setSaid] = useState("");
  const now = simulation.data;
  if (!now) return null;
  const change = async (part: Partial<Simulation>) => {
    try {
      client.setQueryData(["simulation"], await putJson<Simulation>("/simulation", part));
      setSaid("Switched.");
    } catch (error) {
      setSaid(error instanceof Error ? error.message : "It could not be switched.");
    }
  };
  const options = (listed: string[] | undefined, present: string) => [...new Set([...(listed ?? []), present])].map((value) => ({ value, label: value.replaceAll("_", " ") }));
  return (
    <Popover
      label="Scheduler of the demo"
      align="end"
      trigger={
        <button type="button" className="pill" data-testid="policy">
          {now.policy.replaceAll("_", " ")} · {now.placement.replaceAll("_", " ")} <Icon name="down" size={12} />
        </button>
      }
    >
      <div className="settings">
        <h3>Scheduler of the demo</h3>
        <Select label="Policy" value={now.policy} options={options(now.allowed?.policy ?? now.policies, now.policy)} onChange={(policy) => void change({ policy })} />
        <Select label="Placement" value={now.placement} options={options(now.allowed?.placement ?? now.placements, now.placement)} onChange={(placement) => void change({ placement })} />
        <Toggle label="Backfill" checked={now.backfill} onChange={(backfill) => void change({ backfill })} />
        <Select label="Speed" value={String(now.speed)} options={options(["1", "10", "60", "300", "1000"], String(now.speed)).map((one) => ({ ...one, label: `${one.label}×` }))} onChange={(speed) => void change({ speed: Number(speed) })} />
        <p role="status" className="said">
          {said}
        </p>
      </div>
    </Popover>
  );
}
