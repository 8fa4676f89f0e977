import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { putFile } from "@/api/client";
import { formatCount } from "@/base/format";
import { Select } from "@/base/ui/controls";
import type { PageState } from "@/features/callgraphs/address";
import type { Sankey, Source } from "@/features/callgraphs/queries";
import { profileLabel } from "@/charts/sankey/figures";
import pageStyles from "@/base/ui/page.module.css";
import { Permitted } from "@/base/ui/Permitted";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/callgraphs/CallGraphs.module.css";
import { callGraphTexts as texts } from "@/texts";

type Set = (change: Partial<PageState>) => void;

/** Which profiles are shown, how they are split and grouped, and which one is marked. */
export function SourcesPanel({
  sources,
  sankey,
  state,
  set,
}: {
  sources: Source[];
  sankey: Sankey | undefined;
  state: PageState;
  set: Set;
}) {
  return (
    <section className={styles["panel"]} aria-label={texts.sources}>
      <div className={styles["columns"]}>
        <SourceList
          title={texts.sources}
          testId="sources"
          sources={sources}
          chosen={state.sources}
          onChange={(chosen) =>
            set({ sources: chosen, profiles: "", target: "", module: "", path: [] })
          }
        />
        <SourceList
          title={texts.against}
          testId="against"
          sources={sources}
          chosen={state.against}
          onChange={(against) => set({ against })}
        />
        <Permitted to="contribute">
          <Upload />
        </Permitted>
      </div>
      <div className={pageStyles["page-line"]}>
        <Select
          label={texts.split}
          value={state.split}
          options={["", "rank", "step", "thread", "run"].map((value) => ({
            value,
            label: texts.splitBy[value as keyof typeof texts.splitBy],
          }))}
          onChange={(split) => set({ split, profiles: "", target: "" })}
        />
        <Select
          label={texts.groupBy}
          value={state.by}
          options={["module", "name", "kind"].map((value) => ({
            value,
            label: texts.groupings[value as keyof typeof texts.groupings],
          }))}
          onChange={(by) => set({ by, reveal: [], callers: [], callees: [], module: "" })}
        />
        <Select
          label={texts.share}
          value={state.share}
          options={["0", "0.001", "0.005", "0.02", "0.05"].map((value) => ({
            value,
            label: value === "0" ? texts.everything : `${Number(value) * 100} %`,
          }))}
          onChange={(share) => set({ share })}
        />
        {sankey && (
          <Select
            label={texts.target}
            value={state.target}
            options={[
              { value: "", label: texts.noTarget },
              ...sankey.profiles.map((profile) => ({
                value: String(profile.profile),
                label: profileLabel(profile),
              })),
            ]}
            onChange={(target) => set({ target })}
          />
        )}
      </div>
    </section>
  );
}

function SourceList({
  title,
  testId,
  sources,
  chosen,
  onChange,
}: {
  title: string;
  testId: string;
  sources: Source[];
  chosen: string[];
  onChange: (chosen: string[]) => void;
}) {
  return (
    <fieldset className={styles["sources"]} data-testid={testId}>
      <legend>{title}</legend>
      {sources.map(({ source, name, files }) => (
        <label key={source} className={ui["toggle"]}>
          <input
            type="checkbox"
            checked={chosen.includes(source)}
            onChange={({ target: { checked } }) =>
              onChange(checked ? [...chosen, source] : chosen.filter((one) => one !== source))
            }
          />
          <span>
            {name}{" "}
            {files > 0 && <span className={ui["muted"]}>{texts.files(formatCount(files))}</span>}
          </span>
        </label>
      ))}
      {sources.length === 0 && <p className={ui["muted"]}>{texts.noSources}</p>}
    </fieldset>
  );
}

/** Send profiles of any maker under a name. */
function Upload() {
  const [name, setName] = useState("");
  const input = useRef<HTMLInputElement | null>(null);
  const client = useQueryClient();
  const send = useMutation({
    mutationFn: async (files: File[]) => {
      for (const file of files)
        await putFile("/uploads", { owner: `callgraph:${name.trim()}`, file: file.name }, file);
    },
    onSuccess: () => client.invalidateQueries({ queryKey: ["callgraphs"] }),
  });
  return (
    <fieldset className={styles["sources"]}>
      <legend>{texts.upload}</legend>
      <label className={ui["field"]}>
        <span>{texts.uploadName}</span>
        <input type="text" value={name} onChange={(event) => setName(event.target.value)} />
      </label>
      <input
        ref={input}
        type="file"
        multiple
        aria-label={texts.uploadFiles}
        disabled={name.trim() === "" || send.isPending}
        onChange={({ target: { files } }) => send.mutate([...(files ?? [])])}
      />
      <p className={ui["muted"]} role="status">
        {send.isPending ? texts.sending : send.isSuccess ? texts.sent : texts.uploadHelp}
      </p>
      {send.isError && <p role="alert">{send.error.message}</p>}
    </fieldset>
  );
}
