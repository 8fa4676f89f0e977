import { expect, test } from "vitest";
import { naturalCompare } from "@/base/natural";

test("numbers inside names are compared as numbers", () => {
  expect(["gpu10", "gpu2", "gpu1"].sort(naturalCompare)).toEqual(["gpu1", "gpu2", "gpu10"]);
});
