import type { ReactNode } from "react";
import { useMemo, useState } from "react";
import { formatCount, formatValue } from "@/base/format";
import { Icon } from "@/base/ui/Icon";
import { saveFile } from "@/features/traces/saving";
import { filterRows, printCsv, sortRows } from "@/features/traces/tables";
import { shorten } from "@/features/traces/words";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/DataTable.module.css";
import { tracesTexts as texts } from "@/texts";

export interface DataColumn<Row> {
  key: keyof Row & string;
  label: string;
  /** How a value is shown; numbers are to the right unless it says text. */
  show?: (row: Row) => ReactNode;
  text?: boolean;
}

const PAGE = 100;

/** A table that can be sorted by every column, filtered by any text and saved as CSV. */
export function DataTable<Row extends object>({
  name,
  rows,
  columns,
  first,
  keyOf,
  onChoose,
}: {
  name: string;
  rows: readonly Row[];
  columns: readonly DataColumn<Row>[];
  /** The column that it is sorted by at first, the largest on top. */
  first?: keyof Row & string;
  keyOf?: (row: Row, i: number) => string;
  onChoose?: (row: Row) => void;
}) {
  const [sort, setSort] = useState<{ key: keyof Row & string; descending: boolean } | null>(
    first ? { key: first, descending: true } : null,
  );
  const [filter, setFilter] = useState("");
  const [count, setCount] = useState(PAGE);
  const keys = useMemo(() => columns.map(({ key }) => key), [columns]);
  const kept = useMemo(() => {
    const found = filterRows(rows, keys, filter);
    return sort ? sortRows(found, sort.key, sort.descending) : found;
  }, [rows, keys, filter, sort]);
  const order = (key: keyof Row & string) =>
    setSort({ key, descending: sort?.key === key ? !sort.descending : true });
  return (
    <div className={styles["table"]} data-table={name}>
      <div className={styles["bar"]}>
        <label className={ui["field"]}>
          <span className={ui["visually-hidden"]}>{texts.filterTable(name)}</span>
          <input
            type="text"
            placeholder={texts.filter}
            value={filter}
            onChange={(event) => setFilter(event.target.value)}
          />
        </label>
        <span className={ui["muted"]} role="status">
          {texts.rowCount(formatCount(kept.length))}
        </span>
        <span className={pageStyles["spring"]} />
        <button
          className={ui["button"]}
          type="button"
          onClick={() => saveFile(printCsv(kept, keys), "text/csv", `${name}.csv`)}
        >
          <Icon name="download" /> {texts.csv}
        </button>
      </div>
      <div className={pageStyles["page-scroll"]}>
        <table className={pageStyles["page-table"]} aria-label={name}>
          <thead>
            <tr>
              {columns.map(({ key, label, text }) => (
                <th
                  key={key}
                  className={text ? undefined : pageStyles["figure"]}
                  aria-sort={
                    sort?.key === key ? (sort.descending ? "descending" : "ascending") : "none"
                  }
                >
                  <button type="button" className={ui["link"]} onClick={() => order(key)}>
                    {label} {sort?.key === key ? (sort.descending ? "↓" : "↑") : ""}
                  </button>
                </th>
              ))}
              {onChoose && (
                <th>
                  <span className={ui["visually-hidden"]}>{texts.open}</span>
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {kept.slice(0, count).map((row, i) => (
              <tr key={keyOf?.(row, i) ?? i}>
                {columns.map((column) => (
                  <td key={column.key} className={column.text ? undefined : pageStyles["figure"]}>
                    <Shown row={row} column={column} />
                  </td>
                ))}
                {onChoose && (
                  <td>
                    <button className={ui["link"]} type="button" onClick={() => onChoose(row)}>
                      {texts.show}
                    </button>
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {kept.length > count && (
        <button className={ui["link"]} type="button" onClick={() => setCount(count + PAGE)}>
          {texts.more(formatCount(kept.length - count))}
        </button>
      )}
    </div>
  );
}

function Shown<Row extends object>({ row, column }: { row: Row; column: DataColumn<Row> }) {
  if (column.show) return column.show(row);
  const value: unknown = row[column.key];
  if (typeof value === "number")
    return Number.isInteger(value) ? formatCount(value) : formatValue(value);
  if (typeof value === "boolean") return value ? texts.yes : texts.no;
  const text = value === null || value === undefined ? "–" : String(value);
  return text.length > 120 ? <span title={shorten(text, 500)}>{shorten(text, 120)}</span> : text;
}
