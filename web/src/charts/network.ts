/** Ranks and the traffic between them: places, drawing, and what a lasso catches. */

import type { Theme } from "@/base/colour";

export interface NetworkNode {
  rank: number;
  stage: number;
  /** Sets the size. */
  communication: number;
  /** 0 to 1: dark is one that waits for nobody, and so is suspected to be slow. */
  suspicion: number;
}

export interface NetworkLink {
  source: number;
  target: number;
  weight: number;
}

export type Point = readonly [number, number];

const CIRCLE_UP_TO = 48;

/** A place for each rank: few stand on a circle, many in a block per stage. */
export function placeRanks(
  nodes: readonly NetworkNode[],
  width: number,
  height: number,
): Float32Array {
  const places = new Float32Array(nodes.length * 2);
  if (nodes.length <= CIRCLE_UP_TO) {
    const radius = Math.max(20, Math.min(width, height) / 2 - 34);
    nodes.forEach((_, i) => {
      const angle = (2 * Math.PI * i) / nodes.length - Math.PI / 2;
      places[i * 2] = width / 2 + radius * Math.cos(angle);
      places[i * 2 + 1] = height / 2 + radius * Math.sin(angle);
    });
    return places;
  }
  const stages = [...new Set(nodes.map(({ stage }) => stage))].sort((a, b) => a - b);
  const block = width / stages.length;
  const seen = new Map<number, number>();
  const size = Math.max(
    ...stages.map((stage) => nodes.filter((one) => one.stage === stage).length),
  );
  const across = Math.max(1, Math.round(Math.sqrt((size * (block * 0.8)) / height)));
  const down = Math.ceil(size / across);
  nodes.forEach(({ stage }, i) => {
    const at = seen.get(stage) ?? 0;
    seen.set(stage, at + 1);
    const column = Math.floor(at / down);
    places[i * 2] =
      stages.indexOf(stage) * block + block * 0.1 + ((column + 0.5) / across) * block * 0.8;
    places[i * 2 + 1] = 16 + (((at % down) + 0.5) / down) * (height - 32);
  });
  return places;
}

export interface NetworkDrawing {
  nodes: readonly NetworkNode[];
  links: readonly NetworkLink[];
  places: Float32Array;
  width: number;
  height: number;
  theme: Theme;
  chosen: ReadonlySet<number>;
  lasso: readonly Point[];
  colours: { text: string; muted: string; accent: string; selected: string };
}

const MOST_LINKS = 1500;

/** Draw links, then nodes: size is communication, darkness is little waiting. */
export function drawNetwork(context: CanvasRenderingContext2D, drawing: NetworkDrawing): void {
  const { nodes, places, width, height, colours } = drawing;
  context.clearRect(0, 0, width, height);
  drawLinks(context, drawing);
  const most = Math.max(...nodes.map((node) => node.communication), 1e-9);
  const large = Math.min(15, Math.max(3, 260 / Math.sqrt(nodes.length) / 2.6));
  nodes.forEach((node, i) => {
    const radius = 2 + (large - 2) * Math.sqrt(Math.max(0, node.communication) / most);
    context.beginPath();
    context.arc(places[i * 2], places[i * 2 + 1], radius, 0, 2 * Math.PI);
    context.fillStyle = darkness(node.suspicion, drawing.theme);
    context.fill();
    context.lineWidth = drawing.chosen.has(node.rank) ? 3 : 1;
    context.strokeStyle = drawing.chosen.has(node.rank) ? colours.selected : colours.muted;
    context.stroke();
    if (nodes.length <= CIRCLE_UP_TO || drawing.chosen.has(node.rank)) {
      context.fillStyle = colours.text;
      context.font = "11px sans-serif";
      context.textAlign = places[i * 2] < width / 2 ? "right" : "left";
      context.textBaseline = "middle";
      const side = places[i * 2] < width / 2 ? -1 : 1;
      context.fillText(String(node.rank), places[i * 2] + side * (radius + 4), places[i * 2 + 1]);
    }
  });
  drawLasso(context, drawing);
}

function drawLinks(context: CanvasRenderingContext2D, drawing: NetworkDrawing): void {
  const { links, nodes, places, colours } = drawing;
  const at = new Map(nodes.map((node, i) => [node.rank, i]));
  const heaviest = [...links].sort((a, b) => b.weight - a.weight).slice(0, MOST_LINKS);
  const most = Math.max(heaviest[0]?.weight ?? 0, 1e-12);
  context.strokeStyle = colours.muted;
  for (const { source, target, weight } of heaviest) {
    const [a, b] = [at.get(source), at.get(target)];
    if (a === undefined || b === undefined || a === b) continue;
    context.globalAlpha = 0.12 + 0.5 * (weight / most);
    context.lineWidth = 0.6 + 2.4 * (weight / most);
    context.beginPath();
    context.moveTo(places[a * 2], places[a * 2 + 1]);
    context.lineTo(places[b * 2], places[b * 2 + 1]);
    context.stroke();
  }
  context.globalAlpha = 1;
}

function drawLasso(context: CanvasRenderingContext2D, { lasso, colours }: NetworkDrawing): void {
  if (lasso.length < 2) return;
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  context.setLineDash([4, 3]);
  context.beginPath();
  lasso.forEach(([x, y], i) => (i === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
  context.closePath();
  context.stroke();
  context.setLineDash([]);
}

/** From pale (waits a lot, so it is a victim) to strong (waits little, so it is suspected). */
function darkness(suspicion: number, theme: Theme): string {
  const t = Math.min(1, Math.max(0, suspicion));
  const mix = (pale: number, strong: number) => Math.round(pale + (strong - pale) * t);
  // On a dark page "dark" is what stands out from it.
  return theme === "light"
    ? `rgb(${mix(225, 90)} ${mix(232, 20)} ${mix(240, 30)})`
    : `rgb(${mix(58, 255)} ${mix(72, 110)} ${mix(86, 80)})`;
}

const NEAR_PX = 14;

/** The rank whose place is at a point, or nearest to it if that is near; null elsewhere. */
export function findNear(
  nodes: readonly NetworkNode[],
  places: Float32Array,
  [x, y]: Point,
): NetworkNode | null {
  let best: NetworkNode | null = null;
  let least = NEAR_PX;
  nodes.forEach((node, i) => {
    const apart = Math.hypot(places[i * 2] - x, places[i * 2 + 1] - y);
    if (apart < least) [best, least] = [node, apart];
  });
  return best;
}

/** Ranks whose places lie within a lasso. */
export function findInside(
  nodes: readonly NetworkNode[],
  places: Float32Array,
  lasso: readonly Point[],
): number[] {
  if (lasso.length < 3) return [];
  return nodes.flatMap((node, i) =>
    isInside(places[i * 2], places[i * 2 + 1], lasso) ? [node.rank] : [],
  );
}

function isInside(x: number, y: number, lasso: readonly Point[]): boolean {
  let inside = false;
  for (let i = 0, j = lasso.length - 1; i < lasso.length; j = i++) {
    const [[ax, ay], [bx, by]] = [lasso[i], lasso[j]];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}
