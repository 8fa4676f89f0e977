import { expect, test } from "vitest";
import { readArrival, samePage } from "@/api/arrival";

test("the printed link carries the owner's key, and the rest of the address stays", () => {
  expect(readArrival("#key=owner_abc")).toEqual({ kind: "token", token: "owner_abc" });
  expect(readArrival("#session-key=k&page=%2Fjobs%3Fq%3D1")).toEqual({
    kind: "session",
    key: "k",
    page: "/jobs?q=1",
  });
  expect(readArrival("#section")).toBeNull();
  expect(readArrival("#key=marey_0123456789ab_of-somebody-else")).toBeNull();
  expect(readArrival("")).toBeNull();
});

test("nobody is led to another site", () => {
  for (const page of [
    "//evil.example",
    "/.//evil.example",
    "https://evil.example",
    "/\\evil.example",
    "javascript:x",
  ])
    expect(samePage(page)).toBe("/");
  expect(samePage("/jobs?q=1//2")).toBe("/jobs?q=1//2");
});
