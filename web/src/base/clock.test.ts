import { expect, it } from "vitest";
import {
  chosenClock,
  formatDay,
  formatMoment,
  formatTimeOfDay,
  isoMinute,
  readersLocale,
} from "@/base/clock";
import { formatTime } from "@/base/format";

const MOMENT = new Date(2026, 10, 8, 14, 5, 59).getTime();
const usual = (text: string) => text.replace(/\s/g, " ");

it("writes a moment in the reader's zone, to the minute", () => {
  expect(isoMinute(MOMENT)).toBe("2026-11-08 14:05");
});

it("speaks as the reader does where nothing is chosen or can be kept", () => {
  expect(chosenClock()).toBe("locale");
  expect(formatTime(null)).toBe("–");
  expect([readersLocale("en-US"), readersLocale("de-DE"), readersLocale("")]).toEqual([
    "en-US",
    "en-GB",
    "en-GB",
  ]);
});

it("writes moments, days and times of day in one format", () => {
  expect(formatMoment(MOMENT, "locale", "en-GB")).toBe("8 Nov 2026, 14:05");
  expect(usual(formatMoment(MOMENT, "locale", "en-US"))).toBe("Nov 8, 2026, 2:05 PM");
  expect(formatMoment(MOMENT, "iso", "en-US")).toBe("2026-11-08 14:05");
  expect(formatDay(MOMENT, "locale", "en-US")).toBe("Nov 8");
  expect(formatDay(MOMENT, "iso", "en-US")).toBe("11-08");
  expect(formatTimeOfDay(MOMENT, false, "iso", "en-US")).toBe("14:05");
  expect(usual(formatTimeOfDay(MOMENT, true, "locale", "en-US"))).toBe("2:05:59 PM");
});
