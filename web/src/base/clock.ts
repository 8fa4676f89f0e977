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
