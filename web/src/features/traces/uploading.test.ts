import { describe, expect, it } from "vitest";
import { ApiError } from "@/api/client";
import type { TraceFile } from "@/features/traces/documents";
import type { Sending, UploadTarget } from "@/features/traces/uploading";
import { planUpload, sendFiles } from "@/features/traces/uploading";

const words = { tooLarge: "too large", tooMany: "too many", empty: "empty" };
const MEGABYTE = 1 << 20;

/** A server in memory that takes parts only at the right place. */
function makeServer(
  breaks: number[] = [],
): UploadTarget & { calls: number; has: Map<string, number> } {
  const has = new Map<string, number>();
  const about = (file: string, bytes: number): TraceFile => ({
    file,
    bytes,
    received: has.get(file) ?? 0,
    state: has.get(file) === bytes ? "complete" : "partial",
    note: "",
  });
  return {
    calls: 0,
    has,
    list: () => Promise.resolve([...has.keys()].map((file) => about(file, 0))),
    send(file, offset, bytes, part) {
      if (breaks.includes(++this.calls)) return Promise.reject(new ApiError(0, "no answer"));
      if (offset !== (has.get(file) ?? 0)) return Promise.reject(new ApiError(409, "offset"));
      has.set(file, offset + part.size);
      return Promise.resolve(about(file, bytes));
    },
  };
}

async function upload(server: UploadTarget, files: File[]): Promise<[boolean, Sending[]]> {
  let plan = planUpload(files, { files: 20_000, file_bytes: 100 * MEGABYTE }, words);
  const whole = await sendFiles(
    files,
    plan,
    server,
    (news) => (plan = news),
    new AbortController().signal,
  );
  return [whole, plan];
}

describe("an upload", () => {
  const file = new File([new Uint8Array(20 * MEGABYTE)], "rank0.json");

  it("goes in parts", async () => {
    const server = makeServer();
    expect(await upload(server, [file])).toMatchObject([true, [{ state: "done" }]]);
    expect(server.calls).toBe(3);
  });

  it("goes on where it stopped", async () => {
    const server = makeServer();
    server.has.set("rank0.json", 12 * MEGABYTE);
    expect((await upload(server, [file]))[0]).toBe(true);
    expect(server.calls).toBe(1);
  });

  it("tries again after a break and gives up after three in a row", async () => {
    expect((await upload(makeServer([2]), [file]))[0]).toBe(true);
    const [whole, plan] = await upload(makeServer([2, 3, 4]), [file]);
    expect(whole).toBe(false);
    expect(plan[0]).toMatchObject({ state: "failed", note: "no answer", sent: 8 * MEGABYTE });
  });

  it("refuses what is empty, too large or too much before anything is sent", () => {
    const sizes = [0, 5, 50, 5].map((size, i) => ({
      name: `${i}`,
      size,
      webkitRelativePath: "",
    }));
    const plan = planUpload(sizes, { files: 3, file_bytes: 10 }, words);
    expect(plan.map(({ note }) => note)).toEqual(["empty", "", "too large", "too many"]);
  });

  it("keeps files of one name in two folders apart", async () => {
    const server = makeServer();
    const files = ["rank0", "rank1"].map((folder) => {
      const trace = new File(["{}"], "trace.json");
      return Object.defineProperty(trace, "webkitRelativePath", { value: `${folder}/trace.json` });
    });
    expect((await upload(server, files))[0]).toBe(true);
    expect([...server.has.keys()]).toEqual(["rank0/trace.json", "rank1/trace.json"]);
  });

  it("takes a file of each of 16,384 ranks, and tells of them in turns", async () => {
    const server = makeServer();
    const files = Array.from({ length: 16_384 }, (_, rank) => new File(["{}"], `rank${rank}.json`));
    let reports = 0;
    const plan = planUpload(files, { files: 20_000, file_bytes: MEGABYTE }, words);
    const { signal } = new AbortController();
    expect(await sendFiles(files, plan, server, () => reports++, signal)).toBe(true);
    expect(server.has.size).toBe(16_384);
    expect(reports).toBeLessThan(1000);
  });
});
