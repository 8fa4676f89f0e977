/** The whole execution flow as an SVG document: nodes and edges as shapes, names as text. */

import { continuousScheme, interpolate } from "@/base/colour";
import type { FlowDrawing } from "@/charts/flow/draw";
import { cornerOf, DASHES, inkOn } from "@/charts/flow/draw";
import { NODE_HEIGHT, NODE_WIDTH } from "@/charts/flow/layout";
import type { Sharding } from "@/charts/flow/visible";
import { escapeXml } from "@/charts/marey/image/svg";

const GUTTER = 150;
const TOP = 24;
/** Names are cut to what stands in a node: an SVG cannot measure text before it is shown. */
const LONGEST_NAME = 17;

/** Build the document of all nodes, wherever the camera looks. */
export function makeFlowSvg(drawing: FlowDrawing, title: string): string {
  const { layout, palette } = drawing;
  const [width, height] = [Math.ceil(layout.width) + GUTTER, Math.ceil(layout.height) + TOP];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
      `viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="11">`,
    `<title>${escapeXml(title)}</title>`,
    `<rect width="${width}" height="${height}" fill="${palette.panel}"/>`,
    ...laneParts(drawing),
    `<g transform="translate(${GUTTER} ${TOP})">`,
    ...edgeParts(drawing),
    ...drawing.flow.nodes.map((_, node) => nodePart(drawing, node)),
    "</g></svg>",
  ].join("\n");
}

const cutName = (name: string): string =>
  name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;

const cutPath = (path: string): string =>
  path.length > LONGEST_NAME ? `…${path.slice(1 - LONGEST_NAME)}` : path;

function laneParts({ layout, palette, laneLabel }: FlowDrawing): string[] {
  const end = GUTTER + layout.width;
  return [...layout.laneTop.slice(0, -1)].map((top, lane) => {
    const y = (top + TOP).toFixed(1);
    const line = `<path d="M0 ${y}H${end}" stroke="${palette.line}"/>`;
    const at = (top + TOP + 16).toFixed(1);
    return `${line}<text x="6" y="${at}" fill="${palette.muted}">${escapeXml(laneLabel(lane))}</text>`;
  });
}

function edgeParts({ flow, layout, palette, showQuiet }: FlowDrawing): string[] {
  const { x, y } = layout;
  return flow.edges
    .filter(({ quiet }) => showQuiet || !quiet)
    .map(({ source, target, evidence }) => {
      const [from, to] = [x[source] + NODE_WIDTH / 2, x[target] - NODE_WIDTH / 2];
      const bend = Math.max(18, (to - from) / 2);
      const points = [from, y[source], from + bend, y[source], to - bend, y[target], to, y[target]];
      const [a, b, ...rest] = points.map((point) => point.toFixed(1));
      const dash = DASHES[evidence].length > 0 ? ` stroke-dasharray="${DASHES[evidence]}"` : "";
      const colour = evidence === "communication" ? palette.accent : palette.muted;
      return `<path d="M${a} ${b}C${rest.join(" ")}" fill="none" stroke="${colour}" opacity="0.7"${dash}/>`;
    });
}

function nodePart(drawing: FlowDrawing, node: number): string {
  const { flow, layout, palette, theme, values, most } = drawing;
  const shown = flow.nodes[node];
  const [left, top] = [layout.x[node] - NODE_WIDTH / 2, layout.y[node] - NODE_HEIGHT / 2];
  const colour = interpolate(continuousScheme("marey", theme), most > 0 ? values[node] / most : 0);
  const [fill, ink] = [`rgb(${colour.join(" ")})`, inkOn(colour)];
  const parts: string[] = [];
  for (let sheet = shown.copies > 1 ? 2 : 0; sheet >= 0; sheet--)
    parts.push(
      `<rect x="${(left + sheet * 4).toFixed(1)}" y="${(top - sheet * 4).toFixed(1)}" ` +
        `width="${NODE_WIDTH}" height="${NODE_HEIGHT}" rx="${cornerOf(shown)}" ` +
        `fill="${fill}" stroke="${palette.muted}"/>`,
    );
  const label = drawing.nodeLabel(node);
  const name = shown.opens ? cutPath(label) : cutName(label);
  const y = (layout.y[node] + (shown.sharding ? -3 : 4)).toFixed(1);
  parts.push(
    `<text x="${(left + 6).toFixed(1)}" y="${y}" fill="${ink}">${escapeXml(name)}</text>`,
    ...glyphParts(shown.sharding, left + 6, layout.y[node] + 3, ink),
  );
  if (shown.copies > 1)
    parts.push(
      `<text x="${(left + NODE_WIDTH - 8).toFixed(1)}" y="${(top - 11).toFixed(1)}" font-weight="bold" ` +
        `fill="${palette.text}">×${shown.copies}</text>`,
    );
  return `<g><title>${escapeXml(label)}</title>${parts.join("")}</g>`;
}

function glyphParts(sharding: Sharding | null, x: number, y: number, ink: string): string[] {
  if (!sharding) return [];
  const unknown = sharding.evidence === "unknown";
  return (unknown ? [0] : sharding.slices.slice(0, 6)).map((slices, i) => {
    const left = x + i * 16;
    const solid = sharding.evidence === "exact" && slices > 1;
    const inside = ink === "#10181f" ? "#f4f7fa" : "#10181f";
    return (
      `<rect x="${left.toFixed(1)}" y="${y.toFixed(1)}" width="13" height="9" stroke="${ink}" ` +
      `fill="${solid ? ink : "none"}"/>` +
      `<text x="${(left + 6.5).toFixed(1)}" y="${(y + 7.5).toFixed(1)}" font-size="8" font-weight="bold" ` +
      `text-anchor="middle" fill="${solid ? inside : ink}">${unknown ? "?" : slices}</text>`
    );
  });
}
