/** What a rank does at a moment, and the colour of each kind in both themes. */

import type { Rgb, Theme } from "@/base/colour";
import { packed } from "@/base/colour";

/** Kinds in the order of their codes in the server's pictures; the last four are idle, by cause. */
export const KINDS = [
  "nothing",
  "compute",
  "collective",
  "send",
  "receive",
  "copy",
  "wait",
  "host",
  "input",
  "idle",
] as const;

export type Kind = (typeof KINDS)[number];

export const KIND_CODES: Readonly<Record<Kind, number>> = Object.fromEntries(
  KINDS.map((kind, code) => [kind, code]),
) as Record<Kind, number>;

/** Whether a kind is drawn over what runs beside it on the same row: only communication that nothing hides shows. */
export const isAbove = (code: number): boolean => code === KIND_CODES.compute;

/** Whether a kind lies under everything else: a send beside a receive is mostly a buffer that waits to be taken. */
export const isUnder = (code: number): boolean => code === KIND_CODES.send;

const DARK: Record<Kind, Rgb> = {
  nothing: [20, 26, 32],
  compute: [74, 151, 201],
  collective: [230, 159, 0],
  send: [204, 121, 167],
  receive: [0, 158, 115],
  copy: [150, 140, 220],
  wait: [122, 70, 40],
  input: [196, 190, 70],
  host: [134, 96, 122],
  idle: [58, 68, 78],
};

const LIGHT: Record<Kind, Rgb> = {
  nothing: [255, 255, 255],
  compute: [58, 134, 184],
  collective: [222, 140, 0],
  send: [190, 92, 146],
  receive: [0, 140, 100],
  copy: [118, 104, 200],
  wait: [222, 178, 150],
  input: [168, 160, 30],
  host: [196, 160, 186],
  idle: [216, 222, 228],
};

/** Colours of all kinds as packed pixels, and the few other colours that the picture needs. */
export interface Palette {
  kinds: Uint32Array;
  ground: number;
  grey: number;
  /** What a rank does that its peers do not, where ranks share a line. */
  deviation: number;
  /** The ground as CSS text. */
  panel: string;
  text: string;
  muted: string;
  line: string;
  selected: string;
  accent: string;
}

export function makePalette(theme: Theme): Palette {
  const colours = theme === "dark" ? DARK : LIGHT;
  return {
    kinds: Uint32Array.from(KINDS.map((kind) => packed(colours[kind]))),
    ground: packed(colours.nothing),
    grey: packed(theme === "dark" ? [96, 104, 112] : [176, 182, 188]),
    deviation: packed(theme === "dark" ? [255, 92, 92] : [205, 30, 50]),
    panel: kindColour(theme, "nothing"),
    text: theme === "dark" ? "#e3e9ee" : "#1b242d",
    muted: theme === "dark" ? "#98a6b3" : "#556270",
    line: theme === "dark" ? "#27313b" : "#dfe4e9",
    selected: theme === "dark" ? "#ffd166" : "#b25d00",
    accent: theme === "dark" ? "#6cb6d9" : "#1c6f99",
  };
}

/** A kind's colour as CSS text. */
export function kindColour(theme: Theme, kind: Kind): string {
  const [r, g, b] = (theme === "dark" ? DARK : LIGHT)[kind];
  return `rgb(${r} ${g} ${b})`;
}

/**
 * A kernel's name as a label: without its return type, template and arguments, which are the same for all of a kind and
 * leave no room for what tells them apart.
 */
export function shortenKernel(name: string): string {
  const bare = name
    .slice(0, 400)
    .replace(/^void\s+/, "")
    .replace(/\(anonymous namespace\)::/g, "");
  const end = bare.search(/[<(]/);
  return end > 2 ? bare.slice(0, end).trimEnd() : bare;
}
