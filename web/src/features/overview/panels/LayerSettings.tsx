import { Choice, Select, Slider } from "@/base/ui/controls";
import type { IconName } from "@/base/ui/Icon";
import type { LayoutKind } from "@/charts/units/arrange";
import type { Aggregate } from "@/charts/units/group";
import type { Layer, Sort, UnitLayer } from "@/charts/units/view";
import { useAttributeOptions } from "@/features/overview/panels/attributeOptions";
import { useShared } from "@/features/overview/context";
import ui from "@/base/ui/ui.module.css";
import { overviewTexts as texts } from "@/texts";

export const LAYOUTS: { value: LayoutKind; label: string; icon: IconName }[] = [
  { value: "pack", label: texts.pack, icon: "pack" },
  { value: "fill_x", label: texts.fillX, icon: "fill_x" },
  { value: "fill_y", label: texts.fillY, icon: "fill_y" },
  { value: "list_x", label: texts.listX, icon: "list_x" },
  { value: "list_y", label: texts.listY, icon: "list_y" },
];

/** The settings of one layer of groups. */
export function LayerSettings({
  layer,
  name,
  onChange,
}: {
  layer: Layer;
  name: string;
  onChange: (change: Partial<Layer>) => void;
}) {
  const { attributes } = useShared();
  return (
    <div className={ui["settings"]}>
      <h3>{name}</h3>
      <Choice
        label={texts.layout}
        value={layer.layout}
        options={LAYOUTS}
        onChange={(layout) => onChange({ layout })}
      />
      <Choice
        label={texts.size}
        value={layer.size}
        options={[
          { value: "uniform", label: texts.uniform },
          { value: "count", label: texts.count },
        ]}
        onChange={(size) => onChange({ size })}
      />
      <SortFields sort={layer.sort} onChange={(sort) => onChange({ sort })} />
      {attributes.get(layer.by)?.kind === "number" && (
        <Slider
          label={texts.bins}
          value={layer.bins}
          min={2}
          max={20}
          onChange={(bins) => onChange({ bins })}
        />
      )}
      <Slider
        label={texts.margin}
        value={layer.margin}
        min={0}
        max={40}
        unit="px"
        onChange={(margin) => onChange({ margin })}
      />
      <Slider
        label={texts.padding}
        value={layer.padding}
        min={0}
        max={30}
        unit="px"
        onChange={(padding) => onChange({ padding })}
      />
      <Slider
        label={texts.label}
        value={layer.label}
        min={0}
        max={28}
        unit="px"
        onChange={(label) => onChange({ label })}
      />
      <ShapeFields
        layout={layer.layout}
        aspect={layer.aspect}
        across={layer.across}
        onChange={onChange}
      />
    </div>
  );
}

/** The settings of the units themselves. */
export function UnitSettings({
  unit,
  onChange,
}: {
  unit: UnitLayer;
  onChange: (change: Partial<UnitLayer>) => void;
}) {
  return (
    <div className={ui["settings"]}>
      <h3>{texts.units}</h3>
      <Choice
        label={texts.layout}
        value={unit.layout}
        options={LAYOUTS}
        onChange={(layout) => onChange({ layout })}
      />
      <SortFields sort={unit.sort} onChange={(sort) => onChange({ sort })} />
      <Slider
        label={texts.gap}
        value={unit.gap}
        min={0}
        max={0.6}
        step={0.02}
        onChange={(gap) => onChange({ gap })}
      />
      <ShapeFields
        layout={unit.layout}
        aspect={unit.aspect}
        across={unit.across}
        onChange={onChange}
      />
      {unit.layout.startsWith("fill") && (
        <Choice
          label={texts.alignTo}
          value={unit.align}
          options={[
            { value: "start", label: texts.start },
            { value: "end", label: texts.end },
          ]}
          onChange={(align) => onChange({ align })}
        />
      )}
    </div>
  );
}

function SortFields({ sort, onChange }: { sort: Sort; onChange: (sort: Sort) => void }) {
  const { attributes } = useShared();
  const options = useAttributeOptions();
  const numeric = attributes.get(sort.by)?.kind === "number";
  return (
    <div className={ui["pair"]}>
      <Select
        label={texts.sortBy}
        value={sort.by}
        options={[
          { value: "name", label: texts.name },
          { value: "count", label: texts.count },
          ...options,
        ]}
        onChange={(by) => onChange({ ...sort, by })}
      />
      {numeric && (
        <Select
          label={texts.groupValue}
          value={sort.aggregate ?? "mean"}
          options={["mean", "sum", "min", "max"].map((value) => ({ value, label: value }))}
          onChange={(aggregate) => onChange({ ...sort, aggregate: aggregate as Aggregate })}
        />
      )}
      <Choice
        label={texts.order}
        value={sort.order ?? "ascending"}
        options={[
          { value: "ascending", label: texts.ascending, icon: "up" },
          { value: "descending", label: texts.descending, icon: "arrow_down" },
        ]}
        onChange={(order) => onChange({ ...sort, order })}
      />
    </div>
  );
}

function ShapeFields({
  layout,
  aspect,
  across,
  onChange,
}: {
  layout: LayoutKind;
  aspect: number;
  across: number;
  onChange: (change: { aspect?: number; across?: number }) => void;
}) {
  return (
    <>
      {!layout.startsWith("fill") && across === 0 && (
        <Slider
          label={texts.widthHeight}
          value={aspect}
          min={0.2}
          max={6}
          step={0.1}
          onChange={(value) => onChange({ aspect: value })}
        />
      )}
      {layout !== "pack" && (
        <Slider
          label={layout.startsWith("fill") ? texts.across0Automatic : texts.perLine0Wrap}
          value={across}
          min={0}
          max={40}
          onChange={(value) => onChange({ across: value })}
        />
      )}
    </>
  );
}
