/** The stage of the Marey view in React: made once, told about rows, window and selection. */

import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useTheme } from "@/base/theme";
import { makePalette } from "@/charts/marey/kinds";
import { MareyStage } from "@/charts/marey/stage";
import type { ViewRows } from "@/features/traces/documents";
import { handleKey } from "@/charts/marey/keys";
import type { MareyRow } from "@/charts/marey/ranks";
import type { StepAxis, DescribedBands } from "@/charts/marey/decode";
import { numberIn, splitNumber } from "@/charts/marey/decode";
import type { StepMark } from "@/charts/marey/overlay";
import { fetchLongest, makeSource } from "@/features/traces/marey/source";
import { usePointer } from "@/features/traces/marey/usePointer";
import { useTable } from "@/features/traces/queries";
import {
  clauseValue,
  firstNumber,
  listNames,
  quoteValue,
  timeSpan,
  withClause,
} from "@/features/traces/selection";
import { tracesTexts as texts } from "@/texts";

interface StageProps {
  run: string;
  order: string;
  made: readonly MareyRow[];
  rows: ViewRows;
  where: string;
  go: (change: Record<string, string | number | null>) => void;
  setOpen: (change: (open: ReadonlySet<string>) => ReadonlySet<string>) => void;
}

/** The drawing, kept while the page lives, and what it is told. */
export function useStage({ run, order, made, rows, where, go, setOpen }: StageProps) {
  const axis = useStepAxis(rows);
  const theme = useTheme((state) => state.theme);
  const host = useRef<HTMLDivElement>(null);
  const [stage, setStage] = useState<MareyStage | null>(null);
  const [turn, setTurn] = useState(0);
  const [error, setError] = useState("");
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const [picture, marks] = element.querySelectorAll("canvas");
    let made: MareyStage | null = null;
    const source = makeSource(run, axis, order, (row) => made?.layout.height[row] ?? 0);
    const palette = makePalette(useTheme.getState().theme);
    made = new MareyStage(picture, marks, source, palette, texts.notTraced, {
      changed: () => setTurn((turn) => turn + 1),
      failed: (problem) => setError(problem instanceof Error ? problem.message : String(problem)),
    });
    const shown = made;
    const watch = new ResizeObserver(() => shown.resize(element.clientWidth, element.clientHeight));
    watch.observe(element);
    shown.resize(element.clientWidth, element.clientHeight);
    setError("");
    setStage(shown);
    return () => {
      watch.disconnect();
      shown.dispose();
    };
  }, [run, axis, order]);
  useEffect(() => stage?.setPalette(makePalette(theme)), [stage, theme]);
  useEffect(() => {
    if (stage) stage.steps = listMarks(rows);
    stage?.setRows(made, { fromNs: 0, toNs: Math.max(1, rows.end_ns - rows.start_ns) });
  }, [stage, made, rows]);
  useEffect(() => stage?.follow(firstNumber(where, "micro_batch") ?? -1), [stage, where]);
  const address = useAddressWindow(stage, go, turn);
  useSelection(stage, axis, where, turn, address);
  useLocated({ stage, run, axis, where, turn, placed: address });
  const choose = useCallback(
    (row: number, interval: number) => {
      if (!stage) return;
      const bands = stage.bands as DescribedBands | null;
      stage.focus(row);
      if (interval < 0 || !bands) return;
      stage.select(bands.intervals.operator[interval]);
      const rank = stage.layout.rows[row].rank;
      let next = withClause(location.search ? currentWhere() : "", "rank", String(rank));
      const chosen = splitNumber(axis, bands.intervals.operator[interval]);
      next = withClause(next, "operator", String(chosen.operator));
      next = withClause(next, "step", axis.steps.length > 1 ? String(chosen.step) : null);
      next = withClause(next, "name", quoteValue(bands.nameOf(interval)));
      go({ where: next });
    },
    [stage, axis, go],
  );
  const toggle = useCallback(
    (row: number) => {
      const key = (stage?.layout.rows[row] as MareyRow | undefined)?.cluster;
      if (!key) return;
      setOpen((open) => {
        const next = new Set(open);
        if (!next.delete(key)) next.add(key);
        return next;
      });
    },
    [stage, setOpen],
  );
  const follow = useCallback(
    (batch: number) => {
      stage?.follow(batch);
      const clause = batch < 0 ? null : String(batch);
      go({ where: withClause(currentWhere(), "micro_batch", clause) });
    },
    [stage, go],
  );
  const clear = useCallback(() => {
    stage?.select(-1);
    stage?.follow(-1);
    go({ where: null });
  }, [stage, go]);
  const pointer = usePointer(stage, { choose, toggle });
  const onKey = (event: React.KeyboardEvent) => {
    if (!stage || event.ctrlKey || event.metaKey || event.altKey) return;
    if (handleKey(event.key, event.shiftKey, { stage, toggle, choose, clear, follow }))
      event.preventDefault();
  };
  return { host, stage, turn, error, choose, clear, follow, pointer, onKey };
}

/** The steps on the axis, the same object while they are the same. */
function useStepAxis({ steps, operators }: ViewRows): StepAxis {
  const key = steps.join(",");
  return useMemo(() => ({ steps: key.split(",").map(Number), operators }), [key, operators]);
}

function listMarks({ steps, step_starts_ns: starts }: ViewRows): StepMark[] {
  if (steps.length < 2) return [];
  return steps.map((step, i) => ({ label: texts.stepMark(step), timeNs: starts[i] }));
}

const currentWhere = (): string => new URLSearchParams(location.search).get("where") ?? "";

/** The window is in the address, a moment after it came to rest. */
function useAddressWindow(
  stage: MareyStage | null,
  go: (change: Record<string, string | number | null>) => void,
  turn: number,
): React.RefObject<boolean> {
  const placed = useRef(false);
  useEffect(() => {
    if (!stage) return;
    placed.current = false;
    const query = new URLSearchParams(location.search);
    const [from, to] = [Number(query.get("from") ?? NaN), Number(query.get("to") ?? NaN)];
    if (to > from) {
      stage.setWindow({ fromNs: from, toNs: to });
      placed.current = true;
    }
  }, [stage]);
  useEffect(() => {
    if (!stage) return;
    const timer = setTimeout(() => {
      const { window: now, limits } = stage;
      const whole = now.fromNs <= limits.fromNs && now.toNs >= limits.toNs;
      const query = new URLSearchParams(location.search);
      const [from, to] = whole ? [null, null] : [String(now.fromNs), String(now.toNs)];
      if (query.get("from") !== from || query.get("to") !== to) go({ from, to });
    }, 350);
    return () => clearTimeout(timer);
  }, [stage, turn, go]);
  return placed;
}

/** Bring what the address selects into view, once per selection: its rank, its time, its operator. */
function useSelection(
  stage: MareyStage | null,
  axis: StepAxis,
  where: string,
  turn: number,
  placed: React.RefObject<boolean>,
): void {
  const done = useRef("");
  useEffect(() => {
    if (!stage || stage.layout.rows.length === 0 || done.current === where) return;
    const rank = firstNumber(where, "rank");
    const row = rank === null ? -1 : stage.layout.rows.findIndex((one) => one.rank === rank);
    if (row >= 0 && stage.focusRow !== row) stage.focus(row);
    const span = timeSpan(where);
    if (span && !placed.current) stage.setWindow(span);
    const operator = firstNumber(where, "operator");
    if (operator !== null) stage.select(numberIn(axis, operator, firstNumber(where, "step")));
    const names = listNames(clauseValue(where, "name"));
    const bands = stage.bands as DescribedBands | null;
    if (operator === null && names.length > 0) {
      if (!bands) return;
      const found = findNamed(bands, stage.focusRow, names);
      if (found >= 0) stage.select(bands.intervals.operator[found]);
    }
    done.current = where;
  }, [stage, axis, where, turn, placed]);
}

interface Located {
  stage: MareyStage | null;
  run: string;
  axis: StepAxis;
  where: string;
  turn: number;
  placed: React.RefObject<boolean>;
}

/** How many times its own length an operator has around it where the view goes to it. */
const AROUND = 12;

/**
 * Go to the operator that a link selects where it is too short to be seen in the window: otherwise nothing would be
 * marked at all. Once per view; a window that the address names stays.
 */
function useLocated({ stage, run, axis, where, turn, placed }: Located): void {
  const done = useRef(false);
  useEffect(() => {
    if (!stage || !stage.isLoaded || done.current) return;
    done.current = true;
    const chosen = clauseValue(where, "operator") ?? clauseValue(where, "name");
    const rank = firstNumber(where, "rank");
    if (placed.current || chosen === null || rank === null || stage.selectedInterval() >= 0) return;
    void fetchLongest(run, axis, where, rank).then((found) => {
      if (!found || stage.isDisposed) return;
      stage.select(found.number);
      const around = (found.toNs - found.fromNs) * AROUND;
      stage.setWindow({ fromNs: found.fromNs - around, toNs: found.toNs + around }, true);
    });
  }, [stage, run, axis, where, turn, placed]);
}

/** The longest interval with one of these names on a row, or on any. */
function findNamed(bands: DescribedBands, row: number, names: readonly string[]): number {
  const wanted = new Set(names);
  const { begin, firstRow, startNs, endNs } = bands.intervals;
  const r = row - firstRow;
  const [first, last] =
    r >= 0 && r + 1 < begin.length ? [begin[r], begin[r + 1]] : [0, startNs.length];
  let best = -1;
  for (let i = first; i < last; i++)
    if (
      wanted.has(bands.nameOf(i)) &&
      (best < 0 || endNs[i] - startNs[i] > endNs[best] - startNs[best])
    )
      best = i;
  return best;
}

/** Memory of the ranks that stand as rows of their own, as lines on them. */
export function useMemoryLines(
  stage: MareyStage | null,
  run: string,
  rows: ViewRows,
  made: readonly MareyRow[],
  wanted: boolean,
): void {
  const { steps, start_ns: startNs } = rows;
  const ranks = made.filter((row) => row.kind === "rank").slice(0, 64);
  const where = `step=${steps.join(",")} and rank=${ranks.map((row) => row.rank).join(",") || "0"}`;
  const memory = useTable(run, "memory", { where, limit: wanted ? 100_000 : 1 });
  useEffect(() => {
    if (!stage) return;
    stage.memory.clear();
    if (wanted)
      made.forEach((row, at) => {
        if (row.kind !== "rank") return;
        const lines = (memory.data?.rows ?? []).filter((one) => one.rank === row.rank);
        const bytes = Float64Array.from(lines, (one) => one.allocated_bytes);
        stage.memory.set(at, {
          timeNs: Float64Array.from(lines, (one) => one.time_ns - startNs),
          bytes,
          mostBytes: bytes.reduce((most, one) => Math.max(most, one), 0),
        });
      });
    stage.draw();
  }, [stage, made, wanted, memory.data, startNs]);
}
