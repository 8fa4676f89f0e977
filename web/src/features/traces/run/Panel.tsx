import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import pageStyles from "@/base/ui/page.module.css";
import styles from "@/features/traces/run/Run.module.css";
import { tracesTexts as texts } from "@/texts";

/** A part of the page that waits for a table: what it says meanwhile, when there is nothing, and on an error. */
export function Panel<Rows extends { rows: readonly unknown[] }>({
  query,
  empty,
  children,
}: {
  query: UseQueryResult<Rows>;
  empty: string;
  children: (data: Rows) => ReactNode;
}) {
  if (query.isError)
    return (
      <p className={pageStyles["page-notice"]} role="alert">
        {query.error.message}
      </p>
    );
  if (!query.data)
    return (
      <p className={pageStyles["page-notice"]} role="status">
        {texts.loading}
      </p>
    );
  if (query.data.rows.length === 0)
    return (
      <p className={pageStyles["page-notice"]} role="status">
        {empty}
      </p>
    );
  return <div className={styles["panel"]}>{children(query.data)}</div>;
}
