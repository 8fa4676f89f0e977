/** Draws a step of a run twice, as recorded and as predicted: two bars per rank on one axis of time. */

import type { Palette } from "@/charts/marey/kinds";
import { formatNs } from "@/charts/marey/window";

export interface Piece {
  rank: number | null;
  what: string;
  kind: "compute" | "transfer";
  start_ms: number;
  end_ms: number;
}

export interface ReplayedSide {
  step_ms: number;
  pieces: readonly Piece[];
}

export interface PairDrawing {
  ranks: readonly number[];
  before: ReplayedSide;
  after: ReplayedSide;
  width: number;
  palette: Palette;
  colours: { compute: string; transfer: string };
  words: { rank: (rank: number) => string; transfers: string; before: string; after: string };
}

export const PAIR_ROW_PX = 30;
const GUTTER_PX = 84;
const AXIS_PX = 20;
const BAR_PX = 11;

/** How tall the picture is: an axis, a row per rank and one for what moves between them. */
export const pairHeight = (ranks: number): number => AXIS_PX + (ranks + 1) * PAIR_ROW_PX + 4;

/** Draw both sides into a context that is scaled to CSS pixels. */
export function drawPair(context: CanvasRenderingContext2D, drawing: PairDrawing): void {
  const { ranks, before, after, width, palette } = drawing;
  const height = pairHeight(ranks.length);
  context.clearRect(0, 0, width, height);
  const longest = Math.max(before.step_ms, after.step_ms, 1e-9);
  const scale = (width - GUTTER_PX - 8) / longest;
  drawEnds(context, drawing, scale, height);
  context.textBaseline = "middle";
  context.font = "11px sans-serif";
  const rows = [...ranks, null];
  rows.forEach((rank, i) => {
    const top = AXIS_PX + i * PAIR_ROW_PX;
    context.fillStyle = palette.text;
    const label = rank === null ? drawing.words.transfers : drawing.words.rank(rank);
    context.fillText(label, 4, top + BAR_PX + 1, GUTTER_PX - 8);
    [before, after].forEach((side, n) => {
      context.globalAlpha = n === 0 ? 0.45 : 1;
      drawBar(context, drawing, side, { rank, top: top + 2 + n * (BAR_PX + 1), scale });
    });
    context.globalAlpha = 1;
  });
}

function drawBar(
  context: CanvasRenderingContext2D,
  { colours, palette }: PairDrawing,
  { pieces }: ReplayedSide,
  place: { rank: number | null; top: number; scale: number },
): void {
  for (const piece of pieces) {
    if (piece.rank !== place.rank) continue;
    const left = GUTTER_PX + piece.start_ms * place.scale;
    const wide = Math.max(0.5, (piece.end_ms - piece.start_ms) * place.scale);
    context.fillStyle = colours[piece.kind];
    context.fillRect(left, place.top, wide, BAR_PX);
    if (wide > 3) {
      context.fillStyle = palette.line;
      context.fillRect(left + wide - 0.5, place.top, 0.5, BAR_PX);
    }
  }
}

/** Where each side's step ends, with its time. */
function drawEnds(
  context: CanvasRenderingContext2D,
  { before, after, width, palette, words }: PairDrawing,
  scale: number,
  height: number,
): void {
  context.font = "11px sans-serif";
  context.textBaseline = "middle";
  const sides = [
    { side: before, label: words.before, colour: palette.muted },
    { side: after, label: words.after, colour: palette.selected },
  ].sort((a, b) => b.side.step_ms - a.side.step_ms);
  // The later end first: its label keeps inside the picture, the other's to the left of it.
  let most = width - 2;
  for (const { side, label, colour } of sides) {
    const x = GUTTER_PX + side.step_ms * scale;
    context.strokeStyle = colour;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, AXIS_PX - 4);
    context.lineTo(Math.round(x) + 0.5, height);
    context.stroke();
    context.fillStyle = colour;
    const text = `${label} ${formatNs(side.step_ms * 1e6)}`;
    const wide = context.measureText(text).width;
    const left = Math.max(0, Math.min(x, most) - wide);
    context.fillText(text, left, AXIS_PX / 2);
    most = left - 10;
  }
}

/** The piece under a point, on either side; null where there is none. */
export function pieceAt(
  { ranks, before, after, width }: Pick<PairDrawing, "ranks" | "before" | "after" | "width">,
  x: number,
  y: number,
): { piece: Piece; changed: boolean } | null {
  const row = Math.floor((y - AXIS_PX) / PAIR_ROW_PX);
  if (row < 0 || row > ranks.length) return null;
  const rank = row === ranks.length ? null : ranks[row];
  const inside = y - AXIS_PX - row * PAIR_ROW_PX - 2;
  const changed = inside >= BAR_PX + 1;
  const longest = Math.max(before.step_ms, after.step_ms, 1e-9);
  const time = ((x - GUTTER_PX) / (width - GUTTER_PX - 8)) * longest;
  const found = (changed ? after : before).pieces.find(
    (piece) => piece.rank === rank && piece.start_ms <= time && time < piece.end_ms,
  );
  return found ? { piece: found, changed } : null;
}
