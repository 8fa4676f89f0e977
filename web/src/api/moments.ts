/** The cluster at a past moment, as the message that a live client would have been sent. */

import { getBuffer } from "@/api/client";
import type { LiveMessage } from "@/api/wire";
import { readMessage } from "@/api/wire";

const SNAPSHOT = "application/vnd.marey.snapshot";

/** With a step, the picture that the server keeps for so many seconds around the moment: rough, but there at once. */
export async function fetchMoment(
  timeMs: number,
  metrics: readonly string[],
  signal: AbortSignal,
  stepS = 0,
): Promise<LiveMessage> {
  const query = {
    at: new Date(timeMs).toISOString(),
    metrics: metrics.length > 0 ? metrics : ["util"],
    ...(stepS > 0 ? { step_s: stepS } : {}),
  };
  return readMessage(await getBuffer("/cluster", SNAPSHOT, query, signal));
}
