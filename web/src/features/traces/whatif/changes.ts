/** The changes of a what-if as they stand in the address: `bucket=1MB;link=x2`. */

export interface Change {
  word: string;
  value: string;
}

const MOST = 50;

export function parseChanges(text: string): Change[] {
  return text
    .split(";")
    .map((part) => part.trim())
    .filter((part) => part.includes("="))
    .slice(0, MOST)
    .map((part) => {
      const at = part.indexOf("=");
      return { word: part.slice(0, at), value: part.slice(at + 1) };
    });
}

export const printChange = ({ word, value }: Change): string => `${word}=${value}`;

export const printChanges = (changes: readonly Change[]): string =>
  changes.map(printChange).join(";");

/** The changes with a word set to a value, or without it where the value is empty. */
export function setChange(changes: readonly Change[], word: string, value: string): Change[] {
  const rest = changes.filter((change) => change.word !== word);
  const at = changes.findIndex((change) => change.word === word);
  if (value !== "") rest.splice(at < 0 ? rest.length : at, 0, { word, value });
  return rest;
}

export const valueOf = (changes: readonly Change[], word: string): string =>
  changes.find((change) => change.word === word)?.value ?? "";

const STEPS_PER_DOUBLING = 4;

/** A factor such as "x2" as the place of a slider, on a scale of doublings; 0 stands for no change. */
export function factorToSlider(text: string): number {
  const factor = Number(/^x([\d.]+)$/.exec(text)?.[1] ?? 1);
  return factor > 0 ? Math.round(Math.log2(factor) * STEPS_PER_DOUBLING) : 0;
}

/** The place of a slider as a factor; empty where nothing is changed. */
export function sliderToFactor(place: number): string {
  if (place === 0) return "";
  return `x${Number((2 ** (place / STEPS_PER_DOUBLING)).toPrecision(3))}`;
}

/** The places that a slider between two factors has. */
export const sliderRange = (least: number, largest: number): [number, number] => [
  Math.round(Math.log2(Math.max(least, 0.125)) * STEPS_PER_DOUBLING),
  Math.round(Math.log2(largest) * STEPS_PER_DOUBLING),
];
