/** Call graphs as an ensemble: which rank, which step, which run, and what changed. */

import { useMemo } from "react";
import { useMay } from "@/base/account";
import { usePageState } from "@/base/router";
import { formatAmount } from "@/base/times";
import { PageHead } from "@/base/ui/PageHead";
import { profileLabel } from "@/charts/sankey/figures";
import type { PageState } from "@/features/callgraphs/address";
import { printAddress, readAddress } from "@/features/callgraphs/address";
import { DifferencePanel } from "@/features/callgraphs/DifferencePanel";
import { HistogramPanel, MapPanel } from "@/features/callgraphs/ProfilePanels";
import { QueryPanel } from "@/features/callgraphs/QueryPanel";
import type { Ensemble } from "@/features/callgraphs/queries";
import {
  useDifference,
  useEnsemble,
  useMap,
  useSankey,
  useScaling,
  useSelection,
  useSources,
  useTree,
} from "@/features/callgraphs/queries";
import { SankeyPanel } from "@/features/callgraphs/SankeyPanel";
import { ScalingPanel } from "@/features/callgraphs/ScalingPanel";
import { SourcesPanel } from "@/features/callgraphs/SourcesPanel";
import { IciclePanel, ScatterPanel, treeOf } from "@/features/callgraphs/TreePanels";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/callgraphs/CallGraphs.module.css";
import { callGraphTexts as texts } from "@/texts";

const MOST_SUSPECTS = 5;

export function CallGraphs() {
  const [state, setState] = usePageState(readAddress, printAddress);
  const set = (change: Partial<PageState>) => setState((now) => ({ ...now, ...change }));
  const maySend = useMay("contribute");
  const sources = useSources();
  const sankey = useSankey(state);
  const tree = useTree(state);
  const ensemble = useEnsemble(state);
  const map = useMap(state);
  const difference = useDifference(state);
  const selection = useSelection(state);
  const scaling = useScaling(state);
  const callTree = useMemo(() => (tree.data ? treeOf(tree.data) : null), [tree.data]);
  const chosen = state.sources.length > 0;
  const failed = [sources, sankey, tree, ensemble, map, difference, selection, scaling].find(
    (one) => one.isError,
  );
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={pageStyles["page-body"]}>
        <h1>{texts.title}</h1>
        <p className={ui["muted"]}>{texts.about}</p>
        <SourcesPanel sources={sources.data ?? []} sankey={sankey.data} state={state} set={set} />
        {failed?.error && (
          <p className={pageStyles["page-notice"]} role="alert">
            {failed.error.message}
          </p>
        )}
        {!chosen && (
          <p className={pageStyles["page-notice"]} role="status" data-testid="nothing-chosen">
            {maySend ? texts.chooseSources : texts.chooseAmongSources}
          </p>
        )}
        {chosen && sankey.isPending && !failed && (
          <p className={pageStyles["page-notice"]} role="status">
            {texts.reading}
          </p>
        )}
        {chosen && ensemble.data && <Suspects ensemble={ensemble.data} set={set} />}
        {chosen && state.against.length > 0 && difference.data && (
          <DifferencePanel difference={difference.data} set={set} />
        )}
        {chosen && sankey.data && <SankeyPanel sankey={sankey.data} state={state} set={set} />}
        {chosen && callTree && <IciclePanel tree={callTree} state={state} set={set} />}
        {chosen && <QueryPanel state={state} set={set} />}
        {chosen && (
          <div className={styles["columns"]}>
            {sankey.data && (
              <HistogramPanel
                sankey={sankey.data}
                selection={state.path.length > 0 ? selection.data : undefined}
                state={state}
              />
            )}
            {callTree && <ScatterPanel tree={callTree} state={state} set={set} />}
            {map.data && map.data.profiles.length > 2 && (
              <MapPanel map={map.data} state={state} set={set} />
            )}
          </div>
        )}
        {chosen && scaling.data && <ScalingPanel scaling={scaling.data} state={state} set={set} />}
      </main>
    </div>
  );
}

/** Who stands out, in words. */
function Suspects({
  ensemble,
  set,
}: {
  ensemble: Ensemble;
  set: (change: Partial<PageState>) => void;
}) {
  const { suspects, unit, count, notes } = ensemble;
  return (
    <section className={styles["panel"]} aria-label={texts.whoStandsOut} data-testid="suspects">
      <h2>{texts.whoStandsOut}</h2>
      <p className={ui["muted"]}>{texts.united(count.nodes, count.profiles)}</p>
      {suspects.length === 0 && <p role="status">{texts.nobody}</p>}
      <ul>
        {suspects.slice(0, MOST_SUSPECTS).map((one) => (
          <li key={`${one.profile} ${one.path.join("\u0000")}`}>
            <button
              type="button"
              className={ui["link"]}
              onClick={() => set({ path: one.path, module: "", target: String(one.profile) })}
            >
              {profileLabel(one)}
            </button>
            {": "}
            {texts.reasons[one.reason](
              one.path.slice(-2).join(" › "),
              formatAmount(one.value, unit),
              formatAmount(one.typical, unit),
            )}
          </li>
        ))}
      </ul>
      {notes.length > 0 && <p className={ui["muted"]}>{notes.join(" · ")}</p>}
    </section>
  );
}
