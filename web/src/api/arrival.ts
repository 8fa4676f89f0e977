/** How somebody arrives signed in: by the link that the server printed, or back from the provider. */

import { postJson } from "@/api/client";
import type { Document } from "@/api/documents";
import { withPrefix } from "@/api/prefix";
import { forgetSessionKey, keepSessionKey, readSessionKey } from "@/api/sessionKey";

/**
 * How the key of a local server's owner begins. An API token in a link could be anybody's: whoever
 * followed it would work in another's name.
 */
const OWNERS_KEY = "owner_";

export type Arrival =
  { kind: "token"; token: string } | { kind: "session"; key: string; page: string };

/** What the fragment of an address says, which is sent to no server. */
export function readArrival(hash: string): Arrival | null {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const key = fields.get("session-key");
  if (key) return { kind: "session", key, page: samePage(fields.get("page") ?? "/") };
  const token = fields.get("key");
  return token?.startsWith(OWNERS_KEY) ? { kind: "token", token } : null;
}

/** A page of this app; the first one for anything that leads elsewhere. */
export function samePage(page: string): string {
  const path = page.split(/[?#]/, 1)[0] ?? "";
  const leads = path.startsWith("/") && !path.includes("//") && !/[\\\s]/.test(page);
  return leads ? page : "/";
}

/** Begin a session with a token or key. */
export async function signIn(token: string): Promise<Document<"CurrentUser">> {
  const begun = await postJson<Document<"SignedInSession">>("/sign-in", { token });
  keepSessionKey(begun.session_key);
  return begun.me;
}

/** Exchange the key that came with the address; one that is not this session's replaces nothing. */
async function renewSessionKey(given: string): Promise<string> {
  const before = readSessionKey();
  keepSessionKey(given);
  try {
    return (await postJson<Document<"SessionKey">>("/session/key", {})).session_key;
  } catch (error) {
    if (before === null) forgetSessionKey();
    else keepSessionKey(before);
    throw error;
  }
}

/** Take over what the address brought, and remove it from there. */
export async function arrive(): Promise<void> {
  const arrival = readArrival(location.hash);
  if (arrival === null) return;
  const page =
    arrival.kind === "session" ? withPrefix(arrival.page) : location.pathname + location.search;
  history.replaceState(null, "", page);
  try {
    if (arrival.kind === "token") await signIn(arrival.token);
    else keepSessionKey(await renewSessionKey(arrival.key));
  } catch (error) {
    // A link of an earlier start of the server: whoever may look without it still can.
    console.warn(error instanceof Error ? error.message : error);
  }
}
