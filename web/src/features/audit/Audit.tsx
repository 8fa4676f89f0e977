import { useInfiniteQuery } from "@tanstack/react-query";
import { Fragment, useDeferredValue, useState } from "react";
import { getBuffer, getJson } from "@/api/client";
import { formatTime } from "@/base/format";
import { Choice } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import { PageHead } from "@/base/ui/PageHead";
import { Permitted } from "@/base/ui/Permitted";
import type { AuditEntry, AuditPage } from "@/features/audit/changes";
import { findChanges } from "@/features/audit/changes";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/audit/Audit.module.css";
import { auditTexts as texts } from "@/texts";

type Kind = "" | AuditEntry["kind"];
interface Filter {
  kind: Kind;
  user: string;
  text: string;
}

const KINDS: { value: Kind; label: string }[] = [
  { value: "", label: texts.all },
  { value: "change", label: texts.changes },
  { value: "sign-in", label: texts.signIns },
  { value: "refusal", label: texts.refusals },
];
const LABELS: Record<AuditEntry["kind"], string> = {
  change: texts.change,
  "sign-in": texts.signIn,
  refusal: texts.refusal,
};
const COLUMNS = [texts.time, texts.kind, texts.user, texts.peer, texts.what, texts.status];
const FORMATS = [
  { format: "csv", media: "text/csv" },
  { format: "jsonl", media: "application/jsonl" },
] as const;

/** Who changed what, who signed in, who was refused: for admins. */
export function Audit() {
  const [filter, setFilter] = useState<Filter>({ kind: "", user: "", text: "" });
  const set = (change: Partial<Filter>) => setFilter({ ...filter, ...change });
  const record = useRecord(useDeferredValue(filter));
  const rows = record.data?.pages.flatMap((page) => page.rows) ?? [];
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={pageStyles["page-body"]}>
        <h1>{texts.audit}</h1>
        <p className={ui["muted"]}>{texts.whatIsRecorded}</p>
        <Permitted to="admin">
          <div className={pageStyles["page-line"]}>
            <Choice
              label={texts.kind}
              value={filter.kind}
              options={KINDS}
              onChange={(kind) => set({ kind })}
            />
            <Field label={texts.user} value={filter.user} onChange={(user) => set({ user })} />
            <Field label={texts.contains} value={filter.text} onChange={(text) => set({ text })} />
            <span className={pageStyles["spring"]} />
            {rows.length > 0 &&
              FORMATS.map((one) => <Export key={one.format} filter={filter} {...one} />)}
          </div>
        </Permitted>
        {record.isError && (
          <p className={pageStyles["page-notice"]} role="alert">
            {record.error.message}
          </p>
        )}
        {record.isPending && (
          <p className={pageStyles["page-notice"]} role="status">
            {texts.loading}
          </p>
        )}
        {record.isSuccess && rows.length === 0 && (
          <p className={pageStyles["page-notice"]} role="status">
            {texts.nothing}
          </p>
        )}
        {rows.length > 0 && <Table rows={rows} />}
        {record.hasNextPage && (
          <button
            type="button"
            className={ui["button"]}
            disabled={record.isFetchingNextPage}
            onClick={() => void record.fetchNextPage()}
          >
            {texts.older}
          </button>
        )}
      </main>
    </div>
  );
}

function useRecord(filter: Filter) {
  return useInfiniteQuery({
    queryKey: ["audit", filter],
    queryFn: ({ pageParam, signal }) =>
      getJson<AuditPage>("/audit", { ...filter, cursor: pageParam, limit: 100 }, signal),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
    retry: false,
  });
}

function Field({
  label,
  value,
  onChange,
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
}) {
  return (
    <label className={ui["field"]}>
      <span>{label}</span>
      <input type="text" value={value} onChange={(event) => onChange(event.target.value)} />
    </label>
  );
}

function Export({ filter, format, media }: { filter: Filter; format: string; media: string }) {
  const [error, setError] = useState("");
  const save = async () => {
    try {
      const content = await getBuffer("/audit", media, { ...filter, format });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([content], { type: media }));
      link.download = `audit.${format}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
      setError("");
    } catch (problem) {
      setError(problem instanceof Error ? problem.message : texts.exportFailed);
    }
  };
  return (
    <>
      {error && <span role="alert">{error}</span>}
      <button type="button" className={ui["button"]} onClick={() => void save()}>
        <Icon name="download" /> {format.toUpperCase()}
      </button>
    </>
  );
}

function Table({ rows }: { rows: AuditEntry[] }) {
  const [open, setOpen] = useState<string | null>(null);
  return (
    <div className={pageStyles["page-scroll"]}>
      <table
        className={`${pageStyles["page-table"]} ${styles["audit-table"]}`}
        data-testid="audit-table"
      >
        <thead>
          <tr>
            {COLUMNS.map((label) => (
              <th key={label}>{label}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((entry) => (
            <Fragment key={entry.id}>
              <Row
                entry={entry}
                open={open === entry.id}
                onToggle={() => setOpen(open === entry.id ? null : entry.id)}
              />
              {open === entry.id && <Changes entry={entry} />}
            </Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({
  entry,
  open,
  onToggle,
}: {
  entry: AuditEntry;
  open: boolean;
  onToggle: () => void;
}) {
  const changed = findChanges(entry).length;
  return (
    <tr data-kind={entry.kind}>
      <td className={styles["audit-time"]}>{formatTime(entry.time_ms)}</td>
      <td>{LABELS[entry.kind]}</td>
      <td>
        {entry.user || <span className={ui["muted"]}>{texts.nobody}</span>}{" "}
        <span className={ui["muted"]}>{entry.role}</span>
      </td>
      <td>{entry.peer}</td>
      <td className={styles["audit-what"]}>
        {entry.route} <span className={ui["muted"]}>{entry.object}</span>{" "}
        {changed > 0 && (
          <button type="button" className={ui["link"]} aria-expanded={open} onClick={onToggle}>
            {open ? texts.hideValues : texts.showValues(changed)}
          </button>
        )}
      </td>
      <td>
        {entry.status}
        {(entry.times ?? 1) > 1 && ` ${texts.times(entry.times ?? 1)}`}
      </td>
    </tr>
  );
}

function Changes({ entry }: { entry: AuditEntry }) {
  return (
    <tr>
      <td colSpan={COLUMNS.length}>
        <table className={styles["audit-changes"]}>
          <thead>
            <tr>
              <th>{texts.value}</th>
              <th>{texts.before}</th>
              <th>{texts.after}</th>
            </tr>
          </thead>
          <tbody>
            {findChanges(entry).map(({ path, before, after }) => (
              <tr key={path}>
                <td>{path}</td>
                <td>{before ?? texts.none}</td>
                <td>{after ?? texts.none}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </td>
    </tr>
  );
}
