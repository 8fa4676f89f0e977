/** Rows of any table: sorted, filtered, and as CSV. */

export type Cell = string | number | boolean | null | undefined | readonly unknown[];
export type AnyRow = Readonly<Record<string, Cell>>;

/** Order rows by a column; what is missing comes last in either direction. */
export function sortRows<Row extends object>(
  rows: readonly Row[],
  key: keyof Row,
  descending: boolean,
): Row[] {
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [u, v] = [a[key], b[key]];
    if (u === null || u === undefined) return v === null || v === undefined ? 0 : 1;
    if (v === null || v === undefined) return -1;
    if (typeof u === "number" && typeof v === "number") return sign * (u - v);
    return sign * String(u).localeCompare(String(v), "en", { numeric: true });
  });
}

/** Rows in which any column speaks of a text. */
export function filterRows<Row extends object>(
  rows: readonly Row[],
  keys: readonly (keyof Row)[],
  text: string,
): Row[] {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [...rows];
  return rows.filter((row) =>
    keys.some((key) =>
      String(row[key] ?? "")
        .toLowerCase()
        .includes(wanted),
    ),
  );
}

/** Rows as CSV; a text that a spreadsheet would take for a formula is quoted with an apostrophe. */
export function printCsv<Row extends object>(
  rows: readonly Row[],
  keys: readonly (keyof Row)[],
): string {
  const cell = (value: unknown) => {
    let text = value === null || value === undefined ? "" : String(value);
    if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  const lines = rows.map((row) => keys.map((key) => cell(row[key])).join(","));
  return [keys.join(","), ...lines].join("\n") + "\n";
}
