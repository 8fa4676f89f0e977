import { useRef, useState } from "react";
import { lowIsNotable } from "@/base/attributes";
import {
  CATEGORICAL,
  CONTINUOUS,
  cssColour,
  DEFAULT_CATEGORICAL,
  DEFAULT_CONTINUOUS,
} from "@/base/colour";
import { roundTicks } from "@/base/ui/ticks";
import { formatCount, formatValue } from "@/base/format";
import type { Comparison } from "@/base/predicate";
import {
  Choice,
  IconButton,
  NumberField,
  Popover,
  Select,
  Slider,
  Toggle,
} from "@/base/ui/controls";
import type { Legend as LegendData } from "@/charts/units/drawing/paint";
import type { ColourSpec } from "@/charts/units/view";
import { useAttributeOptions } from "@/features/overview/panels/attributeOptions";
import { useShared } from "@/features/overview/context";
import { editView, setCondition, useOverview } from "@/features/overview/store";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/overview/panels/Legend.module.css";
import { overviewTexts as texts } from "@/texts";

const WIDTH = 264;
const HEIGHT = 44;

const NARROW = "(width < 640px)";

/** The legend: what colour means, how many units have it, and a brush that filters by it. */
export function Legend({ floating }: { floating: boolean }) {
  const legend = useOverview((state) => state.drawn?.legend ?? null);
  const colour = useOverview((state) => state.view.colour);
  const options = useAttributeOptions();
  const { attributes } = useShared();
  // Over a small canvas only its head, which still says what colour means.
  const [open, setOpen] = useState(() => !floating || !matchMedia(NARROW).matches);
  const choose = (by: string) => {
    const attribute = attributes.get(by);
    edit({
      by,
      min: null,
      max: null,
      scheme: null,
      scale: "linear",
      reverse: attribute ? lowIsNotable(attribute) : false,
    });
  };
  const edit = (change: Partial<ColourSpec>) => editView({ colour: { ...colour, ...change } });
  return (
    <section
      className={floating ? `${styles["legend"]} ${styles["floating"]}` : styles["legend"]}
      aria-label={texts.colour}
    >
      <header>
        <h2>{texts.colour}</h2>
        <Select
          label={texts.colourBy}
          value={colour.by}
          options={options}
          onChange={choose}
          hideLabel
        />
        {legend && (
          <Popover
            label={texts.colourSettings}
            side="right"
            align="start"
            trigger={<IconButton icon="settings" label={texts.colourSettings} />}
          >
            <ColourSettings legend={legend} colour={colour} edit={edit} />
          </Popover>
        )}
        {floating && (
          <IconButton
            icon={open ? "down" : "chevron_up"}
            label={open ? texts.hideLegend : texts.showLegend}
            aria-expanded={open}
            onClick={() => setOpen(!open)}
          />
        )}
      </header>
      {open && legend?.kind === "number" && <Histogram legend={legend} />}
      {open && legend?.kind === "text" && <Categories legend={legend} />}
    </section>
  );
}

function ColourSettings({
  legend,
  colour,
  edit,
}: {
  legend: LegendData;
  colour: ColourSpec;
  edit: (change: Partial<ColourSpec>) => void;
}) {
  const numeric = legend.kind === "number";
  const schemes = Object.keys(numeric ? CONTINUOUS : CATEGORICAL);
  return (
    <div className={ui["settings"]}>
      <h3>{texts.colourByAttribute(legend.attribute.label.toLowerCase())}</h3>
      <Select
        label={texts.scheme}
        value={colour.scheme ?? (numeric ? DEFAULT_CONTINUOUS : DEFAULT_CATEGORICAL)}
        options={schemes.map((value) => ({ value, label: value.replace("_", " ") }))}
        onChange={(scheme) => edit({ scheme })}
      />
      {numeric && (
        <>
          <Choice
            label={texts.scale}
            value={colour.scale}
            options={(["linear", "log", "quantile", "quantize"] as const).map((value) => ({
              value,
              label: value,
            }))}
            onChange={(scale) => edit({ scale })}
          />
          {(colour.scale === "quantile" || colour.scale === "quantize") && (
            <Slider
              label={texts.bins}
              value={colour.bins}
              min={2}
              max={16}
              onChange={(bins) => edit({ bins })}
            />
          )}
          <div className={ui["pair"]}>
            <NumberField
              label={texts.minimumOfScale}
              value={colour.min}
              placeholder={formatValue(legend.scale.domain[0])}
              onChange={(min) => edit({ min })}
            />
            <NumberField
              label={texts.maximumOfScale}
              value={colour.max}
              placeholder={formatValue(legend.scale.domain[1])}
              onChange={(max) => edit({ max })}
            />
          </div>
          <Toggle
            label={texts.rescaleToFilteredData}
            checked={colour.remap}
            onChange={(remap) => edit({ remap })}
          />
          <Toggle
            label={texts.reverse}
            checked={colour.reverse}
            onChange={(reverse) => edit({ reverse })}
          />
        </>
      )}
    </div>
  );
}

type NumberLegend = Extract<LegendData, { kind: "number" }>;

function Histogram({ legend }: { legend: NumberLegend }) {
  const { scale, counts, colours, attribute } = legend;
  const condition = useOverview((state) =>
    state.view.filter.find(
      (one) => "field" in one && one.field === attribute.id && one.op === "between",
    ),
  ) as Comparison | undefined;
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const box = useRef<SVGSVGElement>(null);
  const most = Math.max(1, ...counts);
  const bins = counts.length;
  const tOf = (clientX: number) => {
    const rect = box.current?.getBoundingClientRect();
    return rect ? Math.min(1, Math.max(0, (clientX - rect.left) / rect.width)) : 0;
  };
  const brushed = drag ?? (condition ? brushOf(condition, legend) : null);
  const finish = () => {
    if (!drag) return;
    const [a, b] = [Math.min(...drag), Math.max(...drag)];
    setDrag(null);
    if (b - a < 0.02) return setCondition(attribute.id, null);
    const round = (value: number) => Number(value.toPrecision(4));
    setCondition(attribute.id, {
      field: attribute.id,
      op: "between",
      value: [round(scale.valueAt(a)), round(scale.valueAt(b))],
    });
  };
  return (
    <>
      <svg
        ref={box}
        className={styles["histogram"]}
        width={WIDTH}
        height={HEIGHT}
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={texts.histogramOfDragToFilter(attribute.label)}
        data-testid="legend-histogram"
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          setDrag([tOf(event.clientX), tOf(event.clientX)]);
        }}
        onPointerMove={(event) => drag && setDrag([drag[0], tOf(event.clientX)])}
        onPointerUp={finish}
      >
        {counts.map((count, i) => {
          const h = count === 0 ? 0 : Math.max(1.5, (count / most) ** 0.6 * (HEIGHT - 12));
          const shade = cssColour(
            colours[
              Math.round(
                (scale.edges ? (bins === 1 ? 0.5 : i / (bins - 1)) : (i + 0.5) / bins) * 255,
              )
            ],
          );
          return (
            <g key={i} fill={shade}>
              <title>{texts.unitCount(formatCount(count))}</title>
              <rect
                x={(i * WIDTH) / bins}
                y={HEIGHT - 8 - h}
                width={WIDTH / bins - 0.6}
                height={h}
              />
              <rect x={(i * WIDTH) / bins} y={HEIGHT - 6} width={WIDTH / bins + 0.2} height={6} />
            </g>
          );
        })}
        {brushed && (
          <rect
            className={styles["brush"]}
            x={Math.min(...brushed) * WIDTH}
            y={0.5}
            width={Math.abs(brushed[1] - brushed[0]) * WIDTH}
            height={HEIGHT - 1}
          />
        )}
      </svg>
      <div className={styles["axis"]}>
        {axisTicks(legend, attribute.unit).map(({ value, place }, i, all) => (
          <span key={i} style={{ left: `${place * 100}%` }}>
            {formatValue(
              value,
              i === all.length - 1 || attribute.unit === "s" ? attribute.unit : "",
            )}
          </span>
        ))}
      </div>
      <StateKeys legend={legend} />
      {condition && (
        <button
          type="button"
          className={ui["link"]}
          onClick={() => setCondition(attribute.id, null)}
        >
          {texts.clearSelection}
        </button>
      )}
    </>
  );
}

function brushOf(condition: Comparison, { scale }: NumberLegend): [number, number] {
  const [a, b] = condition.value as number[];
  const place = scale.edges
    ? (value: number) => (value - scale.domain[0]) / (scale.domain[1] - scale.domain[0])
    : scale.place;
  return [Math.max(0, place(a)), Math.min(1, place(b))];
}

// Nearer than this their texts would touch.
const TICKS_APART = 0.17;

/** Round values with their places; a scale with steps or of magnitudes has the nearest it can tell. */
function axisTicks({ scale }: NumberLegend, unit: string): { value: number; place: number }[] {
  const [low, high] = scale.domain;
  const even = scale.edges
    ? (value: number) => (value - low) / (high - low)
    : (value: number) => scale.place(value);
  const ticks: { value: number; place: number }[] = [];
  for (const value of roundTicks(low, high, unit)) {
    const place = even(value);
    const before = ticks.at(-1)?.place ?? -1;
    if (place >= 0 && place <= 1 && place - before >= TICKS_APART) ticks.push({ value, place });
  }
  return ticks;
}

function StateKeys({ legend }: { legend: NumberLegend }) {
  if (legend.states.length === 0 && legend.missing === 0) return null;
  return (
    <ul className={styles["keys"]}>
      {legend.states.map((entry) => (
        <li key={entry.word}>
          <i style={{ background: cssColour(entry.colour) }} />
          {entry.word} <b>{formatCount(entry.count)}</b>
        </li>
      ))}
      {legend.missing > 0 && (
        <li>
          <i className={styles["none"]} />
          {texts.noValue} <b>{formatCount(legend.missing)}</b>
        </li>
      )}
    </ul>
  );
}

const MOST_CATEGORIES = 9;

function Categories({ legend }: { legend: Extract<LegendData, { kind: "text" }> }) {
  const field = legend.attribute.id;
  const condition = useOverview((state) =>
    state.view.filter.find((one) => "field" in one && one.field === field && one.op === "in"),
  ) as Comparison | undefined;
  const chosen = new Set((condition?.value as string[] | undefined) ?? []);
  const toggle = (word: string) => {
    const next = new Set(chosen);
    if (!next.delete(word)) next.add(word);
    setCondition(field, next.size > 0 ? { field, op: "in", value: [...next] } : null);
  };
  const rest = legend.entries.slice(MOST_CATEGORIES);
  return (
    <ul className={`${styles["keys"]} ${styles["column"]}`} data-testid="legend-words">
      {legend.entries.slice(0, MOST_CATEGORIES).map((entry) => (
        <li key={entry.word}>
          <button
            type="button"
            aria-pressed={chosen.has(entry.word)}
            onClick={() => toggle(entry.word)}
            title={texts.showOnlyThis}
          >
            <i style={{ background: cssColour(entry.colour) }} />
            <span>{entry.word}</span> <b>{formatCount(entry.count)}</b>
          </button>
        </li>
      ))}
      {rest.length > 0 && (
        <li className={`${ui["muted"]} ${styles["rest"]}`}>
          {texts.andMore3(formatCount(rest.length))}{" "}
          <b>{formatCount(rest.reduce((sum, entry) => sum + entry.count, 0))}</b>
        </li>
      )}
      {legend.missing > 0 && (
        <li className={`${ui["muted"]} ${styles["rest"]}`}>
          {texts.no(legend.attribute.label.toLowerCase())} <b>{formatCount(legend.missing)}</b>
        </li>
      )}
    </ul>
  );
}
