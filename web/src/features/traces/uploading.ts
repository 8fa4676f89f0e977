/** Files on their way to the server: in parts, one file after the other, resumed where they stopped. */

import type { TraceFile } from "@/features/traces/documents";

export interface Sending {
  name: string;
  bytes: number;
  sent: number;
  state: "waiting" | "sending" | "done" | "refused" | "failed";
  note: string;
}

/** What the upload needs of the server; tests hand in their own. */
export interface UploadTarget {
  list: () => Promise<TraceFile[]>;
  send: (file: string, offset: number, bytes: number, part: Blob) => Promise<TraceFile>;
}

export interface SendLimits {
  files: number;
  file_bytes: number;
}

const PART_BYTES = 8 << 20;
const ATTEMPTS = 3;

/** The state of each file before anything is sent; those that are too large are refused at once. */
export function planUpload(
  files: readonly Pick<File, "name" | "size">[],
  limits: SendLimits | null,
  words: { tooLarge: string; tooMany: string; empty: string },
): Sending[] {
  return files.map(({ name, size }, i) => {
    const note =
      size === 0
        ? words.empty
        : limits && size > limits.file_bytes
          ? words.tooLarge
          : limits && i >= limits.files
            ? words.tooMany
            : "";
    return { name, bytes: size, sent: 0, state: note ? "refused" : "waiting", note };
  });
}

/** Send files part by part; what the server has already is not sent again. */
export async function sendFiles(
  files: readonly File[],
  plan: Sending[],
  target: UploadTarget,
  report: (plan: Sending[]) => void,
  signal: AbortSignal,
): Promise<boolean> {
  const known = new Map((await target.list()).map((file) => [file.file, file]));
  for (let i = 0; i < files.length && !signal.aborted; i++) {
    if (plan[i].state === "refused" || plan[i].state === "done") continue;
    const change = (news: Partial<Sending>) => {
      plan = plan.map((one, k) => (k === i ? { ...one, ...news } : one));
      report(plan);
    };
    await sendFile(files[i], known.get(files[i].name)?.received ?? 0, target, change, signal);
  }
  return !signal.aborted && plan.every(({ state }) => state === "done" || state === "refused");
}

async function sendFile(
  file: File,
  received: number,
  target: UploadTarget,
  change: (news: Partial<Sending>) => void,
  signal: AbortSignal,
): Promise<void> {
  let offset = Math.min(received, file.size);
  let failures = 0;
  change({ state: "sending", sent: offset, note: "" });
  while (offset < file.size && !signal.aborted) {
    try {
      const part = file.slice(offset, offset + PART_BYTES);
      const answer = await target.send(file.name, offset, file.size, part);
      if (answer.state === "refused") {
        change({ state: "refused", note: answer.note });
        return;
      }
      offset = answer.received;
      failures = 0;
      change({ sent: offset });
    } catch (error) {
      if (++failures >= ATTEMPTS || isFinal(error)) {
        const note = error instanceof Error ? error.message : String(error);
        change({ state: "failed", note });
        return;
      }
      // The server knows best how much of it has arrived.
      offset = (await receivedOf(target, file.name)) ?? offset;
    }
  }
  if (!signal.aborted) change({ state: "done", sent: file.size });
}

/** Whether trying again cannot help: too large, gone, or not understood. A wrong offset (409) can be mended. */
function isFinal(error: unknown): boolean {
  const status = (error as { status?: number }).status ?? 0;
  return status >= 400 && status < 500 && status !== 409 && status !== 408;
}

async function receivedOf(target: UploadTarget, name: string): Promise<number | null> {
  try {
    return (await target.list()).find((file) => file.file === name)?.received ?? null;
  } catch {
    return null;
  }
}
