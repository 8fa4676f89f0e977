import { Choice, Select, Slider } from "@/base/ui/controls";
import type { IconName } from "@/base/ui/Icon";
import type { LayoutKind } from "@/charts/units/arrange";
import type { Aggregate } from "@/charts/units/group";
import type { Layer, Sort, UnitLayer } from "@/charts/units/view";
import { useAttributeOptions } from "@/features/overview/attributeOptions";
import { useShared } from "@/features/overview/context";

export const LAYOUTS: { value: LayoutKind; label: string; icon: IconName }[] = [
  { value: "pack", label: "Pack", icon: "pack" },
  { value: "fill_x", label: "Fill X", icon: "fill_x" },
  { value: "fill_y", label: "Fill Y", icon: "fill_y" },
  { value: "list_x", label: "List X", icon: "list_x" },
  { value: "list_y", label: "List Y", icon: "list_y" },
];

/** The settings of one layer of groups. */
export function LayerSettings({ layer, name, onChange }: { layer: Layer; name: string; onChange: (change: Partial<Layer>) => void }) {
  const { attributes } = useShared();
  return (
    <div className="settings">
      <h3>{name}</h3>
      <Choice label="Layout" value={layer.layout} options={LAYOUTS} onChange={(layout) => onChange({ layout })} />
      <Choice
        label="Size"
        value={layer.size}
        options={[
          { value: "uniform", label: "Uniform" },
          { value: "count", label: "Count" },
        ]}
        onChange={(size) => onChange({ size })}
      />
      <SortFields sort={layer.sort} onChange={(sort) => onChange({ sort })} />
      {attributes.get(layer.by)?.kind === "number" && <Slider label="Bins" value={layer.bins} min={2} max={20} onChange={(bins) => onChange({ bins })} />}
      <Slider label="Margin" value={layer.margin} min={0} max={40} unit="px" onChange={(margin) => onChange({ margin })} />
      <Slider label="Padding" value={layer.padding} min={0} max={30} unit="px" onChange={(padding) => onChange({ padding })} />
      <Slider label="Label" value={layer.label} min={0} max={28} unit="px" onChange={(label) => onChange({ label })} />
      <ShapeFields layout={layer.layout} aspect={layer.aspect} across={layer.across} onChange={onChange} />
    </div>
  );
}

/** The settings of the units themselves. */
export function UnitSettings({ unit, onChange }: { unit: UnitLayer; onChange: (change: Partial<UnitLayer>) => void }) {
  return (
    <div className="settings">
      <h3>Units</h3>
      <Choice label="Layout" value={unit.layout} options={LAYOUTS} onChange={(layout) => onChange({ layout })} />
      <SortFields sort={unit.sort} onChange={(sort) => onChange({ sort })} />
      <Slider label="Gap" value={unit.gap} min={0} max={0.6} step={0.02} onChange={(gap) => onChange({ gap })} />
      <ShapeFields layout={unit.layout} aspect={unit.aspect} across={unit.across} onChange={onChange} />
      {unit.layout.startsWith("fill") && (
        <Choice
          label="Stand on"
          value={unit.align}
          options={[
            { value: "start", label: "Start" },
            { value: "end", label: "End" },
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
    <div className="pair">
      <Select label="Sort by" value={sort.by} options={[{ value: "name", label: "Name" }, { value: "count", label: "Count" }, ...options]} onChange={(by) => onChange({ ...sort, by })} />
      {numeric && (
        <Select
          label="Of the group"
          value={sort.aggregate ?? "mean"}
          options={["mean", "sum", "min", "max"].map((value) => ({ value, label: value }))}
          onChange={(aggregate) => onChange({ ...sort, aggregate: aggregate as Aggregate })}
        />
      )}
      <Choice
        label="Order"
        value={sort.order ?? "ascending"}
        options={[
          { value: "ascending", label: "Ascending", icon: "up" },
          { value: "descending", label: "Descending", icon: "arrow_down" },
        ]}
        onChange={(order) => onChange({ ...sort, order })}
      />
    </div>
  );
}

function ShapeFields({ layout, aspect, across, onChange }: { layout: LayoutKind; aspect: number; across: number; onChange: (change: { aspect?: number; across?: number }) => void }) {
  return (
    <>
      {!layout.startsWith("fill") && across === 0 && <Slider label="Width : height" value={aspect} min={0.2} max={6} step={0.1} onChange={(value) => onChange({ aspect: value })} />}
      {layout !== "pack" && <Slider label={layout.startsWith("fill") ? "Across (0 = by itself)" : "Per line (0 = wraps)"} value={across} min={0} max={40} onChange={(value) => onChange({ across: value })} />}
    </>
  );
}
