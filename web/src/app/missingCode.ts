/** A page whose code could not be fetched: the server is away, or was upgraded and has other files now. */

const KEY = "marey.reloaded";
/** Once more within this time would be a loop. */
const PAUSE_MS = 20_000;

/** Whether a page failed because its code did not come; each engine says so in its own words. */
export function isMissingCode(error: Error): boolean {
  return /dynamically imported module|module script|preload CSS/i.test(error.message);
}

/** Whether to load everything anew for it, which is noted: at most once in a while. */
export function mayReloadFor(storage: Storage, nowMs: number): boolean {
  try {
    const last = Number(storage.getItem(KEY) ?? -PAUSE_MS);
    if (nowMs - last < PAUSE_MS) return false;
    storage.setItem(KEY, String(nowMs));
    return true;
  } catch {
    return false;
  }
}
