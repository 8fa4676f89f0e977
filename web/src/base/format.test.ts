import { expect, test } from "vitest";
import { formatShare } from "@/base/format";

test("a share does not become all or nothing by rounding", () => {
  const shown = [0.9974, 0.5, 0.994, 1, 0.0026, 0].map((share) => formatShare(share));
  expect(shown.map((text) => text.replace("\u2009", " "))).toEqual([
    "99.7 %",
    "50 %",
    "99.4 %",
    "100 %",
    "0.3 %",
    "0 %",
  ]);
  expect(formatShare(null)).toBe("–");
});
