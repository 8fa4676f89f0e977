import { useMemo, useState } from "react";
import type { Attribute } from "@/base/attributes";
import { formatCount, formatValue } from "@/base/format";
import type { Comparison, Predicate } from "@/base/predicate";
import { buildUnits } from "@/base/units";
import { Choice, IconButton, Popover, Select } from "@/base/ui/controls";
import { useAttributeOptions } from "@/features/overview/panels/attributeOptions";
import { useShared } from "@/features/overview/context";
import { editView, useOverview } from "@/features/overview/store";
import { useClusterState } from "@/features/overview/useClusterState";
import { predicateText } from "@/features/overview/words";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/overview/panels/FilterPanel.module.css";
import panelStyles from "@/features/overview/panels/panel.module.css";
import { overviewTexts as texts } from "@/texts";

/** The conditions that must all hold, each with its editor. */
export function FilterPanel() {
  const view = useOverview((state) => state.view);
  const drawn = useOverview((state) => state.drawn);
  const options = useAttributeOptions();
  const { attributes } = useShared();
  // What was just added asks for its values at once.
  const [added, setAdded] = useState<number | null>(null);
  const add = (field: string) => {
    setAdded(view.filter.length);
    const numeric = attributes.get(field)?.kind === "number";
    const condition: Comparison = numeric
      ? { field, op: "ge", value: attributes.get(field)?.min ?? 0 }
      : { field, op: "missing", value: false };
    editView({ filter: [...view.filter, condition] });
  };
  const change = (index: number, condition: Predicate) =>
    editView({ filter: view.filter.map((one, i) => (i === index ? condition : one)) });
  return (
    <section className={panelStyles["panel-section"]} aria-label={texts.filter}>
      <h2>
        {texts.filter}
        {drawn && view.filter.length > 0 && (
          <small>
            {texts.of(
              formatCount(drawn.plan.passing.reduce((sum, yes) => sum + yes, 0)),
              formatCount(drawn.total),
            )}
          </small>
        )}
      </h2>
      <ul className={styles["conditions"]}>
        {view.filter.map((condition, index) => (
          <li key={index} ref={index === added ? reveal : null}>
            <Popover
              label={texts.editCondition}
              side="right"
              defaultOpen={index === added}
              trigger={
                <button
                  type="button"
                  className={styles["condition"]}
                  data-testid={`condition-${index}`}
                >
                  {predicateText(condition, attributes)}
                </button>
              }
            >
              <ConditionEditor condition={condition} onChange={(next) => change(index, next)} />
            </Popover>
            <IconButton
              icon="close"
              label={texts.removeCondition(index + 1)}
              onClick={() => editView({ filter: view.filter.filter((_, i) => i !== index) })}
            />
          </li>
        ))}
      </ul>
      <Select
        label={texts.addCondition}
        hideLabel
        value=""
        options={[{ value: "", label: texts.addConditionOption }, ...options]}
        onChange={(field) => field && add(field)}
      />
      {view.filter.length > 0 && (
        <Choice
          label={texts.otherUnits}
          value={view.others}
          options={[
            { value: "hide", label: texts.hide },
            { value: "fade", label: texts.fade },
          ]}
          onChange={(others) => editView({ others })}
        />
      )}
    </section>
  );
}

/** Scroll the panel so far that a condition is seen. */
function reveal(item: HTMLLIElement | null): void {
  item?.scrollIntoView({ block: "nearest" });
}

function ConditionEditor({
  condition,
  onChange,
}: {
  condition: Predicate;
  onChange: (condition: Predicate) => void;
}) {
  const { attributes } = useShared();
  if (!("field" in condition))
    return <p className={ui["settings"]}>{predicateText(condition, attributes)}</p>;
  const attribute = attributes.get(condition.field);
  if (attribute?.kind === "number")
    return <NumberCondition attribute={attribute} condition={condition} onChange={onChange} />;
  return (
    <TextCondition
      field={condition.field}
      label={attribute?.label ?? condition.field}
      condition={condition}
      onChange={onChange}
    />
  );
}

function useValues(field: string) {
  const state = useClusterState();
  const units = useOverview((overview) => overview.view.units);
  const unit = useOverview((overview) => overview.view.waiting_unit);
  return useMemo(
    () => (state ? buildUnits(state, { units, waiting_unit: unit }).column(field) : undefined),
    [state, field, units, unit],
  );
}

const MOST_WORDS = 200;

function TextCondition({
  field,
  label,
  condition,
  onChange,
}: {
  field: string;
  label: string;
  condition: Comparison;
  onChange: (condition: Predicate) => void;
}) {
  const column = useValues(field);
  const [search, setSearch] = useState("");
  const chosen = new Set(chosenWords(condition));
  const words = useMemo(() => countWords(column), [column]);
  const shown = words
    .filter(([word]) => word.toLowerCase().includes(search.toLowerCase()))
    .slice(0, MOST_WORDS);
  const toggle = (word: string) => {
    const next = new Set(chosen);
    if (!next.delete(word)) next.add(word);
    onChange(
      next.size === 0
        ? { field, op: "missing", value: false }
        : { field, op: "in", value: [...next] },
    );
  };
  return (
    <div className={ui["settings"]}>
      <h3>{texts.isOneOf(label)}</h3>
      <input
        type="search"
        placeholder={texts.search}
        aria-label={texts.searchIn(label)}
        value={search}
        onChange={(event) => setSearch(event.target.value)}
      />
      <ul className={styles["words"]} data-testid="words">
        {shown.map(([word, count]) => (
          <li key={word}>
            <label className={ui["toggle"]}>
              <input type="checkbox" checked={chosen.has(word)} onChange={() => toggle(word)} />
              <span>{word}</span> <b>{formatCount(count)}</b>
            </label>
          </li>
        ))}
        {shown.length === 0 && <li className={ui["muted"]}>{texts.noMatches}</li>}
      </ul>
      <button
        type="button"
        className={ui["link"]}
        onClick={() => onChange({ field, op: "missing", value: true })}
      >
        {texts.onlyUnitsWithout(label.toLowerCase())}
      </button>
    </div>
  );
}

function chosenWords(condition: Comparison): string[] {
  if (condition.op === "in") return condition.value as string[];
  return condition.op === "eq" ? [String(condition.value)] : [];
}

function countWords(column: ReturnType<typeof useValues>): [string, number][] {
  if (column?.kind !== "text") return [];
  const counts = new Int32Array(column.words.length);
  for (const code of column.codes) if (code >= 0) counts[code]++;
  return column.words
    .map((word, code): [string, number] => [word, counts[code]])
    .sort((a, b) => b[1] - a[1]);
}

const BINS = 36;

function NumberCondition({
  attribute,
  condition,
  onChange,
}: {
  attribute: Attribute;
  condition: Comparison;
  onChange: (condition: Predicate) => void;
}) {
  const column = useValues(attribute.id);
  const histogram = useMemo(
    () => bin(column?.kind === "number" ? column.values : new Float32Array(0), attribute),
    [column, attribute],
  );
  const [low, high] = boundsOf(condition, histogram);
  const set = (from: number, to: number) =>
    onChange({
      field: attribute.id,
      op: "between",
      value: [Math.min(from, to), Math.max(from, to)],
    });
  const step = (histogram.max - histogram.min) / 200;
  const most = Math.max(1, ...histogram.counts);
  return (
    <div className={ui["settings"]}>
      <h3>
        {texts.betweenAnd(attribute.label, formatValue(low), formatValue(high, attribute.unit))}
      </h3>
      <svg
        width={240}
        height={48}
        viewBox="0 0 240 48"
        role="img"
        aria-label={texts.histogramOf(attribute.label)}
      >
        {histogram.counts.map((count, i) => {
          const middle = histogram.min + ((i + 0.5) / BINS) * (histogram.max - histogram.min);
          const h = (count / most) ** 0.6 * 46;
          return (
            <rect
              key={i}
              className={
                middle >= low && middle <= high ? `${styles["bar"]} ${styles["in"]}` : styles["bar"]
              }
              x={(i * 240) / BINS}
              y={48 - h}
              width={240 / BINS - 1}
              height={h}
            />
          );
        })}
      </svg>
      <input
        type="range"
        aria-label={texts.minimum(attribute.label)}
        min={histogram.min}
        max={histogram.max}
        step={step}
        value={low}
        onChange={(event) => set(Number(event.target.value), high)}
      />
      <input
        type="range"
        aria-label={texts.maximum(attribute.label)}
        min={histogram.min}
        max={histogram.max}
        step={step}
        value={high}
        onChange={(event) => set(low, Number(event.target.value))}
      />
    </div>
  );
}

interface Binned {
  min: number;
  max: number;
  counts: number[];
}

function bin(values: ArrayLike<number>, attribute: Attribute): Binned {
  let [min, max] = [attribute.min ?? Infinity, attribute.max ?? -Infinity];
  for (let i = 0; i < values.length; i++) {
    if (attribute.min === null && values[i] < min) min = values[i];
    if (attribute.max === null && values[i] > max) max = values[i];
  }
  if (!(max > min)) [min, max] = [0, 1];
  const counts = new Array<number>(BINS).fill(0);
  for (let i = 0; i < values.length; i++) {
    if (!Number.isNaN(values[i]))
      counts[
        Math.min(BINS - 1, Math.max(0, Math.floor(((values[i] - min) / (max - min)) * BINS)))
      ]++;
  }
  return { min, max, counts };
}

function boundsOf(condition: Comparison, { min, max }: Binned): [number, number] {
  const value = condition.value;
  if (condition.op === "between") return value as [number, number];
  if (typeof value !== "number") return [min, max];
  if (condition.op === "ge" || condition.op === "gt") return [value, max];
  if (condition.op === "le" || condition.op === "lt") return [min, value];
  return condition.op === "eq" ? [value, value] : [min, max];
}
