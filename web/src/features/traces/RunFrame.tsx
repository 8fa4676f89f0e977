import type { ReactNode } from "react";
import { useSearch } from "@/base/router";
import { PageHead } from "@/base/ui/PageHead";
import pageStyles from "@/base/ui/page.module.css";
import type { RunDetail } from "@/features/traces/documents";
import { useRun } from "@/features/traces/queries";
import { Gone, Unready } from "@/features/traces/run/Run";
import { tracesTexts as texts } from "@/texts";

/** A page about the run that the address names: what is shown until the run can be looked at. */
export function RunFrame({
  className,
  show,
}: {
  className: string | undefined;
  show: (id: string, detail: RunDetail, search: URLSearchParams) => ReactNode;
}) {
  const search = new URLSearchParams(useSearch());
  const id = search.get("id") ?? "";
  const detail = useRun(id);
  const message = detail.isError ? detail.error.message : id === "" ? texts.noRunChosen : "";
  const ready = detail.data && detail.data.run.state === "ready" && !detail.isError;
  return (
    <div className={className}>
      <PageHead />
      {message && <Gone message={message} />}
      {!message && detail.data && !ready && <Unready run={detail.data.run} />}
      {!message && !detail.data && (
        <p className={pageStyles["page-notice"]} role="status">
          {texts.loading}
        </p>
      )}
      {ready && show(id, detail.data, search)}
    </div>
  );
}
