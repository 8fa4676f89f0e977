/** The keyboard of the Marey view. */

import { findOperator } from "@/charts/marey/hit";
import type { MareyStage } from "@/charts/marey/stage";

export interface KeyActions {
  stage: MareyStage;
  /** Open or close the cluster of a row. */
  toggle: (row: number) => void;
  choose: (row: number, interval: number) => void;
  clear: () => void;
  /** Follow a micro-batch, −1 none; where it is not told, the view alone does. */
  follow?: (microBatch: number) => void;
}

/** Do what a key asks for; false where it is not one of ours. */
export function handleKey(key: string, shift: boolean, actions: KeyActions): boolean {
  const { stage } = actions;
  switch (key) {
    case "ArrowLeft":
      stage.pan(shift ? -0.8 : -0.15);
      return true;
    case "ArrowRight":
      stage.pan(shift ? 0.8 : 0.15);
      return true;
    case "ArrowUp":
      moveFocus(stage, -1);
      return true;
    case "ArrowDown":
      moveFocus(stage, 1);
      return true;
    case "+":
    case "=":
    case "w":
      stage.zoom(0.6);
      return true;
    case "-":
    case "s":
      stage.zoom(1 / 0.6);
      return true;
    case "[":
      stage.scaleRows(0.75);
      return true;
    case "]":
      stage.scaleRows(1 / 0.75);
      return true;
    case "0":
    case "f":
      stage.setWindow(stage.limits, true);
      stage.setRowPx(null);
      return true;
    case "b":
    case "Backspace":
      stage.back();
      return true;
    case "n":
    case "N":
      followOperator(actions, shift || key === "N" ? -1 : 1);
      return true;
    case "o":
    case "O":
      nextOutlier(stage, shift || key === "O" ? -1 : 1);
      return true;
    case ",":
      nextInterval(actions, -1);
      return true;
    case ".":
      nextInterval(actions, 1);
      return true;
    case "Enter":
      if (stage.focusRow >= 0) actions.toggle(stage.focusRow);
      return true;
    case "m":
      followBatch(actions);
      return true;
    case "Escape":
      actions.clear();
      return true;
    default:
      return false;
  }
}

/** The next row with a rank, above or below the focus. */
function nextRow(stage: MareyStage, by: number, wanted: (row: number) => boolean): number {
  const { rows } = stage.layout;
  for (let row = stage.focusRow + by; row >= 0 && row < rows.length; row += by)
    if (rows[row].rank >= 0 && wanted(row)) return row;
  return -1;
}

function moveFocus(stage: MareyStage, by: number): void {
  if (stage.focusRow < 0 && by < 0) stage.focusRow = stage.layout.rows.length;
  const row = nextRow(stage, by, () => true);
  if (row >= 0) stage.focus(row);
}

/** The same operator on the next rank that has it. */
function followOperator({ stage, choose }: KeyActions, by: number): void {
  const row = nextRow(stage, by, () => true);
  if (row < 0) return;
  stage.focus(row);
  const { bands, operator } = stage;
  const at = bands && operator >= 0 ? findOperator(bands.intervals, row, operator) : -1;
  if (at < 0 || !bands) return;
  choose(row, at);
  stage.reveal({ fromNs: bands.intervals.startNs[at], toNs: bands.intervals.endNs[at] });
}

/** Follow the micro-batch of the selected operator through all rows, or stop following it. */
function followBatch({ stage, follow }: KeyActions): void {
  const batch = stage.bands?.microBatch[stage.selectedInterval()] ?? -1;
  const next = batch === stage.followed ? -1 : batch;
  if (follow) follow(next);
  else stage.follow(next);
}

function nextOutlier(stage: MareyStage, by: number): void {
  const isOutlier = (row: number) => stage.layout.rows[row].outlier;
  let row = nextRow(stage, by, isOutlier);
  if (row < 0) {
    // Round the end.
    stage.focusRow = by > 0 ? -1 : stage.layout.rows.length;
    row = nextRow(stage, by, isOutlier);
  }
  if (row >= 0) stage.focus(row);
}

/** The operator before or after the selected one on the same row. */
function nextInterval({ stage, choose }: KeyActions, by: number): void {
  const { bands } = stage;
  if (!bands) return;
  const row = stage.focusRow >= 0 ? stage.focusRow : bands.intervals.firstRow;
  const r = row - bands.intervals.firstRow;
  if (r < 0 || r + 1 >= bands.intervals.begin.length) return;
  const [first, last] = [bands.intervals.begin[r], bands.intervals.begin[r + 1]];
  if (last <= first) return;
  const now = stage.selectedInterval();
  const next =
    now < 0 ? firstSeen(stage, [first, last], by) : Math.min(last - 1, Math.max(first, now + by));
  choose(row, next);
  const { startNs, endNs } = bands.intervals;
  stage.reveal({ fromNs: startNs[next], toNs: endNs[next] });
}

/** The first or last interval of a row that the window shows: more are loaded than are seen. */
function firstSeen(
  stage: MareyStage,
  [first, last]: readonly [number, number],
  by: number,
): number {
  const { startNs, endNs } = stage.bands!.intervals;
  const { fromNs, toNs } = stage.window;
  const isSeen = (i: number) => endNs[i] > fromNs && startNs[i] < toNs;
  let at = by > 0 ? first : last - 1;
  while (at >= first && at < last && !isSeen(at)) at += by;
  return at >= first && at < last ? at : by > 0 ? first : last - 1;
}
