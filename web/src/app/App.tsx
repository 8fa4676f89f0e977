import { QueryClient, QueryClientProvider, useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { connect, liveUrl } from "@/api/live";
import { fetchMoment } from "@/api/moments";
import { fetchCatalogue } from "@/base/catalogue";
import { links } from "@/base/links";
import { LiveSession } from "@/base/live";
import { Overview } from "@/features/overview/Overview";
import "@/app/app.css";

const session = new LiveSession((listener) => connect(liveUrl(location), "default", listener), fetchMoment);
// A page of its own, with charts that the overview does not need.
const Diagnostics = lazy(async () => ({ default: (await import("@/features/diagnostics/Diagnostics")).Diagnostics }));
const Sources = lazy(async () => ({ default: (await import("@/features/sources/Sources")).Sources }));
const Findings = lazy(async () => ({ default: (await import("@/features/findings/Findings")).Findings }));
const Waste = lazy(async () => ({ default: (await import("@/features/waste/Waste")).Waste }));
const HOUR_MS = 3_600_000;
links.diagnose = (workload, atMs) => `/workload?id=${encodeURIComponent(workload)}${atMs ? `&from=${atMs - HOUR_MS}&to=${atMs}&hold=1` : ""}`;

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
  const catalogue = useQuery({ queryKey: ["catalogue"], queryFn: fetchCatalogue, staleTime: Infinity, retry: Infinity, retryDelay: 2000 });
  if (location.pathname === "/sources")
    return (
      <Suspense fallback={<div className="start" role="status">Marey</div>}>
        <Sources />
      </Suspense>
    );
  if (location.pathname === "/findings" || location.pathname === "/waste")
    return (
      <Suspense fallback={<div className="start" role="status">Marey</div>}>
        {location.pathname === "/findings" ? <Findings /> : <Waste />}
      </Suspense>
    );
  if (catalogue.data && location.pathname === "/workload")
    return (
      <Suspense fallback={<div className="start" role="status">Marey</div>}>
        <Diagnostics workload={new URLSearchParams(location.search).get("id") ?? ""} catalogue={catalogue.data} />
      </Suspense>
    );
  if (catalogue.data) return <Overview session={session} catalogue={catalogue.data} />;
  return (
    <div className="start" role="status">
      {catalogue.failureCount > 0 ? `${catalogue.failureReason?.message ?? "The server does not answer."} Trying again…` : "Marey"}
    </div>
  );
}
