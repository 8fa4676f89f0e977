import { useEffect, useRef, useState } from "react";
import { valueAt } from "@/base/columns";
import type { Predicate } from "@/base/predicate";
import { VIOLATED } from "@/base/verdicts/verdicts";
import type { ClusterState } from "@/base/units";
import { useTheme } from "@/base/theme";
import type { Direction } from "@/charts/units/neighbours";
import { firstMark, innerMark, nextMark, outerMark } from "@/charts/units/neighbours";
import type { Mark } from "@/charts/units/drawing/overlay";
import type { UnitLayout } from "@/charts/units/layout";
import type { Hit } from "@/charts/units/pick";
import { Stage } from "@/charts/units/drawing/stage";
import { attributesOf } from "@/charts/units/view";
import { useShared } from "@/features/overview/context";
import { Engine } from "@/features/overview/drawing/engine";
import { Layouts } from "@/features/overview/drawing/layouts";
import { countNumbers } from "@/features/overview/numbers";
import { choose, useOverview } from "@/features/overview/store";
import { groupPredicate, layerOf, unitPredicate, unitsPredicate } from "@/charts/units/targets";
import type { Hover } from "@/features/overview/drawing/Tooltip";
import { Tooltip } from "@/features/overview/drawing/Tooltip";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/overview/drawing/Canvas.module.css";
import { overviewTexts as texts } from "@/texts";

/** The canvas with every GPU on it. */
export function Canvas() {
  const shared = useShared();
  const holder = useRef<HTMLDivElement>(null);
  const below = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const [hover, setHover] = useState<Hover | null>(null);
  const [said, setSaid] = useState("");
  const drawn = useOverview((state) => state.drawn);

  useEffect(() => {
    if (!holder.current || !below.current || !above.current) return;
    return start(holder.current, below.current, above.current, shared, { setHover, setSaid });
  }, [shared]);

  return (
    <div
      className={styles["canvas"]}
      ref={holder}
      tabIndex={0}
      role="application"
      aria-label={texts.clusterMapArrowKeysPanPlus}
      data-testid="canvas"
      data-units={drawn?.shown ?? 0}
      data-layout-ms={drawn?.layoutMs.toFixed(1)}
    >
      <canvas ref={below} />
      <canvas ref={above} />
      {hover && <Tooltip hover={hover} />}
      <span className={ui["visually-hidden"]} role="status" data-testid="canvas-focus">
        {said}
      </span>
    </div>
  );
}

/** The camera as the stage last told it: it must not be sent back there. */
const reported: { camera: [number, number, number] | null } = { camera: null };

function start(
  holder: HTMLDivElement,
  below: HTMLCanvasElement,
  above: HTMLCanvasElement,
  shared: ReturnType<typeof useShared>,
  tell: { setHover: (hover: Hover | null) => void; setSaid: (text: string) => void },
): () => void {
  const stage = new Stage(below, above, {
    reducedMotion: matchMedia("(prefers-reduced-motion: reduce)").matches,
    software: new URLSearchParams(location.search).get("renderer") === "software",
    onCamera: (camera) => {
      const fit = camera[0] === 1 && camera[1] === 0.5 && camera[2] === 0.5;
      reported.camera = fit ? null : camera;
      useOverview.setState({ camera: reported.camera });
    },
  });
  holder.dataset["renderer"] = stage.renderer.kind;
  const layouts = new Layouts();
  const engine = new Engine(stage, layouts, shared.attributes, (drawn) =>
    useOverview.setState({ drawn }),
  );
  shared.engine.current = engine;
  const stops = [
    followSize(holder, stage, engine),
    followState(shared, engine),
    followStore(shared, engine),
    useTheme.subscribe(({ theme }) => engine.setTheme(theme)),
    listenToPointer(holder, stage, engine, tell.setHover),
    listenToKeys(holder, stage, engine, tell.setSaid),
  ];
  engine.setTheme(useTheme.getState().theme);
  window.marey = scriptHandle(engine);
  return () => {
    for (const stop of stops) stop();
    shared.engine.current = null;
    engine.dispose();
    layouts.dispose();
    stage.dispose();
  };
}

declare global {
  interface Window {
    /** For scripts that drive the page: the browser console, tests, screenshots. */
    marey?: ReturnType<typeof scriptHandle>;
  }
}

function scriptHandle(engine: Engine) {
  const { stage } = engine;
  return {
    view: () => useOverview.getState().view,
    /** Where the units of a predicate are on screen, in pixels of the page. */
    where: (predicate: Predicate) => {
      const rect = engine.rectOf(predicate);
      const box = stage.element.getBoundingClientRect();
      const { scale, x, y } = stage.camera;
      return (
        rect && {
          x: box.left + (rect.x - x) * scale,
          y: box.top + (rect.y - y) * scale,
          width: rect.w * scale,
          height: rect.h * scale,
        }
      );
    },
    /** Groups of a layer (1 is the outermost) with their names, counts and boxes in cells. */
    groups: (layer: number) => {
      const layout = engine.current?.layout;
      if (!layout) return [];
      const found = [];
      for (let g = layout.tree.layerStart[layer]; g < layout.tree.layerStart[layer + 1]; g++) {
        found.push({
          name: engine.groupName(g, layer),
          count: layout.tree.weight[g],
          x: layout.groupX[g],
          y: layout.groupY[g],
          w: layout.groupW[g],
          h: layout.groupH[g],
        });
      }
      return found;
    },
    /** These attributes of every unit on the canvas, in the order of the canvas. */
    rows: (fields: string[]) => {
      const drawn = engine.current;
      if (!drawn) return [];
      return Array.from(drawn.layout.tree.order, (unit) =>
        fields.map((field) => valueAt(drawn.units.column(field), unit)),
      );
    },
    camera: () => ({ ...stage.camera }),
    /** Where every unit of the canvas's order is on screen, its left upper corner in pixels of the canvas. */
    places: () => {
      const layout = engine.current?.layout;
      if (!layout) return [];
      const { scale, x, y } = stage.camera;
      return Array.from(layout.x, (left, i) => [(left - x) * scale, (layout.y[i] - y) * scale]);
    },
    /** The names that are written on the canvas, each with the whole name and the count of its group. */
    names: () => {
      const layout = engine.current?.layout;
      if (!layout) return [];
      return stage.names.map(({ group, text }) => ({
        text,
        name: engine.groupName(group, layerOf(layout, group)),
        count: layout.tree.weight[group],
      }));
    },
    /** Marks of rules on the canvas: which rule, on which group, and where on the page. */
    ruleMarks: () => {
      const box = stage.element.getBoundingClientRect();
      const placed = stage.ruleMarks;
      const layout = engine.current?.layout;
      if (!placed || !layout) return [];
      return [
        ...placed.dots.map((spot) => ({ kind: "dot", ...spot })),
        ...placed.bars.map((spot) => ({ kind: "bar", ...spot })),
      ].map((spot) => ({
        ...spot,
        rule: useOverview.getState().slots[spot.slot],
        group: engine.groupName(spot.group, layerOf(layout, spot.group)),
        x: box.left + spot.x,
        y: box.top + spot.y,
      }));
    },
    progress: () => stage.progress,
    /** Whether the picture shows every change so far; live changes are gathered for a moment. */
    arranged: () => !engine.pending,
  };
}

function followSize(holder: HTMLElement, stage: Stage, engine: Engine): () => void {
  const measure = () => {
    stage.resize(
      holder.clientWidth,
      holder.clientHeight,
      Math.min(2, window.devicePixelRatio || 1),
    );
    engine.resize();
  };
  measure();
  const observer = new ResizeObserver(measure);
  observer.observe(holder);
  return () => observer.disconnect();
}

function followState(shared: ReturnType<typeof useShared>, engine: Engine): () => void {
  let last: ClusterState | null = null;
  const count = () =>
    last &&
    useOverview.setState({ numbers: countNumbers(last, useOverview.getState().view.filter) });
  const stopListening = shared.session.listen((state, change) => {
    last = state;
    engine.setState(state, change);
    count();
  });
  const stopWatching = useOverview.subscribe((now, before) => {
    if (now.view.filter !== before.view.filter) count();
  });
  return () => {
    stopListening();
    stopWatching();
  };
}

function followStore(shared: ReturnType<typeof useShared>, engine: Engine): () => void {
  const { session, attributes } = shared;
  const need = () => {
    const named = attributesOf(useOverview.getState().view).filter(
      (name) => attributes.get(name)?.metric,
    );
    session.need("overview", [...new Set(["util", ...named])]);
  };
  const initial = useOverview.getState();
  engine.setView(initial.view);
  engine.setSelection(initial.selection);
  engine.setRules(initial.slots);
  engine.stage.lookFrom(initial.camera);
  need();
  return useOverview.subscribe((now, before) => {
    if (now.view !== before.view) {
      need();
      engine.setView(now.view);
    }
    if (now.selection !== before.selection) engine.setSelection(now.selection);
    if (now.slots !== before.slots) engine.setRules(now.slots);
    engine.light(now.lit ?? now.draft);
    if (now.camera !== before.camera && now.camera !== reported.camera)
      engine.stage.lookFrom(now.camera);
  });
}

function markOf(hit: Hit): Mark | null {
  if (hit.position >= 0) return { position: hit.position };
  return hit.group > 0 ? { group: hit.group } : null;
}

function listenToPointer(
  holder: HTMLElement,
  stage: Stage,
  engine: Engine,
  setHover: (hover: Hover | null) => void,
): () => void {
  const abort = new AbortController();
  const options = { signal: abort.signal };
  const pointers = new Map<number, { x: number; y: number }>();
  let start: { x: number; y: number; lasso: boolean } | null = null;
  let dragged = false;
  const place = (event: PointerEvent | WheelEvent) => {
    const box = holder.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  holder.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const at = place(event);
      const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
      // Two fingers pan where the device says which way; a wheel or a pinch zooms.
      if (event.deltaX !== 0 && !event.ctrlKey) stage.panBy(-event.deltaX, -event.deltaY);
      else stage.zoomAt(Math.exp(-pixels * (event.ctrlKey ? 0.01 : 0.0018)), at.x, at.y);
      setHover(null);
    },
    { ...options, passive: false },
  );

  holder.addEventListener(
    "pointerdown",
    (event) => {
      if (event.button !== 0 || (event.target as Element).closest("button")) return;
      holder.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, place(event));
      start = { ...place(event), lasso: event.shiftKey };
      dragged = false;
      setHover(null);
    },
    options,
  );

  holder.addEventListener(
    "pointermove",
    (event) => {
      const at = place(event);
      const before = pointers.get(event.pointerId);
      if (!before || !start) return hoverAt(at);
      if (Math.hypot(at.x - start.x, at.y - start.y) > 4) dragged = true;
      if (pointers.size === 2) pinch(event.pointerId, before, at);
      else if (start.lasso)
        stage.setMarks({
          lasso: [
            Math.min(at.x, start.x),
            Math.min(at.y, start.y),
            Math.abs(at.x - start.x),
            Math.abs(at.y - start.y),
          ],
        });
      else if (dragged) stage.panBy(at.x - before.x, at.y - before.y);
      pointers.set(event.pointerId, at);
    },
    options,
  );

  const release = (event: PointerEvent) => {
    if (!pointers.delete(event.pointerId) || !start) return;
    const at = place(event);
    if (start.lasso && dragged) chooseWithin(start, at);
    else if (!dragged && event.type === "pointerup")
      chooseAt(at, event.shiftKey || event.ctrlKey || event.metaKey);
    stage.setMarks({ lasso: null });
    if (pointers.size === 0) start = null;
  };
  holder.addEventListener("pointerup", release, options);
  holder.addEventListener("pointercancel", release, options);
  holder.addEventListener(
    "pointerleave",
    () => {
      setHover(null);
      stage.setMarks({ hover: null });
      useOverview.setState({ lit: null });
    },
    options,
  );
  holder.addEventListener(
    "dblclick",
    (event) => {
      const hit = stage.pickAt(
        place(event as unknown as PointerEvent).x,
        place(event as unknown as PointerEvent).y,
      );
      const { current } = engine;
      if (!hit || hit.group === 0 || !current) return;
      const { groupX, groupY, groupW, groupH } = current.layout;
      stage.flyTo({
        x: groupX[hit.group],
        y: groupY[hit.group],
        w: groupW[hit.group],
        h: groupH[hit.group],
      });
    },
    options,
  );
  return () => abort.abort();

  function hoverAt(at: { x: number; y: number }): void {
    const rule = stage.ruleAt(at.x, at.y);
    useOverview.setState({ lit: rule ? (useOverview.getState().slots[rule.slot] ?? null) : null });
    if (rule) {
      stage.setMarks({ hover: { group: rule.group } });
      return setHover({ ...at, hit: { group: rule.group, position: -1, onLabel: false }, rule });
    }
    const hit = stage.pickAt(at.x, at.y);
    const mark = hit && markOf(hit);
    stage.setMarks({ hover: mark });
    setHover(hit && mark ? { ...at, hit } : null);
  }

  function pinch(id: number, before: { x: number; y: number }, at: { x: number; y: number }): void {
    const other = [...pointers].find(([key]) => key !== id)?.[1];
    if (!other) return;
    const ratio =
      Math.hypot(at.x - other.x, at.y - other.y) /
      Math.max(1, Math.hypot(before.x - other.x, before.y - other.y));
    stage.zoomAt(ratio, (at.x + other.x) / 2, (at.y + other.y) / 2);
    stage.panBy((at.x - before.x) / 2, (at.y - before.y) / 2);
  }

  function chooseAt(at: { x: number; y: number }, more: boolean): void {
    const { current } = engine;
    const rule = current && stage.ruleAt(at.x, at.y);
    const field = rule && useOverview.getState().slots[rule.slot];
    if (rule && field)
      return choose(
        {
          and: [
            groupPredicate(current.layout, current.plan, rule.group),
            { field, op: "in", value: [...VIOLATED] },
          ],
        },
        more,
      );
    const hit = stage.pickAt(at.x, at.y);
    if (!hit || !current) return choose(null, more);
    if (hit.position >= 0)
      choose(unitPredicate(current.units, current.layout.tree.order[hit.position]), more);
    else
      choose(hit.group > 0 ? groupPredicate(current.layout, current.plan, hit.group) : null, more);
  }

  function chooseWithin(from: { x: number; y: number }, to: { x: number; y: number }): void {
    const { current } = engine;
    if (!current) return;
    const units = stage.unitsIn(
      Math.min(from.x, to.x),
      Math.min(from.y, to.y),
      Math.max(from.x, to.x),
      Math.max(from.y, to.y),
    );
    choose(unitsPredicate(current.units, units), true);
  }
}

const PAN_STEP_PX = 80;

/** Arrows walk over groups and units, with Shift they pan; Space goes inside, Backspace out, Enter opens. */
function listenToKeys(
  holder: HTMLElement,
  stage: Stage,
  engine: Engine,
  say: (text: string) => void,
): () => void {
  let focus: Mark | null = null;
  const walk = (step: (layout: UnitLayout, from: Mark) => Mark | null) => {
    const layout = engine.current?.layout;
    if (!layout) return;
    const known = focus && exists(layout, focus) ? focus : null;
    focus = known ? (step(layout, known) ?? known) : firstMark(layout);
    stage.setMarks({ hover: focus });
    if (focus) say(engine.describe(focus));
  };
  const go = (direction: Direction) => () =>
    walk((layout, from) => nextMark(layout, from, direction));
  const actions: Record<string, () => void> = {
    ArrowLeft: go("left"),
    ArrowRight: go("right"),
    ArrowUp: go("up"),
    ArrowDown: go("down"),
    " ": () => walk(innerMark),
    Backspace: () => walk(outerMark),
    Enter: () => focus && chooseMark(engine, focus),
    "Shift+ArrowLeft": () => stage.panBy(PAN_STEP_PX, 0),
    "Shift+ArrowRight": () => stage.panBy(-PAN_STEP_PX, 0),
    "Shift+ArrowUp": () => stage.panBy(0, PAN_STEP_PX),
    "Shift+ArrowDown": () => stage.panBy(0, -PAN_STEP_PX),
    "+": () => stage.zoomAt(1.4),
    "=": () => stage.zoomAt(1.4),
    "-": () => stage.zoomAt(1 / 1.4),
    "0": () => stage.fit(),
    Home: () => stage.fit(),
    Escape: () => choose(null, false),
  };
  const press = (event: KeyboardEvent) => {
    if (event.target !== holder || event.ctrlKey || event.metaKey) return;
    const shifted = event.shiftKey && event.key.startsWith("Arrow");
    const action = actions[shifted ? `Shift+${event.key}` : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  };
  const leave = () => stage.setMarks({ hover: null });
  holder.addEventListener("keydown", press);
  holder.addEventListener("blur", leave);
  return () => {
    holder.removeEventListener("keydown", press);
    holder.removeEventListener("blur", leave);
  };
}

function exists({ tree }: UnitLayout, mark: Mark): boolean {
  return "group" in mark ? mark.group < tree.groups : mark.position < tree.order.length;
}

function chooseMark(engine: Engine, mark: Mark): void {
  const { current } = engine;
  if (!current || !exists(current.layout, mark)) return;
  const predicate =
    "group" in mark
      ? groupPredicate(current.layout, current.plan, mark.group)
      : unitPredicate(current.units, current.layout.tree.order[mark.position]);
  choose(predicate, false);
}
