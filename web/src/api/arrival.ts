/** How somebody arrives signed in: by the link that the server printed, or back from the provider. */

import { postJson } from "@/api/client";
import type { Document } from "@/api/documents";
import { withPrefix } from "@/api/prefix";
import { keepSessionKey } from "@/api/sessionKey";

export type Arrival =
  { kind: "token"; token: string } | { kind: "session"; key: string; page: string };

/** What the fragment of an address says, which is sent to no server. */
export function readArrival(hash: string): Arrival | null {
  const told = new URLSearchParams(hash.replace(/^#/, ""));
  const key = told.get("session-key");
  if (key) return { kind: "session", key, page: samePage(told.get("page") ?? "/") };
  const token = told.get("key");
  return token ? { kind: "token", token } : null;
}

/** A page of this app; the first one for anything that leads elsewhere. */
export function samePage(page: string): string {
  const leads = page.startsWith("/") && !page.startsWith("//") && !/[\\\s]/.test(page);
  return leads ? page : "/";
}

/** Begin a session with a token or key. */
export async function signIn(token: string): Promise<Document<"Myself">> {
  const begun = await postJson<Document<"SignedInSession">>("/sign-in", { token });
  keepSessionKey(begun.session_key);
  return begun.me;
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
    else {
      keepSessionKey(arrival.key);
      keepSessionKey((await postJson<Document<"SessionKey">>("/session/key", {})).session_key);
    }
  } catch (error) {
    // A link of an earlier start of the server: whoever may look without it still can.
    console.warn(error instanceof Error ? error.message : error);
  }
}
