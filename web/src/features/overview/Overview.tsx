import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import type { Catalogue } from "@/base/catalogue";
import { useLive } from "@/base/live";
import type { LiveSession } from "@/base/live";
import { ClusterPicker } from "@/base/ui/ClusterPicker";
import { IconButton } from "@/base/ui/controls";
import { Logo, Nav } from "@/base/ui/PageHead";
import { Canvas } from "@/features/overview/Canvas";
import type { OverviewContext } from "@/features/overview/context";
import { Context } from "@/features/overview/context";
import { FilterPanel } from "@/features/overview/FilterPanel";
import { InfoCard } from "@/features/overview/InfoCard";
import { LayersPanel } from "@/features/overview/LayersPanel";
import { Legend } from "@/features/overview/Legend";
import { Numbers } from "@/features/overview/Numbers";
import { Rules } from "@/features/overview/Rules";
import { Search } from "@/features/overview/Search";
import { Policy, Status, ThemeButton } from "@/features/overview/Status";
import { editView, useOverview } from "@/features/overview/store";
import { applyAddress, useAddress } from "@/features/overview/useAddress";
import { ViewPicker } from "@/features/overview/ViewPicker";
import "@/base/ui/pages.css";
import "@/features/overview/overview.css";

const TimeTravel = lazy(async () => ({ default: (await import("@/features/timetravel/TimeTravel")).TimeTravel }));

/** The first screen: the whole cluster on one canvas. */
export function Overview({ session, catalogue }: { session: LiveSession; catalogue: Catalogue }) {
  const shared = useMemo<OverviewContext>(() => ({ session, ...catalogue, attributes: new Map(catalogue.attributes), engine: { current: null } }), [session, catalogue]);
  const [ready, setReady] = useState(false);
  useEffect(() => {
    void applyAddress(location.search, session).then(() => setReady(true));
  }, [session]);
  useAddress(session);
  const panel = useOverview((state) => state.panel);
  const past = useLive((state) => state.at !== null);
  const [wanted, setTimeline] = useState(false);
  const timeline = wanted || past;
  if (!ready) return null;
  return (
    <Context.Provider value={shared}>
      <div className="overview">
        <header className="top">
          <Logo />
          <Nav />
          <ClusterPicker />
          <ViewPicker />
          <Search />
          <Policy />
          <Status timeline={timeline} onTimeline={setTimeline} />
          <IconButton icon="panel" label={panel ? "Hide the panel" : "Show the panel"} pressed={panel} onClick={() => useOverview.setState({ panel: !panel })} />
          <ThemeButton />
        </header>
        <Numbers />
        <Rules />
        <div className="body">
          {panel && (
            <div className="panel">
              <Legend floating={false} />
              <LayersPanel />
              <FilterPanel />
            </div>
          )}
          <main className="stage">
            <Canvas />
            {!panel && <Legend floating />}
            <Emptiness />
            <Problems />
          </main>
          <InfoCard />
        </div>
        {timeline && (
          <Suspense fallback={null}>
            <TimeTravel session={session} onClose={() => setTimeline(false)} />
          </Suspense>
        )}
      </div>
    </Context.Provider>
  );
}

const NO_GPUS = "This cluster has no GPUs yet. They appear here as soon as a source reports them.";
const PATIENCE_MS = 2_500;

/** False once something has been waited for too long. */
function usePatience(waiting: boolean): boolean {
  const [patient, setPatient] = useState(true);
  useEffect(() => {
    if (!waiting) return;
    const timer = setTimeout(() => setPatient(false), PATIENCE_MS);
    return () => clearTimeout(timer);
  }, [waiting]);
  return patient || !waiting;
}

/** Says why there is nothing to see, and the way out. */
function Emptiness() {
  const drawn = useOverview((state) => state.drawn);
  const view = useOverview((state) => state.view);
  const me = useOverview((state) => state.me);
  const { ready, connection } = useLive();
  const patient = usePatience(connection === "open" && !ready);
  if (!ready) {
    if (connection === "lost") return <div className="empty-state">The server does not answer. Trying again…</div>;
    return <div className="empty-state">{patient ? <span className="loading">Reading the cluster…</span> : NO_GPUS}</div>;
  }
  if (!drawn || drawn.shown > 0) return null;
  const personal = view.filter.some((condition) => "field" in condition && condition.field === "user" && condition.value === "");
  if (personal && me === "") return <div className="empty-state">Say who you are: open the views, and type your user name under “My work”.</div>;
  if (drawn.total === 0) return <div className="empty-state">{view.units === "waiting" ? "Nothing waits." : NO_GPUS}</div>;
  return (
    <div className="empty-state">
      Nothing passes the filter.
      <button type="button" onClick={() => editView({ filter: [] })}>
        Remove the filter
      </button>
    </div>
  );
}

function Problems() {
  const problems = useOverview((state) => state.problems);
  if (problems.length === 0) return null;
  return (
    <div className="problems" role="alert">
      {problems.map((problem) => (
        <p key={problem}>{problem}</p>
      ))}
      <IconButton icon="close" label="Dismiss" onClick={() => useOverview.setState({ problems: [] })} />
    </div>
  );
}
