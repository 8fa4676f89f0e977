import { useQuery } from "@tanstack/react-query";
import { useId } from "react";
import type { Document } from "@/api/documents";
import { getJson } from "@/api/client";
import type { Override } from "@/base/verdicts/documents";
import { IconButton, Toggle } from "@/base/ui/controls";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/rules/Overrides.module.css";
import { rulesTexts as texts } from "@/texts";

// Names to offer, not a census: any other can be typed.
const WORKLOADS_ASKED = 500;

/** A rule's exceptions: for whom, and what holds there. The first that matches a workload counts. */
export function Overrides({
  overrides,
  thresholds,
  onChange,
}: {
  overrides: readonly Override[];
  thresholds: Readonly<Record<string, string>>;
  onChange: (overrides: Override[]) => void;
}) {
  const id = useId();
  const known = useQuery({
    queryKey: ["rule-exceptions"],
    queryFn: ({ signal }) =>
      getJson<Document<"WorkloadTable">>("/workloads", { limit: WORKLOADS_ASKED }, signal),
    enabled: overrides.length > 0,
    staleTime: 60_000,
    retry: false,
  });
  const change = (place: number, override: Override) =>
    onChange(overrides.map((one, i) => (i === place ? override : one)));
  return (
    <fieldset className={styles["rule-overrides"]} data-testid="overrides">
      <legend>{texts.exceptionsForAPartitionOrProject}</legend>
      {overrides.map((override, i) => (
        <Line
          key={i}
          override={override}
          thresholds={thresholds}
          lists={[`${id}-partitions`, `${id}-projects`]}
          onChange={(next) => change(i, next)}
          onRemove={() => onChange(overrides.filter((_, place) => place !== i))}
        />
      ))}
      {overrides.length > 1 && (
        <p className={ui["muted"]}>{texts.theFirstMatchingExceptionApplies}</p>
      )}
      <button
        type="button"
        className={ui["link"]}
        data-testid="add-override"
        onClick={() => onChange([...overrides, {}])}
      >
        {texts.exception}
      </button>
      <Names id={`${id}-partitions`} names={(known.data?.rows ?? []).map((row) => row.partition)} />
      <Names id={`${id}-projects`} names={(known.data?.rows ?? []).map((row) => row.project)} />
    </fieldset>
  );
}

function Names({ id, names }: { id: string; names: readonly (string | null)[] }) {
  return (
    <datalist id={id}>
      {[...new Set(names)]
        .filter((name) => name !== null && name !== "")
        .map((name) => (
          <option key={name} value={name ?? ""} />
        ))}
    </datalist>
  );
}

function Line({
  override,
  thresholds,
  lists,
  onChange,
  onRemove,
}: {
  override: Override;
  thresholds: Readonly<Record<string, string>>;
  lists: readonly [string, string];
  onChange: (override: Override) => void;
  onRemove: () => void;
}) {
  const judged = override.enabled !== false;
  const own = override.thresholds ?? {};
  return (
    <div className={styles["rule-override"]} data-testid="override">
      <input
        aria-label={texts.partition}
        placeholder={texts.anyPartition}
        list={lists[0]}
        value={override.partition ?? ""}
        maxLength={200}
        onChange={(event) => onChange({ ...override, partition: event.target.value })}
      />
      <input
        aria-label={texts.project}
        placeholder={texts.anyProject}
        list={lists[1]}
        value={override.project ?? ""}
        maxLength={200}
        onChange={(event) => onChange({ ...override, project: event.target.value })}
      />
      <IconButton icon="close" label={texts.removeException} onClick={onRemove} />
      <div className={styles["rule-override-values"]}>
        {judged &&
          Object.entries(thresholds).map(([name, usual]) => (
            <label key={name}>
              ${name}{" "}
              <input
                value={own[name] ?? ""}
                placeholder={usual}
                maxLength={40}
                onChange={(event) =>
                  onChange({ ...override, thresholds: { ...own, [name]: event.target.value } })
                }
              />
            </label>
          ))}
        <Toggle
          label={texts.enabledThere}
          checked={judged}
          onChange={(enabled) => onChange({ ...override, enabled })}
        />
      </div>
    </div>
  );
}
