import { describe, expect, it } from "vitest";
import { withoutPrefix, withPrefix } from "@/api/prefix";

describe("the path prefix of a proxy", () => {
  it("is added once", () => {
    expect(withPrefix("/jobs?user=ada", "/marey")).toBe("/marey/jobs?user=ada");
    expect(withPrefix("/marey/jobs", "/marey")).toBe("/marey/jobs");
    expect(withPrefix("/marey?view=x", "/marey")).toBe("/marey?view=x");
  });
  it("is no part of a longer name", () => {
    expect(withPrefix("/mareys", "/marey")).toBe("/marey/mareys");
    expect(withoutPrefix("/mareys", "/marey")).toBe("/mareys");
  });
  it("is taken off for the routes", () => {
    expect(withoutPrefix("/marey/traces/run", "/marey")).toBe("/traces/run");
    expect(withoutPrefix("/marey", "/marey")).toBe("/");
    expect(withoutPrefix("/marey/", "/marey")).toBe("/");
  });
  it("changes nothing where there is none", () => {
    expect(withPrefix("/jobs", "")).toBe("/jobs");
    expect(withoutPrefix("/jobs", "")).toBe("/jobs");
  });
});
