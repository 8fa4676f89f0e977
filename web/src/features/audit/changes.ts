/** What an entry of the audit record changed: the values that differ, by their path. */

import type { Document } from "@/api/documents";

export type AuditEntry = Document<"AuditEntry">;
export type AuditPage = Document<"AuditPage">;

export interface ValueChange {
  path: string;
  /** Null where there was, or is, no such value. */
  before: string | null;
  after: string | null;
}

/** The values that differ between the documents before and after, in the order of their paths. */
export function findChanges({
  before,
  after,
}: Pick<AuditEntry, "before" | "after">): ValueChange[] {
  const paths = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  return [...paths]
    .sort()
    .map((path) => ({ path, before: print(before, path), after: print(after, path) }))
    .filter((change) => change.before !== change.after);
}

function print(values: AuditEntry["before"], path: string): string | null {
  if (!values || !(path in values)) return null;
  return String(values[path]);
}
