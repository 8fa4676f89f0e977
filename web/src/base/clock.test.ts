import { expect, it } from "vitest";
import { chosenClock, isoMinute } from "@/base/clock";
import { formatTime } from "@/base/format";

it("writes a moment in the reader's zone, to the minute", () => {
  expect(isoMinute(new Date(2026, 10, 8, 4, 5, 59).getTime())).toBe("2026-11-08 04:05");
});

it("speaks as the place does where nothing is chosen or can be kept", () => {
  expect(chosenClock()).toBe("locale");
  expect(formatTime(new Date(2026, 10, 8, 4, 5).getTime())).toBe("8 Nov 2026, 04:05");
  expect(formatTime(null)).toBe("–");
});
