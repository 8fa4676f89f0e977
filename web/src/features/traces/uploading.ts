/** Files on their way to the server: in parts, a few files at a time, resumed where they stopped. */

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
  /** Every file that has arrived, or the one that is named. */
  list: (file?: string) => Promise<TraceFile[]>;
  send: (file: string, offset: number, bytes: number, part: Blob) => Promise<TraceFile>;
}

export interface SendLimits {
  files: number;
  file_bytes: number;
}

const PART_BYTES = 8 << 20;
const ATTEMPTS = 3;
/** Files on their way at the same time: small ones wait for the server's disk, not for the network. */
const AT_ONCE = 4;
const REPORT_MS = 100;
const LONGEST_NAME = 200;

/** A file's name in its run: with the folders it lies in, so that equal names in two of them stay apart. */
export function nameInRun(file: Pick<File, "name" | "webkitRelativePath">): string {
  return (file.webkitRelativePath || file.name).slice(-LONGEST_NAME);
}

/** The state of each file before anything is sent; those that are too large are refused at once. */
export function planUpload(
  files: readonly Pick<File, "name" | "size" | "webkitRelativePath">[],
  limits: SendLimits | null,
  words: { tooLarge: string; tooMany: string; empty: string },
): Sending[] {
  return files.map((file, i) => {
    const { size } = file;
    const note =
      size === 0
        ? words.empty
        : limits && size > limits.file_bytes
          ? words.tooLarge
          : limits && i >= limits.files
            ? words.tooMany
            : "";
    return {
      name: nameInRun(file),
      bytes: size,
      sent: 0,
      state: note ? "refused" : "waiting",
      note,
    };
  });
}

/** Send files part by part, a few at a time; what the server has already is not sent again. */
export async function sendFiles(
  files: readonly File[],
  plan: readonly Sending[],
  target: UploadTarget,
  report: (plan: Sending[]) => void,
  signal: AbortSignal,
): Promise<boolean> {
  const known = new Map((await target.list()).map((file) => [file.file, file]));
  const states = [...plan];
  const soon = reportSoon(() => report([...states]));
  let next = 0;
  const work = async () => {
    while (next < files.length && !signal.aborted) {
      const i = next++;
      if (states[i].state === "refused" || states[i].state === "done") continue;
      const change = (news: Partial<Sending>) => {
        states[i] = { ...states[i], ...news };
        soon.changed();
      };
      const { name } = states[i];
      await sendFile(files[i], name, known.get(name)?.received ?? 0, target, change, signal);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  soon.now();
  return !signal.aborted && states.every(({ state }) => state === "done" || state === "refused");
}

/** Report at most every tenth of a second: thousands of small files would draw the list for each of their states. */
function reportSoon(report: () => void): { changed: () => void; now: () => void } {
  let timer: ReturnType<typeof setTimeout> | null = null;
  const now = () => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    report();
  };
  return { changed: () => (timer ??= setTimeout(now, REPORT_MS)), now };
}

async function sendFile(
  file: File,
  name: string,
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
      const answer = await target.send(name, offset, file.size, part);
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
      offset = (await receivedOf(target, name)) ?? offset;
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
    return (await target.list(name)).find((file) => file.file === name)?.received ?? null;
  } catch {
    return null;
  }
}
