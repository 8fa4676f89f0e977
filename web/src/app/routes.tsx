/**
 * Every page of the app, in the order of the navigation.
 *
 * A new page is one more entry: its path, its name where it stands in the navigation, what it waits for, and the
 * feature that draws it. All but the first screen are loaded when somebody goes there.
 */

import type { ComponentType } from "react";
import { lazy } from "react";
import { useSearch } from "@/base/router";
import type { Catalogue } from "@/base/live/catalogue";
import type { PageEntry } from "@/base/ui/navigation";
import { openSession } from "@/app/session";
import { SignInPage } from "@/features/account/SignIn";
import { Overview } from "@/features/overview/Overview";
import { RuleBar } from "@/features/rules/RuleBar";
import { appTexts as texts } from "@/texts";

const TimeTravel = lazy(async () => ({
  default: (await import("@/features/timetravel/TimeTravel")).TimeTravel,
}));
const Diagnostics = lazy(async () => ({
  default: (await import("@/features/diagnostics/Diagnostics")).Diagnostics,
}));
const Findings = lazy(async () => ({
  default: (await import("@/features/findings/Findings")).Findings,
}));
const Queue = lazy(async () => ({ default: (await import("@/features/queue/Queue")).Queue }));
const Waste = lazy(async () => ({ default: (await import("@/features/waste/Waste")).Waste }));
const Jobs = lazy(async () => ({ default: (await import("@/features/jobs/Jobs")).Jobs }));
const Capacity = lazy(async () => ({
  default: (await import("@/features/capacity/Capacity")).Capacity,
}));
const EntityPage = lazy(async () => ({
  default: (await import("@/features/people/EntityPage")).EntityPage,
}));
const WorkloadFacts = lazy(async () => ({
  default: (await import("@/features/workload/WorkloadFacts")).WorkloadFacts,
}));
const Sources = lazy(async () => ({
  default: (await import("@/features/sources/Sources")).Sources,
}));
const Traces = lazy(async () => ({ default: (await import("@/features/traces/Traces")).Traces }));
const TraceRun = lazy(async () => ({ default: (await import("@/features/traces/run/Run")).Run }));
const Marey = lazy(async () => ({
  default: (await import("@/features/traces/marey/Marey")).Marey,
}));
const Flow = lazy(async () => ({
  default: (await import("@/features/traces/flow/FlowPage")).FlowPage,
}));

const CallGraphs = lazy(async () => ({
  default: (await import("@/features/callgraphs/CallGraphs")).CallGraphs,
}));

const Compare = lazy(async () => ({
  default: (await import("@/features/compare/Compare")).Compare,
}));

const Audit = lazy(async () => ({ default: (await import("@/features/audit/Audit")).Audit }));
const Account = lazy(async () => ({
  default: (await import("@/features/account/Account")).Account,
}));
const People = lazy(async () => ({
  default: (await import("@/features/account/People")).People,
}));

interface Page {
  path: string;
  /** What the browser's tab says; the page itself may know better. */
  title: string;
  /** Where it stands in the navigation: in the bar, behind "More", or nowhere. */
  place: "bar" | "more" | "none";
}

/** A page, and what must be known before it can be shown. */
export type Route = Page &
  (
    | { needs: "nothing" | "cluster"; Page: ComponentType }
    | { needs: "catalogue"; Page: ComponentType<{ catalogue: Catalogue }> }
  );

function OverviewPage({ catalogue }: { catalogue: Catalogue }) {
  return (
    <Overview
      session={openSession()}
      catalogue={catalogue}
      RuleBar={RuleBar}
      TimeTravel={TimeTravel}
    />
  );
}

function WorkloadPage({ catalogue }: { catalogue: Catalogue }) {
  const workload = new URLSearchParams(useSearch()).get("id") ?? "";
  return (
    <Diagnostics
      key={workload}
      workload={workload}
      catalogue={catalogue}
      RuleBar={RuleBar}
      top={<WorkloadFacts id={workload} />}
    />
  );
}

export const ROUTES: readonly Route[] = [
  { path: "/", title: texts.overview, place: "bar", needs: "catalogue", Page: OverviewPage },
  { path: "/jobs", title: texts.jobs, place: "bar", needs: "cluster", Page: Jobs },
  { path: "/queue", title: texts.queue, place: "bar", needs: "cluster", Page: Queue },
  { path: "/capacity", title: texts.capacity, place: "more", needs: "cluster", Page: Capacity },
  { path: "/findings", title: texts.findings, place: "bar", needs: "cluster", Page: Findings },
  { path: "/waste", title: texts.waste, place: "bar", needs: "cluster", Page: Waste },
  { path: "/traces", title: texts.traces, place: "bar", needs: "cluster", Page: Traces },
  { path: "/traces/run", title: texts.trace, place: "none", needs: "cluster", Page: TraceRun },
  { path: "/traces/marey", title: texts.mareyView, place: "none", needs: "cluster", Page: Marey },
  { path: "/traces/flow", title: texts.executionFlow, place: "none", needs: "cluster", Page: Flow },
  { path: "/sources", title: texts.sources, place: "bar", needs: "nothing", Page: Sources },
  { path: "/about", title: texts.about, place: "none", needs: "cluster", Page: EntityPage },
  {
    path: "/callgraphs",
    title: texts.callGraphs,
    place: "more",
    needs: "nothing",
    Page: CallGraphs,
  },
  {
    path: "/compare",
    title: texts.compare,
    place: "more",
    needs: "cluster",
    Page: Compare,
  },
  { path: "/audit", title: texts.audit, place: "none", needs: "nothing", Page: Audit },
  { path: "/account", title: texts.account, place: "none", needs: "nothing", Page: Account },
  { path: "/people", title: texts.people, place: "none", needs: "nothing", Page: People },
  { path: "/sign-in", title: texts.signIn, place: "none", needs: "nothing", Page: SignInPage },
  {
    path: "/workload",
    title: texts.workload,
    place: "none",
    needs: "catalogue",
    Page: WorkloadPage,
  },
];

/** The entries of the navigation. */
export const ENTRIES: readonly PageEntry[] = ROUTES.filter(({ place }) => place !== "none").map(
  ({ path, title, place }) => ({ path, label: title, more: place === "more" }),
);
