import { describe, expect, it } from "vitest";
import { isMissingCode, mayReloadFor } from "@/app/missingCode";

class Kept implements Storage {
  private readonly map = new Map<string, string>();
  length = 0;
  clear = () => this.map.clear();
  key = () => null;
  getItem = (name: string) => this.map.get(name) ?? null;
  setItem = (name: string, value: string) => void this.map.set(name, value);
  removeItem = (name: string) => void this.map.delete(name);
}

describe("code that did not come", () => {
  it("is told from errors of the page, in every engine's words", () => {
    const said = [
      "Failed to fetch dynamically imported module: http://host/assets/Jobs-1.js",
      "error loading dynamically imported module: http://host/assets/Jobs-1.js",
      "Importing a module script failed.",
      "Unable to preload CSS for /assets/Jobs-1.css",
    ];
    for (const message of said) expect(isMissingCode(new TypeError(message))).toBe(true);
    expect(isMissingCode(new TypeError("x is undefined"))).toBe(false);
  });

  it("is loaded anew once, not in a loop", () => {
    const storage = new Kept();
    expect(mayReloadFor(storage, 1_000_000)).toBe(true);
    expect(mayReloadFor(storage, 1_002_000)).toBe(false);
    expect(mayReloadFor(storage, 1_030_000)).toBe(true);
  });
});
