import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { getJson, putJson, remove } from "@/api/client";
import type { Document } from "@/api/documents";
import { IconButton, Popover } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import { Permitted } from "@/base/ui/Permitted";
import ui from "@/base/ui/ui.module.css";
import { jobsTexts as texts } from "@/texts";

const KEY = ["saved tables"];
// Views of the overview and of this table are kept in one place; this sets them apart.
const PREFIX = "jobs: ";

/** Filters and columns kept on the server under a name, for everybody. */
export function SavedTables({
  address,
  onOpen,
}: {
  address: string;
  onOpen: (search: string) => void;
}) {
  const [name, setName] = useState("");
  const client = useQueryClient();
  const saved = useQuery({
    queryKey: KEY,
    queryFn: ({ signal }) => getJson<Record<string, Document<"SavedView">>>("/views", {}, signal),
    staleTime: 60_000,
  });
  const mine = Object.entries(saved.data ?? {}).filter(([key]) => key.startsWith(PREFIX));
  const changed = () => client.invalidateQueries({ queryKey: KEY });
  const save = async () => {
    await putJson(`/views/${encodeURIComponent(PREFIX + name.trim())}`, { jobs: address });
    setName("");
    await changed();
  };
  return (
    <Popover
      label={texts.savedFilters}
      align="end"
      trigger={
        <button type="button" className={ui["button"]}>
          <Icon name="save" /> {texts.saved}
        </button>
      }
    >
      <div className={ui["settings"]}>
        {mine.map(([key, document]) => (
          <div key={key} style={{ display: "flex", justifyContent: "space-between" }}>
            <button
              type="button"
              className={ui["link"]}
              onClick={() => onOpen(document.jobs ?? "")}
            >
              {key.slice(PREFIX.length)}
            </button>
            <Permitted to="contribute">
              <IconButton
                icon="trash"
                label={texts.deleteSaved(key.slice(PREFIX.length))}
                onClick={() => void remove(`/views/${encodeURIComponent(key)}`).then(changed)}
              />
            </Permitted>
          </div>
        ))}
        {mine.length === 0 && <p className={ui["muted"]}>{texts.nothingSavedYet}</p>}
        <Permitted to="contribute">
          <form
            className={ui["field"]}
            onSubmit={(event) => {
              event.preventDefault();
              if (name.trim()) void save();
            }}
          >
            <label htmlFor="jobs-save">{texts.saveTheseFiltersAs}</label>
            <input id="jobs-save" value={name} onChange={(event) => setName(event.target.value)} />
            <button type="submit" className={ui["button"]} disabled={!name.trim()}>
              {texts.save}
            </button>
          </form>
        </Permitted>
      </div>
    </Popover>
  );
}
