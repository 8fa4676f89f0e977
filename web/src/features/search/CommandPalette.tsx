import { useQuery } from "@tanstack/react-query";
import { useContext, useEffect, useMemo, useState } from "react";
import { chooseClock, chosenClock } from "@/base/clock";
import { navigate } from "@/base/router";
import type { Document } from "@/api/documents";
import { inCluster } from "@/api/chosen";
import { getJson } from "@/api/client";
import { entityAddress, findingsAddress, jobsAddress, workloadAddress } from "@/base/addresses";
import { useTheme } from "@/base/theme";
import { PagesContext } from "@/base/ui/navigation";
import { OPEN_SEARCH } from "@/base/ui/PageHead";
import { useRules } from "@/base/verdicts/queries";
import styles from "@/features/search/CommandPalette.module.css";
import { searchTexts as texts } from "@/texts";

interface Hit {
  kind: string;
  label: string;
  detail: string;
  go: () => void;
}

const MOST = 20;
const to = (address: string) => () => navigate(inCluster(address));

/** Finds jobs, people, machines, rules, views, pages and commands by name; opened by `/` or Ctrl-K. */
export function CommandPalette() {
  const [open, setOpen] = useState(false);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const typing =
        event.target instanceof Element && event.target.closest("input, select, textarea");
      const key = event.key.toLowerCase();
      // The overview has a field of its own, which flies to what is found.
      const slash = key === "/" && !typing && !document.querySelector("[data-own-search]");
      if (!slash && !((event.ctrlKey || event.metaKey) && key === "k")) return;
      event.preventDefault();
      setOpen(true);
    };
    const show = () => setOpen(true);
    window.addEventListener("keydown", press);
    window.addEventListener(OPEN_SEARCH, show);
    return () => {
      window.removeEventListener("keydown", press);
      window.removeEventListener(OPEN_SEARCH, show);
    };
  }, []);
  return open ? <Palette onClose={() => setOpen(false)} /> : null;
}

function Palette({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const hits = useHits(text.trim());
  const choose = (hit: Hit) => {
    onClose();
    hit.go();
  };
  return (
    <div className={styles["veil"]} onMouseDown={onClose}>
      <div
        className={styles["palette"]}
        role="dialog"
        aria-modal="true"
        aria-label={texts.search}
        data-testid="palette"
        onMouseDown={(event) => event.stopPropagation()}
      >
        <input
          // The reader asked for this field a moment ago.
          autoFocus
          type="search"
          role="combobox"
          aria-label={texts.searchEverything}
          aria-expanded={hits.length > 0}
          aria-controls="palette-hits"
          aria-activedescendant={hits[active] ? `palette-${active}` : undefined}
          placeholder={texts.searchEverything}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setActive(0);
          }}
          onKeyDown={(event) => {
            if (event.key === "ArrowDown") setActive((at) => Math.min(hits.length - 1, at + 1));
            else if (event.key === "ArrowUp") setActive((at) => Math.max(0, at - 1));
            else if (event.key === "Enter" && hits[active]) choose(hits[active]);
            else if (event.key === "Escape") onClose();
            else return;
            event.preventDefault();
          }}
        />
        <ul id="palette-hits" role="listbox" aria-label={texts.results}>
          {hits.map((hit, i) => (
            <li
              key={`${hit.kind} ${hit.label} ${hit.detail}`}
              id={`palette-${i}`}
              role="option"
              aria-selected={i === active}
              onMouseEnter={() => setActive(i)}
              onClick={() => choose(hit)}
            >
              <span>{hit.kind}</span> {hit.label} {hit.detail && <em>{hit.detail}</em>}
            </li>
          ))}
        </ul>
        {text.trim() !== "" && hits.length === 0 && (
          <p className={styles["none"]} role="status">
            {texts.noMatches}
          </p>
        )}
      </div>
    </div>
  );
}

function useHits(text: string): Hit[] {
  const pages = useContext(PagesContext);
  const { theme, setTheme } = useTheme();
  const rules = useRules();
  const views = useQuery({
    queryKey: ["views"],
    queryFn: ({ signal }) => getJson<Record<string, Document<"SavedView">>>("/views", {}, signal),
    staleTime: 60_000,
  });
  const found = useQuery({
    queryKey: ["search", text],
    queryFn: ({ signal }) =>
      getJson<Document<"SearchHit">[]>("/search", { q: text, limit: MOST }, signal),
    enabled: text !== "",
    staleTime: 10_000,
    placeholderData: (before) => before,
  });
  return useMemo(() => {
    const known: Hit[] = [
      ...pages.map((page) => hit(texts.page, page.label, "", to(page.path))),
      hit(texts.command, texts.switchTheme, "", () =>
        setTheme(theme === "dark" ? "light" : "dark"),
      ),
      hit(texts.command, texts.switchClock, "", () =>
        chooseClock(chosenClock() === "iso" ? "locale" : "iso"),
      ),
      hit(texts.command, texts.showFailedJobs, "", to(jobsAddress({ state: "failed,node_fail" }))),
      hit(texts.command, texts.showWastefulJobs, "", to(jobsAddress({ sort: "waste" }))),
      ...(rules.data ?? []).map((rule) =>
        hit(texts.rule, rule.title || rule.id, rule.id, to(findingsAddress({ rule: rule.id }))),
      ),
      ...Object.keys(views.data ?? {})
        .filter((name) => !name.startsWith("jobs: "))
        .map((name) => hit(texts.view, name, "", to(`/?view=${encodeURIComponent(name)}`))),
    ];
    const wanted = text.toLowerCase();
    const matching = known.filter(
      ({ label, detail }) =>
        label.toLowerCase().includes(wanted) || detail.toLowerCase().includes(wanted),
    );
    if (!wanted) return matching.slice(0, 12);
    return [...(found.data ?? []).map(ofServer), ...matching].slice(0, MOST);
  }, [pages, rules.data, views.data, found.data, text, theme, setTheme]);
}

function hit(kind: string, label: string, detail: string, go: () => void): Hit {
  return { kind, label, detail, go };
}

const ENTITIES = ["user", "project", "partition", "host", "gpu"];

function ofServer({ kind, id, label }: Document<"SearchHit">): Hit {
  if (kind === "workload")
    return hit(texts.job, label, label === id ? "" : id, to(workloadAddress(id)));
  if (ENTITIES.includes(kind)) return hit(kind, label, "", to(entityAddress(kind, id)));
  const selection = encodeURIComponent(JSON.stringify([{ field: kind, op: "eq", value: id }]));
  return hit(kind, label, "", to(`/?sel=${selection}`));
}
