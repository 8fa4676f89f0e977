import { useEffect, useRef } from "react";
import type { MareyStage } from "@/charts/marey/stage";

interface Drag {
  x: number;
  y: number;
  marks: boolean;
  moved: boolean;
  fromNs: number;
}

/** The mouse of the Marey view: drag moves, with Shift it marks a span and zooms to it, the wheel zooms. */
export function usePointer(
  stage: MareyStage | null,
  actions: {
    choose: (row: number, interval: number) => void;
    toggle: (row: number) => void;
  },
) {
  const drag = useRef<Drag | null>(null);
  useWheel(stage);
  const place = (event: React.MouseEvent): [number, number] => {
    const box = event.currentTarget.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  return {
    onPointerDown: (event: React.PointerEvent) => {
      if (!stage || event.button !== 0) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      const [x, y] = place(event);
      drag.current = { x, y, marks: event.shiftKey, moved: false, fromNs: stage.timeAt(x) };
    },
    onPointerMove: (event: React.PointerEvent) => {
      if (!stage) return;
      const [x, y] = place(event);
      const from = drag.current;
      const hit = stage.hit(x, y);
      stage.cursor = hit && { timeNs: hit.timeNs, row: hit.row };
      if (from && (from.moved || Math.abs(x - from.x) + Math.abs(y - from.y) > 4)) {
        from.moved = true;
        if (from.marks) stage.marked = ordered(from.fromNs, stage.timeAt(x));
        else {
          stage.pan((from.x - x) / stage.plot.width);
          stage.moveScroll(from.y - y);
          [from.x, from.y] = [x, y];
        }
      }
      stage.draw();
    },
    onPointerUp: (event: React.PointerEvent) => {
      const from = drag.current;
      drag.current = null;
      if (!stage || !from) return;
      if (from.marks && stage.marked) stage.setWindow(stage.marked, true);
      stage.marked = null;
      if (from.moved) return;
      const [x, y] = place(event);
      const hit = stage.hit(x, y);
      if (hit && stage.layout.rows[hit.row].rank >= 0) {
        if (x < stage.plot.gutter) actions.toggle(hit.row);
        actions.choose(hit.row, hit.interval);
      }
    },
    onPointerLeave: () => {
      if (!stage) return;
      stage.cursor = null;
      stage.draw();
    },
    onDoubleClick: () => stage?.back(),
  };
}

const ordered = (a: number, b: number) => ({ fromNs: Math.min(a, b), toNs: Math.max(a, b) });

/** The wheel zooms time about the pointer, with Shift it scrolls rows, with Alt it makes them taller. */
function useWheel(stage: MareyStage | null): void {
  useEffect(() => {
    if (!stage) return;
    const turn = (event: WheelEvent) => {
      const element = (event.target as Element | null)?.closest("[data-testid=marey]");
      if (!element) return;
      event.preventDefault();
      const box = element.getBoundingClientRect();
      const amount = event.deltaY || event.deltaX;
      if (event.shiftKey) stage.moveScroll(amount);
      else if (event.altKey) stage.scaleRows(Math.exp(-amount / 400));
      else {
        const about = (event.clientX - box.left - stage.plot.gutter) / stage.plot.width;
        stage.zoom(Math.exp(amount / 400), Math.min(1, Math.max(0, about)));
      }
    };
    document.addEventListener("wheel", turn, { passive: false });
    return () => document.removeEventListener("wheel", turn);
  }, [stage]);
}
