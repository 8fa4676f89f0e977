import { QueryClient, QueryClientProvider, useQuery } from "@tanstack/react-query";
import { connect, liveUrl } from "@/api/live";
import { fetchCatalogue } from "@/base/catalogue";
import { LiveSession } from "@/base/live";
import { Overview } from "@/features/overview/Overview";
import "@/app/app.css";

const session = new LiveSession((listener) => connect(liveUrl(location), "default", listener));
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
  if (catalogue.data) return <Overview session={session} catalogue={catalogue.data} />;
  return (
    <div className="start" role="status">
      {catalogue.failureCount > 0 ? `${catalogue.failureReason?.message ?? "The server does not answer."} Trying again…` : "Marey"}
    </div>
  );
}
