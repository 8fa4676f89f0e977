import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { postJson, putJson } from "@/api/client";
import { Popover } from "@/base/ui/controls";
import type { Finding } from "@/features/findings/documents";
import { Permitted } from "@/base/ui/Permitted";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/findings/Findings.module.css";
import { findingsTexts as texts } from "@/texts";

const WEEK_MS = 7 * 86_400_000;

/** What can be done with several findings at once: acknowledge them, or mute their workloads for a week. */
export function BulkActions({
  chosen,
  onDone,
}: {
  chosen: readonly Finding[];
  onDone: () => void;
}) {
  const client = useQueryClient();
  const [why, setWhy] = useState("");
  const finish = async () => {
    await client.invalidateQueries({ queryKey: ["findings"] });
    await client.invalidateQueries({ queryKey: ["mutes"] });
    onDone();
  };
  const acknowledge = useMutation({
    mutationFn: async () => {
      for (const { id } of chosen) await putJson(`/findings/${id}/acknowledgement`, { text: "" });
    },
    onSuccess: finish,
  });
  const mute = useMutation({
    mutationFn: async () => {
      const until = new Date(
        Math.max(...chosen.map((one) => one.updated_ms)) + WEEK_MS,
      ).toISOString();
      for (const { rule, workload } of chosen)
        await postJson("/mutes", { scope: "workload", value: workload, rule, why, until });
    },
    onSuccess: finish,
  });
  const error = acknowledge.error ?? mute.error;
  return (
    <div className={styles["bulk"]} role="toolbar" aria-label={texts.actionsForSelected}>
      <span>{texts.selected(chosen.length)}</span>
      <button
        type="button"
        className={ui["button"]}
        disabled={acknowledge.isPending}
        onClick={() => acknowledge.mutate()}
      >
        {texts.acknowledge}
      </button>
      <Permitted to="operate">
        <Popover
          label={texts.mute}
          trigger={
            <button type="button" className={ui["button"]}>
              {texts.muteFor7Days}
            </button>
          }
        >
          <form
            className={ui["settings"]}
            onSubmit={(event) => {
              event.preventDefault();
              if (why.trim()) mute.mutate();
            }}
          >
            <label className={ui["field"]}>
              <span>{texts.reason}</span>
              <input value={why} onChange={(event) => setWhy(event.target.value)} />
            </label>
            <button type="submit" className={ui["button"]} disabled={!why.trim() || mute.isPending}>
              {texts.mute}
            </button>
          </form>
        </Popover>
      </Permitted>
      <button type="button" className={ui["link"]} onClick={onDone}>
        {texts.clearSelection}
      </button>
      {error && <span role="alert">{error.message}</span>}
    </div>
  );
}
