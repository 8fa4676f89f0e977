import { expect, test } from "vitest";
import { addCondition, predicateOf, printAddress, readAddress } from "@/features/jobs/address";

test("the state of the table survives its address", () => {
  const search = "?state=running&user=ada&q=bert&sort=waste&up=1&columns=name%2Cuser";
  expect(readAddress(printAddress(readAddress(search)))).toEqual(readAddress(search));
});

test("any states can be asked for, and words that are none are left out", () => {
  expect(readAddress("?state=failed").state).toBe("failed");
  expect(readAddress("?state=timeout,node_fail").state).toBe("timeout,node_fail");
  expect(readAddress("?state=nonsense,cancelled").state).toBe("cancelled");
  expect(readAddress("?state=nonsense").state).toBe("");
});

test("a text is looked for in every name, beside the filters", () => {
  const predicate = predicateOf(readAddress("?user=ada&q=bert"));
  expect(predicate).toMatchObject({ and: [{ field: "user", op: "eq", value: "ada" }, {}] });
  expect(predicateOf(readAddress(""))).toBeNull();
});

test("any predicate is part of the address, and one that makes no sense is left out", () => {
  const large = { field: "gpus_requested", op: "ge" as const, value: 64 };
  const state = { ...readAddress("?user=ada"), ...addCondition(readAddress("?user=ada"), large) };
  expect(readAddress(printAddress(state)).where).toEqual([large]);
  expect(predicateOf(state)).toEqual({ and: [{ field: "user", op: "eq", value: "ada" }, large] });
  expect(addCondition(state, { field: "user", op: "eq", value: "bo" })).toEqual({
    filters: { user: "bo" },
  });
  expect(readAddress("?where=%7Bnonsense").where).toEqual([]);
});
