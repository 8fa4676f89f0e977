import type { ComponentType } from "react";
import { Suspense, useEffect, useMemo, useState } from "react";
import type { Catalogue } from "@/base/live/catalogue";
import { useLive } from "@/base/live/session";
import type { LiveSession } from "@/base/live/session";
import { useCurrentUser, workingName } from "@/base/account";
import { AccountMenu } from "@/base/ui/AccountMenu";
import { ClusterPicker } from "@/base/ui/ClusterPicker";
import { IconButton } from "@/base/ui/controls";
import type { RuleBarComponent } from "@/base/verdicts/ruleBar";
import { Logo, Nav } from "@/base/ui/PageHead";
import { Canvas } from "@/features/overview/drawing/Canvas";
import type { OverviewContext } from "@/features/overview/context";
import { Context } from "@/features/overview/context";
import { FilterPanel } from "@/features/overview/panels/FilterPanel";
import { InfoCard } from "@/features/overview/card/InfoCard";
import { LayersPanel } from "@/features/overview/panels/LayersPanel";
import { Legend } from "@/features/overview/panels/Legend";
import { Numbers, ZoomButtons } from "@/features/overview/Numbers";
import { Rules } from "@/features/overview/Rules";
import { Search } from "@/features/overview/Search";
import { Policy, Status, ThemeButton } from "@/features/overview/Status";
import { chooseMe, editView, useOverview } from "@/features/overview/store";
import { applyAddress, useAddress } from "@/features/overview/useAddress";
import styles from "@/features/overview/Overview.module.css";
import ui from "@/base/ui/ui.module.css";
import { overviewTexts as texts } from "@/texts";

/** What other features put into the first screen. */
export interface OverviewParts {
  RuleBar: RuleBarComponent;
  TimeTravel: ComponentType<{ session: LiveSession; onClose: () => void }>;
}

/** The first screen: the whole cluster on one canvas. */
export function Overview({
  session,
  catalogue,
  RuleBar,
  TimeTravel,
}: OverviewParts & { session: LiveSession; catalogue: Catalogue }) {
  const shared = useMemo<OverviewContext>(
    () => ({
      session,
      ...catalogue,
      attributes: new Map(catalogue.attributes),
      engine: { current: null },
    }),
    [session, catalogue],
  );
  const name = workingName(useCurrentUser().data);
  useEffect(() => {
    if (name !== "") chooseMe(name);
  }, [name]);
  const [ready, setReady] = useState(false);
  useEffect(() => {
    void applyAddress(location.search, session).then(() => setReady(true));
  }, [session]);
  useAddress(session);
  const panel = useOverview((state) => state.panel);
  const past = useLive((state) => state.at !== null);
  const [wanted, setTimeline] = useState(false);
  // A wallboard shows the numbers and the canvas alone; the address is rewritten as people click.
  const [wall] = useState(() => new URLSearchParams(location.search).get("wall") === "1");
  const timeline = wanted || past;
  if (!ready) return null;
  return (
    <Context.Provider value={shared}>
      <div className={styles["overview"]} data-wall={wall || undefined}>
        <header className={styles["top"]} hidden={wall}>
          <h1 className={ui["visually-hidden"]}>{texts.clusterOverview}</h1>
          <Logo />
          <Nav />
          <ClusterPicker />
          <Search />
          <Policy />
          <Status timeline={timeline} onTimeline={setTimeline} />
          <IconButton
            icon="panel"
            label={panel ? texts.hidePanel : texts.showPanel}
            pressed={panel}
            onClick={() => useOverview.setState({ panel: !panel })}
          />
          <ThemeButton />
          <AccountMenu />
        </header>
        <Numbers />
        {!wall && <Rules RuleBar={RuleBar} />}
        <div className={styles["body"]}>
          {panel && !wall && (
            <div className={styles["panel"]}>
              <Legend floating={false} />
              <LayersPanel />
              <FilterPanel />
            </div>
          )}
          <main className={styles["stage"]}>
            <div className={styles["picture"]}>
              <Canvas />
            </div>
            {(!panel || wall) && <Legend floating />}
            {!wall && <ZoomButtons />}
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

const NO_GPUS = texts.noGpusYetTheyAppearHere;
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
    if (connection === "lost")
      return (
        <div className={styles["empty-state"]} data-testid="empty-state">
          {texts.theServerIsNotRespondingRetrying}
        </div>
      );
    return (
      <div className={styles["empty-state"]} data-testid="empty-state">
        {patient ? <span className={styles["loading"]}>{texts.loadingTheCluster}</span> : NO_GPUS}
      </div>
    );
  }
  if (!drawn || drawn.shown > 0) return null;
  const personal = view.filter.some(
    (condition) => "field" in condition && condition.field === "user" && condition.value === "",
  );
  if (personal && me === "")
    return (
      <div className={styles["empty-state"]} data-testid="empty-state">
        <AskName />
      </div>
    );
  if (drawn.total === 0)
    return (
      <div className={styles["empty-state"]} data-testid="empty-state">
        {view.units === "waiting" ? texts.nothingIsWaiting : NO_GPUS}
      </div>
    );
  return (
    <div className={styles["empty-state"]} data-testid="empty-state">
      {texts.noUnitsMatchTheFilter}
      <button className={ui["button"]} type="button" onClick={() => editView({ filter: [] })}>
        {texts.clearFilter}
      </button>
    </div>
  );
}

/** Asks who is looking, where the answer is needed. */
function AskName() {
  const [name, setName] = useState("");
  return (
    <form
      className={styles["ask"]}
      onSubmit={(event) => {
        event.preventDefault();
        if (name.trim() !== "") chooseMe(name.trim());
      }}
    >
      <label htmlFor="ask-me">{texts.yourUserName}</label>
      <input
        id="ask-me"
        data-testid="ask-me"
        autoComplete="username"
        value={name}
        onChange={(event) => setName(event.target.value)}
      />
      <button type="submit" className={`${ui["button"]} ${ui["primary"]}`}>
        {texts.showMyWork}
      </button>
    </form>
  );
}

function Problems() {
  const problems = useOverview((state) => state.problems);
  if (problems.length === 0) return null;
  return (
    <div className={styles["problems"]} data-testid="problems" role="alert">
      {problems.map((problem) => (
        <p key={problem}>{problem}</p>
      ))}
      <IconButton
        icon="close"
        label={texts.dismiss}
        onClick={() => useOverview.setState({ problems: [] })}
      />
    </div>
  );
}
