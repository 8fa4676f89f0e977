import { useEffect, useMemo, useRef, useState } from "react";
import type { Predicate } from "@/base/predicate";
import { buildUnits } from "@/base/units";
import type { ClusterState } from "@/base/units";
import { Icon } from "@/base/ui/Icon";
import { coveredByCard, useShared } from "@/features/overview/context";
import { choose, useOverview } from "@/features/overview/store";
import styles from "@/features/overview/Search.module.css";
import { overviewTexts as texts } from "@/texts";

interface Found {
  field: string;
  kind: string;
  value: string;
  detail: string;
}

const FIELDS: [string, string][] = [
  ["host", texts.host],
  ["user", texts.user],
  ["workload", texts.workload],
  ["project", texts.project],
  ["experiment", texts.experiment],
  ["partition", texts.partition],
  ["rack", texts.rack],
];
const MOST = 12;

/** Finds a host, user or workload by a piece of its name, and flies there. */
export function Search() {
  const { session, engine } = useShared();
  const [text, setText] = useState("");
  const [state, setState] = useState<ClusterState | null>(null);
  const [active, setActive] = useState(0);
  const [open, setOpen] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => session.listen((next) => setState(next)), [session]);
  const found = useMemo(
    () => (state && text.trim() ? search(state, text.trim()) : []),
    [state, text],
  );

  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const typing =
        event.target instanceof Element && event.target.closest("input, select, textarea");
      if (event.key !== "/" || typing) return;
      event.preventDefault();
      input.current?.focus();
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);

  const go = (one: Found) => {
    const predicate: Predicate = { field: one.field, op: "eq", value: one.value };
    choose(predicate, false);
    const rect = engine.current?.rectOf(predicate);
    if (rect) engine.current?.stage.flyTo(rect, coveredByCard());
    else
      useOverview.setState({
        problems: [texts.isNotInThisViewIt(one.kind, one.value)],
      });
    setOpen(false);
    input.current?.blur();
  };
  return (
    <div className={styles["search"]} role="search" data-own-search="">
      <Icon name="search" />
      <input
        ref={input}
        type="search"
        placeholder={texts.findAHostUserWorkload}
        aria-label={texts.findAHostUserOrWorkload}
        role="combobox"
        aria-expanded={open && found.length > 0}
        aria-controls="search-results"
        aria-activedescendant={open && found[active] ? `search-${active}` : undefined}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setActive(0);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => setTimeout(() => setOpen(false), 150)}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") setActive((at) => Math.min(found.length - 1, at + 1));
          else if (event.key === "ArrowUp") setActive((at) => Math.max(0, at - 1));
          else if (event.key === "Enter" && found[active]) go(found[active]);
          else if (event.key === "Escape") setOpen(false);
          else return;
          event.preventDefault();
        }}
      />
      <kbd>/</kbd>
      {open && text.trim() !== "" && (
        <ul id="search-results" role="listbox" aria-label={texts.searchResults}>
          {found.map((one, i) => (
            <li
              key={`${one.field} ${one.value}`}
              id={`search-${i}`}
              role="option"
              aria-selected={i === active}
              onMouseDown={() => go(one)}
            >
              <span>{one.kind}</span> {one.value} {one.detail && <em>{one.detail}</em>}
            </li>
          ))}
          {found.length === 0 && <li>{texts.noMatches}</li>}
        </ul>
      )}
    </div>
  );
}

function search(state: ClusterState, text: string): Found[] {
  const units = buildUnits(state, { units: "both", waiting_unit: "workload" });
  const wanted = text.toLowerCase();
  const found: (Found & { rank: number })[] = [];
  for (const [field, kind] of FIELDS) {
    const column = units.column(field);
    if (column?.kind !== "text") continue;
    for (const value of column.words) {
      const at = value.toLowerCase().indexOf(wanted);
      if (at >= 0) found.push({ field, kind, value, detail: "", rank: rankOf(at, value, wanted) });
    }
  }
  found.push(...byWorkloadName(state, wanted));
  if (text.includes(":")) found.push(...byGpu(state, wanted));
  return found
    .sort(
      (a, b) => a.rank - b.rank || a.value.length - b.value.length || (a.value < b.value ? -1 : 1),
    )
    .slice(0, MOST);
}

function rankOf(at: number, value: string, wanted: string): number {
  return value.length === wanted.length ? 0 : at === 0 ? 1 : 2;
}

function byWorkloadName({ workloads }: ClusterState, wanted: string): (Found & { rank: number })[] {
  const names = workloads.columns.get("name");
  const ids = workloads.columns.get("workload");
  const found: (Found & { rank: number })[] = [];
  if (names?.kind !== "text" || ids?.kind !== "text") return found;
  for (let row = 0; row < workloads.rows && found.length < 50; row++) {
    const name = names.codes[row] < 0 ? "" : names.words[names.codes[row]];
    const at = name.toLowerCase().indexOf(wanted);
    if (at >= 0)
      found.push({
        field: "workload",
        kind: texts.workload,
        value: ids.words[ids.codes[row]],
        detail: name,
        rank: rankOf(at, name, wanted),
      });
  }
  return found;
}

function byGpu({ gpus }: ClusterState, wanted: string): (Found & { rank: number })[] {
  const column = gpus.columns.get("gpu");
  if (column?.kind !== "text") return [];
  return column.words
    .filter((word) => word.toLowerCase().startsWith(wanted))
    .slice(0, MOST)
    .map((value) => ({ field: "gpu", kind: "GPU", value, detail: "", rank: 0 }));
}
