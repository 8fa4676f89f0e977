import { QueryClient, QueryClientProvider, useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { chooseCluster, chosenCluster, inCluster } from "@/api/chosen";
import { getJson } from "@/api/client";
import { connect, liveUrl } from "@/api/live";
import { fetchMoment } from "@/api/moments";
import { fetchCatalogue } from "@/base/catalogue";
import { links } from "@/base/links";
import { LiveSession } from "@/base/live";
import { PageHead } from "@/base/ui/PageHead";
import { Overview } from "@/features/overview/Overview";
import "@/app/app.css";

let session: LiveSession | null = null;
/** The one live session, opened once it is known which cluster it is about. */
const theSession = (): LiveSession => (session ??= new LiveSession((listener) => connect(liveUrl(location), chosenCluster(), listener), fetchMoment));
const listClusters = async () => (await getJson<{ cluster: string }[]>("/clusters")).map((row) => row.cluster);
// A page of its own, with charts that the overview does not need.
const Diagnostics = lazy(async () => ({ default: (await import("@/features/diagnostics/Diagnostics")).Diagnostics }));
const Sources = lazy(async () => ({ default: (await import("@/features/sources/Sources")).Sources }));
const Findings = lazy(async () => ({ default: (await import("@/features/findings/Findings")).Findings }));
const Waste = lazy(async () => ({ default: (await import("@/features/waste/Waste")).Waste }));
const HOUR_MS = 3_600_000;
links.diagnose = (workload, atMs) => inCluster(`/workload?id=${encodeURIComponent(workload)}${atMs ? `&from=${atMs - HOUR_MS}&to=${atMs}&hold=1` : ""}`);

const queries = new QueryClient({ defaultOptions: { queries: { refetchOnWindowFocus: false } } });

/** The whole app: one live session, and the view that the path asks for. */
export function App() {
  return (
    <QueryClientProvider client={queries}>
      <Page />
    </QueryClientProvider>
  );
}

function Page() {
  const cluster = useQuery({ queryKey: ["chosen cluster"], queryFn: () => chooseCluster(location.search, sessionStorage, listClusters), staleTime: Infinity, retry: Infinity, retryDelay: 2000 });
  const catalogue = useQuery({ queryKey: ["catalogue"], queryFn: fetchCatalogue, staleTime: Infinity, retry: Infinity, retryDelay: 2000 });
  if (location.pathname === "/sources")
    return (
      <Suspense fallback={<div className="start" role="status">Marey</div>}>
        <Sources />
      </Suspense>
    );
  if (cluster.data === undefined) return <Start failures={cluster.failureCount} reason={cluster.failureReason} />;
  if (location.pathname === "/findings" || location.pathname === "/waste")
    return (
      <Suspense fallback={<div className="start" role="status">Marey</div>}>
        {location.pathname === "/findings" ? <Findings /> : <Waste />}
      </Suspense>
    );
  if (location.pathname === "/workload") {
    if (!catalogue.data) return <Start failures={catalogue.failureCount} reason={catalogue.failureReason} />;
    return (
      <Suspense fallback={<div className="start" role="status">Marey</div>}>
        <Diagnostics workload={new URLSearchParams(location.search).get("id") ?? ""} catalogue={catalogue.data} />
      </Suspense>
    );
  }
  if (location.pathname !== "/") return <NoSuchPage />;
  if (catalogue.data) return <Overview session={theSession()} catalogue={catalogue.data} />;
  return <Start failures={catalogue.failureCount} reason={catalogue.failureReason} />;
}

function NoSuchPage() {
  return (
    <>
      <PageHead />
      <main className="start" role="alert">
        There is no page {location.pathname.slice(0, 80)}.
      </main>
    </>
  );
}

function Start({ failures, reason }: { failures: number; reason: Error | null }) {
  return (
    <div className="start" role="status">
      {failures > 0 ? `${reason?.message ?? "The server does not answer."} Trying again…` : "Marey"}
    </div>
  );
}
