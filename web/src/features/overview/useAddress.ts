/** Keeps the address and the state of the overview in step, both ways. */

import { useEffect } from "react";
import { navigate } from "@/base/router";
import { inCluster } from "@/api/chosen";
import { getJson } from "@/api/client";
import type { LiveSession } from "@/base/live/session";
import { useLive } from "@/base/live/session";
import type { View } from "@/charts/units/view";
import { parseView } from "@/charts/units/view";
import { presetView } from "@/features/overview/views/presets";
import { urlState, useOverview } from "@/features/overview/store";
import { printUrl, readUrl } from "@/features/overview/url";
import { overviewTexts as texts } from "@/texts";

const SAVED = "saved:";

/** Where the panel would lie over the canvas it is shown on demand only. */
const isRoomy = (): boolean => matchMedia("(width >= 900px)").matches;

/** Apply an address to the state; a saved view is fetched. */
export async function applyAddress(search: string, session: LiveSession): Promise<void> {
  const { state, problems } = readUrl(search, isRoomy());
  let viewName = state.viewName ?? (state.view ? null : "everything");
  let view: View | null = state.view;
  if (!view && viewName?.startsWith(SAVED)) {
    try {
      view = parseView(await getJson(`/views/${encodeURIComponent(viewName.slice(SAVED.length))}`));
    } catch (error) {
      problems.push(
        texts.theViewCouldNotBeOpened(
          viewName.slice(SAVED.length),
          error instanceof Error ? error.message : "",
        ),
      );
    }
  } else if (!view && viewName) {
    view = presetView(viewName, state.me);
    if (!view) problems.push(texts.thereIsNoViewNamed(viewName.slice(0, 60)));
  }
  if (!view) {
    viewName = "everything";
    view = presetView(viewName, state.me) as View;
  }
  const { selection, camera, me, panel } = state;
  useOverview.setState({
    viewName,
    view,
    edited: state.view !== null,
    selection,
    camera,
    me,
    panel,
    problems,
  });
  if (useLive.getState().hold !== state.hold) session.setHold(state.hold);
  if (useLive.getState().at !== state.at) void session.travel(state.at);
}

/** Steps that deserve an entry in the history; moving the camera, or on through the past, does not. */
function historyKey(): string {
  const state = urlState(useLive.getState());
  return printUrl({ ...state, camera: null, at: state.at === null ? null : 0 }, isRoomy());
}

/** Write every change into the address, and read it back on back and forward. */
export function useAddress(session: LiveSession): void {
  useEffect(() => {
    const path = location.pathname;
    let key = historyKey();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let applying = false;
    let writing = false;
    const write = () => {
      if (applying) return;
      const address = inCluster(
        location.pathname + printUrl(urlState(useLive.getState()), isRoomy()),
      );
      if (address === location.pathname + location.search) return;
      const next = historyKey();
      writing = true;
      navigate(address, { replace: next === key });
      writing = false;
      key = next;
    };
    const later = () => {
      clearTimeout(timer);
      // Dragging a slider is one step, not fifty.
      timer = setTimeout(write, 250);
    };
    const read = () => {
      // What others write: back, forward, and links to the overview itself; not the way to another page.
      if (writing || location.pathname !== path) return;
      clearTimeout(timer);
      applying = true;
      void applyAddress(location.search, session).finally(() => {
        applying = false;
        key = historyKey();
      });
    };
    const stopOverview = useOverview.subscribe((now, before) => {
      const same =
        now.view === before.view &&
        now.viewName === before.viewName &&
        now.selection === before.selection &&
        now.camera === before.camera &&
        now.me === before.me &&
        now.panel === before.panel;
      if (!same) later();
    });
    const stopLive = useLive.subscribe((now, before) => {
      if (now.hold !== before.hold || now.at !== before.at) later();
    });
    window.addEventListener("popstate", read);
    window.addEventListener("pushState", read);
    return () => {
      clearTimeout(timer);
      stopOverview();
      stopLive();
      window.removeEventListener("popstate", read);
      window.removeEventListener("pushState", read);
    };
  }, [session]);
}
