/** Values as people read them: few digits, thin units, durations and states in words. */

import { formatMoment } from "@/base/clock";
import { baseTexts as texts } from "@/texts";

const THIN = "\u2009";

/** A count with separators. */
export function formatCount(value: number): string {
  return Number.isInteger(value)
    ? value.toLocaleString("en")
    : value.toLocaleString("en", { maximumFractionDigits: 1 });
}

/** A duration: "45 s", "12 min", "3 h 20 min", "2 d 4 h". */
export function formatDuration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}${THIN}s`;
  if (s < 3600) return `${Math.floor(s / 60)}${THIN}min`;
  if (s < 86_400) return joined(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return joined(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3600), "h");
}

function joined(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small > 0
    ? `${large}${THIN}${largeUnit} ${small}${THIN}${smallUnit}`
    : `${large}${THIN}${largeUnit}`;
}

/** A value with its unit, to three significant digits; seconds become words. */
export function formatValue(value: number | null | undefined, unit = ""): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (unit === "s") return formatDuration(value);
  const size = Math.abs(value);
  const [scaled, prefix] = unit === "%" || unit === "°C" ? [value, ""] : withPrefix(value, size);
  const digits = Math.abs(scaled) >= 100 ? 0 : Math.abs(scaled) >= 10 ? 1 : 2;
  const text = Number(scaled.toFixed(digits)).toLocaleString("en");
  const suffix = `${prefix}${unit}`;
  return suffix ? `${text}${THIN}${suffix}` : text;
}

function withPrefix(value: number, size: number): [number, string] {
  if (size >= 1e12) return [value / 1e12, "T"];
  if (size >= 1e9) return [value / 1e9, "G"];
  if (size >= 1e6) return [value / 1e6, "M"];
  if (size >= 1e5) return [value / 1e3, "k"];
  return [value, ""];
}

/** A share (0-1) in percent; what is nearly all or nearly nothing does not become it by rounding. */
export function formatShare(share: number | null): string {
  if (share === null) return "–";
  const percent = share * 100;
  if (percent >= 99.95 || percent < 0.05) return `${Math.round(percent)}${THIN}%`;
  return `${percent.toFixed(percent > 99 || percent < 1 ? 1 : 0)}${THIN}%`;
}

/** A clock time in the reader's zone, in the format that was chosen. */
export function formatTime(timeMs: number | null): string {
  if (timeMs === null || !Number.isFinite(timeMs)) return "–";
  return formatMoment(timeMs);
}

const STATES: Record<string, string> = texts.jobStates;
const ATTRIBUTES: Record<string, string> = texts.jobAttributes;

/** The state of a job as people say it; one that is not known as it came. */
export function stateWord(state: string | null | undefined): string {
  if (!state) return "–";
  return STATES[state] ?? state.replaceAll("_", " ");
}

/** The name of an attribute of a job as a label. */
export function attributeLabel(name: string): string {
  const words = ATTRIBUTES[name] ?? name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
