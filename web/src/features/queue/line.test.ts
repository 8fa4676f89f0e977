import { describe, expect, it } from "vitest";
import {
  partitionsOf,
  placeOnStrip,
  printAddress,
  readAddress,
  whereOf,
} from "@/features/queue/line";

describe("the waiting line", () => {
  it("keeps its filter and the job that is explained in the address", () => {
    const large = { field: "gpus", op: "ge" as const, value: 16 };
    const state = { where: [large], text: "ada", job: "4711" };
    expect(readAddress(printAddress(state))).toEqual(state);
    expect(printAddress(readAddress(""))).toBe("");
    expect(readAddress("?where=%7Bnonsense").where).toEqual([]);
  });

  it("asks the server with the predicate of every other table", () => {
    expect(whereOf(readAddress(""))).toBe("");
    const asked = JSON.parse(whereOf(readAddress("?q=ada"))) as { and: { or: unknown[] }[] };
    expect(asked.and[0].or).toContainEqual({ field: "user", op: "contains", value: "ada" });
  });

  it("names each partition once", () => {
    expect(partitionsOf([{ partition: "b" }, { partition: "" }, { partition: "b" }])).toEqual([
      "b",
    ]);
  });

  it("places a minute at the left, a week at the right, and nothing outside", () => {
    expect(placeOnStrip(1)).toBe(0);
    expect(placeOnStrip(60)).toBe(0);
    expect(placeOnStrip(7 * 86_400)).toBe(100);
    expect(placeOnStrip(1e9)).toBe(100);
    expect(placeOnStrip(3600)).toBeGreaterThan(placeOnStrip(600));
  });
});
