import { expect, test } from "vitest";
import { selectionAddress } from "@/base/addresses";
import { parseView } from "@/charts/units/view";
import { PRESETS, presetView } from "@/features/overview/views/presets";
import type { UrlState } from "@/features/overview/url";
import { printUrl, readUrl } from "@/features/overview/url";

const PLAIN: UrlState = {
  viewName: null,
  view: null,
  selection: [],
  camera: null,
  me: "",
  hold: false,
  panel: true,
  at: null,
};

test("what is printed is read back", () => {
  const state: UrlState = {
    viewName: "saved:night & day",
    view: parseView({ version: 1, layers: [{ by: "host" }], colour: { by: "util", scale: "log" } }),
    selection: [{ field: "gpu", op: "eq", value: "h:0" }],
    camera: [2.5, 0.3, 0.7],
    me: "ada?&=",
    hold: true,
    at: Date.UTC(2026, 10, 16, 8, 30),
    panel: false,
  };
  expect(readUrl(printUrl(state))).toEqual({ state, problems: [] });
});

test("the plain state needs no words", () =>
  expect(printUrl({ ...PLAIN, viewName: "everything" })).toBe(""));

test("a narrow window begins without the panel; an address that names it has it", () => {
  expect(readUrl("", false).state.panel).toBe(false);
  expect(printUrl({ ...PLAIN, panel: false }, false)).toBe("");
  const shown = printUrl({ ...PLAIN, panel: true }, false);
  expect(readUrl(shown, false).state.panel && readUrl(shown, true).state.panel).toBe(true);
});

test("nonsense is left out and reported, the rest holds", () => {
  const { state, problems } = readUrl('?doc={"version":2}&cam=1,x,2&sel=5&me=ada');
  expect(state).toEqual({ ...PLAIN, me: "ada" });
  expect(problems).toHaveLength(3);
  expect(problems[0]).toContain("version");
});

test("every preset is a valid view, and mine knows me", () => {
  expect(PRESETS.map((preset) => preset.id)).toEqual(
    expect.arrayContaining([
      "physical",
      "projects",
      "waiting",
      "fragmentation",
      "workloads",
      "idle",
      "health",
      "mine",
    ]),
  );
  expect(presetView("mine", "ada")?.filter).toEqual([{ field: "user", op: "eq", value: "ada" }]);
  expect(presetView("nothing", "")).toBeNull();
});

test("a link from another page selects what it means", () => {
  const filter = { field: "workload", op: "eq" as const, value: "4711" };
  const search = selectionAddress(filter).slice(1);
  expect(readUrl(search).state.selection).toEqual([filter]);
  const alone = `?sel=${encodeURIComponent(JSON.stringify(filter))}`;
  expect(readUrl(alone).state.selection).toEqual([filter]);
});
