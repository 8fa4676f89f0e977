import { useState } from "react";
import { formatAmount } from "@/base/times";
import type { PageState } from "@/features/callgraphs/address";
import { useFound } from "@/features/callgraphs/queries";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/callgraphs/CallGraphs.module.css";
import { callGraphTexts as texts } from "@/texts";

/** Find call sites by a query over paths; it is in the address, and means the same in another run. */
export function QueryPanel({
  state,
  set,
}: {
  state: PageState;
  set: (change: Partial<PageState>) => void;
}) {
  const [text, setText] = useState(state.where);
  const found = useFound(state);
  const sites = state.where && !found.isError ? found.data : undefined;
  return (
    <section className={styles["panel"]} aria-label={texts.query} data-testid="query">
      <h2>{texts.query}</h2>
      <form
        className={pageStyles["page-line"]}
        onSubmit={(event) => {
          event.preventDefault();
          set({ where: text.trim() });
        }}
      >
        <input
          aria-label={texts.queryLabel}
          placeholder={texts.queryExample}
          value={text}
          spellCheck={false}
          onChange={(event) => setText(event.target.value)}
        />
        <button type="submit" className={ui["button"]}>
          {texts.find}
        </button>
        {state.where && (
          <button
            type="button"
            className={ui["button"]}
            onClick={() => {
              setText("");
              set({ where: "" });
            }}
          >
            {texts.clearQuery}
          </button>
        )}
      </form>
      <p className={ui["muted"]}>{texts.queryHelp}</p>
      {found.isError && <p role="alert">{found.error.message}</p>}
      {sites && (
        <>
          <p role="status">{texts.found(sites.count.selected)}</p>
          <ul className={styles["rows"]}>
            {sites.nodes.map((one) => (
              <li key={one.path.join("\u0000")}>
                <button
                  type="button"
                  className={ui["link"]}
                  onClick={() => set({ path: one.path, module: "" })}
                >
                  {one.path.slice(-4).join(" › ")}
                </button>{" "}
                {formatAmount(one.inclusive, sites.unit)}
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}
