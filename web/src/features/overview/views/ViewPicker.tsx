import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useRef, useState } from "react";
import { getJson, putJson, remove } from "@/api/client";
import type { Document } from "@/api/documents";
import { useCurrentUser } from "@/base/account";
import { useTheme } from "@/base/theme";
import { Choice, IconButton, Popover, PopoverClose } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import { parseView, printView, ViewError } from "@/charts/units/view";
import { useShared } from "@/features/overview/context";
import { canvasPng, download, pictureSvg } from "@/features/overview/views/exporting";
import { PRESETS } from "@/features/overview/views/presets";
import { chooseMe, choosePreset, showView, useOverview } from "@/features/overview/store";
import { useClusterState } from "@/features/overview/useClusterState";
import { Permitted } from "@/base/ui/Permitted";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/overview/views/ViewPicker.module.css";
import { overviewTexts as texts } from "@/texts";

const SAVED = "saved:";

/** Choose a view, save one, share it, take it along. */
export function ViewPicker() {
  const viewName = useOverview((state) => state.viewName);
  const edited = useOverview((state) => state.edited);
  const preset = PRESETS.find((one) => one.id === viewName);
  const title = preset?.title ?? viewName?.replace(SAVED, "") ?? texts.customView;
  return (
    <div className={styles["view-picker"]}>
      <Popover
        label={texts.views}
        trigger={
          <button type="button" className={styles["view-button"]} data-testid="view-button">
            <span>
              {title}
              {edited && <em> {texts.edited}</em>}
            </span>
            <Icon name="down" />
          </button>
        }
      >
        <ViewList />
      </Popover>
      <p className={styles["question"]}>{preset && !edited ? preset.question : ""}</p>
    </div>
  );
}

function ViewList() {
  const viewName = useOverview((state) => state.viewName);
  const saved = useQuery({
    queryKey: ["views"],
    queryFn: async () =>
      Object.fromEntries(
        Object.entries(await getJson<Record<string, Document<"SavedView">>>("/views")).filter(
          // Those of the table of jobs are listed there.
          ([name]) => !name.startsWith("jobs: "),
        ),
      ),
  });
  const listed = useQuery({
    queryKey: ["views", "list"],
    queryFn: () => getJson<Document<"ViewRow">[]>("/views-list"),
  });
  // One's own come first and hide those of the same name.
  const owners = Object.fromEntries(
    [...(listed.data ?? [])].reverse().map((row) => [row.name, row]),
  );
  const client = useQueryClient();
  const forget = useMutation({
    mutationFn: (name: string) => remove(`/views/${encodeURIComponent(name)}`),
    onSuccess: () => client.invalidateQueries({ queryKey: ["views"] }),
  });
  const open = (name: string, document: unknown) => {
    try {
      showView(parseView(document), SAVED + name);
    } catch (error) {
      useOverview.setState({
        problems: [texts.theViewIsNotValid(name, error instanceof Error ? error.message : "")],
      });
    }
  };
  return (
    <div className={styles["view-list"]} data-testid="view-list">
      <h3>{texts.views}</h3>
      <ul>
        {PRESETS.map((preset) => (
          <li key={preset.id}>
            <PopoverClose asChild>
              <button
                type="button"
                className={styles["view-item"]}
                aria-current={viewName === preset.id}
                onClick={() => choosePreset(preset.id)}
                data-testid={`preset-${preset.id}`}
              >
                <strong>{preset.title}</strong>
                <span>{preset.question}</span>
              </button>
            </PopoverClose>
            {preset.personal && <ChooseMe />}
          </li>
        ))}
      </ul>
      <h3>{texts.saved}</h3>
      {saved.isError && (
        <p className={`${ui["muted"]} ${styles["nothing"]}`}>
          {texts.savedViewsCouldNotBeLoaded(saved.error.message)}
        </p>
      )}
      <ul>
        {Object.entries(saved.data ?? {}).map(([name, document]) => (
          <li key={name} className={styles["saved"]}>
            <PopoverClose asChild>
              <button
                type="button"
                className={styles["view-item"]}
                aria-current={viewName === SAVED + name}
                onClick={() => open(name, document)}
              >
                <strong>{name}</strong>
              </button>
            </PopoverClose>
            {owners[name] && (
              <span className={ui["muted"]}>{texts.viewScopes[owners[name].scope]}</span>
            )}
            {owners[name]?.may_change && (
              <IconButton
                icon="trash"
                label={texts.deleteView(name)}
                onClick={() => forget.mutate(name)}
              />
            )}
          </li>
        ))}
        {saved.data && Object.keys(saved.data).length === 0 && (
          <li className={`${ui["muted"]} ${styles["nothing"]}`}>{texts.noneYet}</li>
        )}
      </ul>
      <Permitted to="contribute">
        <SaveView />
      </Permitted>
      <Share />
    </div>
  );
}

function ChooseMe() {
  const me = useOverview((state) => state.me);
  const state = useClusterState();
  const id = useId();
  const users = state?.workloads.columns.get("user");
  const names = users?.kind === "text" ? [...new Set(users.words)].sort() : [];
  return (
    <div className={`${ui["field"]} ${styles["me"]}`}>
      <label htmlFor={id}>{texts.myUserName}</label>
      <input
        id={id}
        list={`${id}-users`}
        value={me}
        placeholder={texts.userName}
        onChange={(event) => chooseMe(event.target.value)}
      />
      <datalist id={`${id}-users`}>
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </div>
  );
}

function SaveView() {
  const [name, setName] = useState("");
  const me = useCurrentUser().data;
  const scopes = (["personal", "project", "site"] as const).filter(
    (one) =>
      one === "personal" ||
      (one === "site" ? me?.permissions.includes("operate") : me?.projects.length === 1),
  );
  const [chosen, setScope] = useState<(typeof scopes)[number] | null>(null);
  const scope = chosen ?? (scopes.includes("site") ? "site" : "personal");
  const client = useQueryClient();
  const save = useMutation({
    mutationFn: (title: string) =>
      putJson(
        `/views/${encodeURIComponent(title)}?scope=${scope}`,
        printView({ ...useOverview.getState().view, title }),
      ),
    onSuccess: async (_, title) => {
      await client.invalidateQueries({ queryKey: ["views"] });
      useOverview.setState({ viewName: SAVED + title, edited: false });
      setName("");
    },
  });
  return (
    <form
      className={styles["save-view"]}
      onSubmit={(event) => {
        event.preventDefault();
        if (name.trim()) save.mutate(name.trim());
      }}
    >
      <input
        aria-label={texts.viewName}
        placeholder={texts.saveThisViewAs}
        value={name}
        maxLength={120}
        onChange={(event) => setName(event.target.value)}
      />
      <button className={ui["button"]} type="submit" disabled={!name.trim() || save.isPending}>
        <Icon name="save" /> {texts.save}
      </button>
      {scopes.length > 1 && (
        <Choice
          label={texts.viewFor}
          value={scope}
          options={scopes.map((value) => ({ value, label: texts.viewScopes[value] }))}
          onChange={setScope}
        />
      )}
      {save.isError && <p role="alert">{save.error.message}</p>}
    </form>
  );
}

function Share() {
  const { engine, attributes } = useShared();
  const { theme } = useTheme();
  const [said, setSaid] = useState("");
  const file = useRef<HTMLInputElement>(null);
  const asFile = (kind: string, text: string) => new Blob([text], { type: kind });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      setSaid(texts.linkCopied);
    } catch {
      setSaid(location.href);
    }
  };
  const svg = () => {
    const picture = engine.current?.stage.current;
    if (picture) download("marey.svg", asFile("image/svg+xml", pictureSvg(picture, theme)));
  };
  const png = async () => {
    const canvases = [
      ...document.querySelectorAll<HTMLCanvasElement>("[data-testid=canvas] canvas"),
    ];
    engine.current?.stage.drawFrame();
    download("marey.png", await canvasPng(canvases));
  };
  const json = () =>
    download(
      "marey-view.json",
      asFile("application/json", JSON.stringify(printView(useOverview.getState().view), null, 2)),
    );
  const read = async (given: File) => {
    try {
      showView(parseView(JSON.parse(await given.text()), [...attributes.keys()]), null);
      setSaid(texts.opened(given.name));
    } catch (error) {
      const words =
        error instanceof ViewError
          ? error.problems.join(" ")
          : error instanceof Error
            ? error.message
            : "";
      setSaid(texts.isNotAValidView(given.name, words));
    }
  };
  return (
    <div className={styles["share"]}>
      <h3>{texts.share}</h3>
      <div>
        <button className={ui["button"]} type="button" onClick={() => void copy()}>
          <Icon name="share" /> {texts.link}
        </button>
        <button className={ui["button"]} type="button" onClick={json}>
          <Icon name="download" /> {texts.json}
        </button>
        <button className={ui["button"]} type="button" onClick={svg}>
          <Icon name="download" /> {texts.svg}
        </button>
        <button className={ui["button"]} type="button" onClick={() => void png()}>
          <Icon name="download" /> {texts.png}
        </button>
        <button className={ui["button"]} type="button" onClick={() => file.current?.click()}>
          <Icon name="plus" /> {texts.openJson}
        </button>
        <input
          ref={file}
          type="file"
          accept="application/json,.json"
          hidden
          data-testid="view-file"
          onChange={(event) => event.target.files?.[0] && void read(event.target.files[0])}
        />
      </div>
      <p className={ui["said"]} role="status" data-testid="share-said">
        {said}
      </p>
    </div>
  );
}
