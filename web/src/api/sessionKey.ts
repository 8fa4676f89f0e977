/** The key of this browser's session: sent with every change, and known to no other port of the same host. */

const KEY = "marey-session-key";
export const KEY_HEADER = "X-Marey-Key";
/** Told when the server no longer knows who is asking. */
export const SIGNED_OUT = "marey-signed-out";

export function keepSessionKey(key: string): void {
  try {
    localStorage.setItem(KEY, key);
  } catch {
    // A browser that keeps nothing can look, and change nothing.
  }
}

export function forgetSessionKey(): void {
  try {
    localStorage.removeItem(KEY);
  } catch {
    // There was none.
  }
}

/** The key that this browser has; null for none. */
export function readSessionKey(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** What a request is sent with: changes carry the key. */
export function keyHeaders(method: string): Record<string, string> {
  const key = method === "GET" ? null : readSessionKey();
  return key === null ? {} : { [KEY_HEADER]: key };
}
