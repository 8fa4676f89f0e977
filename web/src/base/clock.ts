/** How moments are written on every page: as people of this place do, or as ISO 8601. */

export type ClockFormat = "locale" | "iso";

const KEY = "marey.clock";

function safely<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    return null;
  }
}

/** What the reader has chosen; local words unless told otherwise. */
export function chosenClock(): ClockFormat {
  return safely(() => localStorage.getItem(KEY)) === "iso" ? "iso" : "locale";
}

/** Choose, and show every moment anew. */
export function chooseClock(format: ClockFormat): void {
  safely(() => localStorage.setItem(KEY, format));
  location.reload();
}

/** A moment as ISO 8601 in the reader's zone, to the minute: "2026-11-18 14:05". */
export function isoMinute(timeMs: number): string {
  const date = new Date(timeMs);
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${String(date.getFullYear())}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** The reader's own English; for others 24 hours and the day before the month. */
export function readersLocale(
  language: string | undefined = globalThis.navigator?.language,
): string {
  return language && /^en\b/.test(language) ? language : "en-GB";
}

const CHOSEN = chosenClock();
const LOCALE = readersLocale();

/** A moment to the minute, in the format that was chosen. */
export function formatMoment(timeMs: number, clock = CHOSEN, locale = LOCALE): string {
  if (clock === "iso") return isoMinute(timeMs);
  return new Date(timeMs).toLocaleString(locale, { dateStyle: "medium", timeStyle: "short" });
}

/** A day as an axis writes it: "18 Nov", "Nov 18" or "11-18". */
export function formatDay(timeMs: number, clock = CHOSEN, locale = LOCALE): string {
  if (clock === "iso") return isoMinute(timeMs).slice(5, 10);
  return new Date(timeMs).toLocaleDateString(locale, { day: "numeric", month: "short" });
}

/** The time of day: "14:05", "2:05 PM", with seconds where they matter. */
export function formatTimeOfDay(
  timeMs: number,
  seconds = false,
  clock = CHOSEN,
  locale = LOCALE,
): string {
  return new Date(timeMs).toLocaleTimeString(clock === "iso" ? "en-GB" : locale, {
    hour: "numeric",
    minute: "2-digit",
    ...(seconds ? { second: "2-digit" } : {}),
  });
}
