import { QueryClient, QueryClientProvider, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Suspense, useEffect } from "react";
import { Route as At, Router, Switch } from "wouter";
import { usePathname } from "@/base/router";
import { chooseCluster } from "@/api/chosen";
import type { Document } from "@/api/documents";
import { ApiError, getJson } from "@/api/client";
import { PREFIX, withoutPrefix } from "@/api/prefix";
import { PageBoundary } from "@/app/PageBoundary";
import type { Route } from "@/app/routes";
import { ENTRIES, ROUTES } from "@/app/routes";
import { useCurrentUser } from "@/base/account";
import { fetchCatalogue } from "@/base/live/catalogue";
import { PagesContext } from "@/base/ui/navigation";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import { SignIn } from "@/features/account/SignIn";
import { CommandPalette } from "@/features/search/CommandPalette";
import "@/app/app.css";
import styles from "@/app/App.module.css";
import ui from "@/base/ui/ui.module.css";
import { appTexts as texts } from "@/texts";

const listClusters = async () =>
  (await getJson<Document<"ClusterSpan">[]>("/clusters")).map((row) => row.cluster);

/** What the server refuses it refuses again: only a server that does not answer is asked once more. */
function retryUnlessRefused(failures: number, error: Error): boolean {
  return !isRefused(error) && failures < 3;
}

/** The app cannot begin without these: it waits for a server that does not answer. */
const retryForever = (_failures: number, error: Error): boolean => !isRefused(error);

function isRefused(error: Error): boolean {
  return error instanceof ApiError && error.status >= 400 && error.status < 500;
}

const queries = new QueryClient({
  defaultOptions: {
    queries: { refetchOnWindowFocus: false, retry: retryUnlessRefused, staleTime: 2_000 },
  },
});

/** The whole app: the page that the path asks for. */
export function App() {
  return (
    <QueryClientProvider client={queries}>
      <PagesContext.Provider value={ENTRIES}>
        <Router base={PREFIX}>
          <SignedIn>
            <CommandPalette />
            <Switch>
              {ROUTES.map((route) => (
                <At key={route.path} path={route.path}>
                  <PageBoundary>
                    <Shown route={route} />
                  </PageBoundary>
                </At>
              ))}
              <At>
                <NoSuchPage />
              </At>
            </Switch>
          </SignedIn>
        </Router>
      </PagesContext.Provider>
    </QueryClientProvider>
  );
}

/** The pages, once whoever looks may look; until then how one signs in. */
function SignedIn({ children }: { children: ReactNode }) {
  const me = useCurrentUser();
  if (!me.data) return <Start failures={me.failureCount} reason={me.failureReason} />;
  if (me.data.permissions.includes("read")) return children;
  return <SignIn page={withoutPrefix(location.pathname) + location.search} />;
}

/** One page, as soon as what it needs is known. */
function Shown({ route }: { route: Route }) {
  const cluster = useQuery({
    queryKey: ["chosen cluster"],
    queryFn: () => chooseCluster(location.search, sessionStorage, listClusters),
    staleTime: Infinity,
    retry: retryForever,
    retryDelay: 2000,
  });
  const catalogue = useQuery({
    queryKey: ["catalogue"],
    queryFn: fetchCatalogue,
    staleTime: Infinity,
    retry: retryForever,
    retryDelay: 2000,
  });
  useEffect(() => {
    document.title = `${route.title} · Marey`;
  }, [route]);
  if (route.needs !== "nothing" && cluster.data === undefined)
    return <Start failures={cluster.failureCount} reason={cluster.failureReason} />;
  if (route.needs !== "catalogue")
    return (
      <Suspense fallback={<Start failures={0} reason={null} />}>
        <route.Page />
      </Suspense>
    );
  if (!catalogue.data)
    return <Start failures={catalogue.failureCount} reason={catalogue.failureReason} />;
  return (
    <Suspense fallback={<Start failures={0} reason={null} />}>
      <route.Page catalogue={catalogue.data} />
    </Suspense>
  );
}

function NoSuchPage() {
  const path = usePathname();
  useEffect(() => {
    document.title = `${texts.notFoundTitle} · Marey`;
  }, []);
  return (
    <>
      <PageHead />
      <main className={styles["start"]}>
        <div role="alert">
          <h1>{texts.pageNotFound(path.slice(0, 80))}</h1>
        </div>
        <PageLink className={ui["button"]} href="/">
          {texts.goToTheOverview}
        </PageLink>
      </main>
    </>
  );
}

function Start({ failures, reason }: { failures: number; reason: Error | null }) {
  return (
    <div className={styles["start"]} role="status">
      {failures > 0 ? texts.retrying(reason?.message ?? texts.theServerIsNotResponding) : "Marey"}
    </div>
  );
}
