import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Component, useEffect, useState } from "react";
import { withPrefix } from "@/api/prefix";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import { isMissingCode, mayReloadFor } from "@/app/missingCode";
import styles from "@/app/App.module.css";
import ui from "@/base/ui/ui.module.css";
import { appTexts as texts } from "@/texts";

const ASK_AGAIN_MS = 2_000;

/** Keeps the navigation when a page fails: what threw is told instead of a blank window. */
export class PageBoundary extends Component<{ children: ReactNode }, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <>
        <PageHead />
        <main className={styles["start"]}>
          {isMissingCode(error) ? <Unreachable error={error} /> : <Failed error={error} />}
        </main>
      </>
    );
  }
}

/** The page's code could not be fetched: as soon as the server answers again, everything is loaded anew. */
function Unreachable({ error }: { error: Error }) {
  const health = useQuery({
    queryKey: ["health after a failed page"],
    queryFn: async () => (await fetch(withPrefix("/healthz"), { cache: "no-store" })).ok,
    retry: false,
    refetchInterval: ASK_AGAIN_MS,
    gcTime: 0,
  });
  const answers = health.data === true && !health.isError;
  const [inVain, setInVain] = useState(false);
  useEffect(() => {
    if (!answers) return;
    if (mayReloadFor(sessionStorage, Date.now())) location.reload();
    else setInVain(true);
  }, [answers]);
  if (inVain) return <Failed error={error} />;
  return <p role="status">{texts.retrying(texts.theServerIsNotResponding)}</p>;
}

function Failed({ error }: { error: Error }) {
  return (
    <>
      <div role="alert">
        <h1>{texts.pageFailed}</h1>
        <p>{error.message}</p>
      </div>
      <button type="button" className={ui["button"]} onClick={() => location.reload()}>
        {texts.reloadPage}
      </button>
      <PageLink className={ui["button"]} href="/">
        {texts.goToTheOverview}
      </PageLink>
    </>
  );
}
