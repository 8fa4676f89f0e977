import { valueAt } from "@/base/columns";
import { formatCount, formatValue } from "@/base/format";
import type { Hit } from "@/charts/units/pick";
import type { RuleSpot } from "@/charts/units/rules";
import { useShared } from "@/features/overview/context";
import { useOverview } from "@/features/overview/store";
import { layerOf } from "@/charts/units/targets";
import styles from "@/features/overview/drawing/Tooltip.module.css";
import { overviewTexts as texts } from "@/texts";

export interface Hover {
  x: number;
  y: number;
  hit: Hit;
  /** The mark of a rule under the pointer. */
  rule?: RuleSpot;
}

/** What is under the pointer, in a few lines. */
export function Tooltip({ hover }: { hover: Hover }) {
  const { engine, attributes } = useShared();
  const drawn = useOverview((state) => state.drawn);
  const colourBy = useOverview((state) => state.view.colour.by);
  if (!drawn || hover.hit.group >= drawn.layout.tree.groups) return null;
  const lines = hover.rule
    ? ruleLines(hover.rule)
    : hover.hit.position >= 0
      ? unitLines()
      : groupLines();
  const style = {
    left: Math.min(hover.x + 14, (engine.current?.stage.size.width ?? 400) - 240),
    top: hover.y + 16,
  };
  return (
    <div className={styles["tooltip"]} data-testid="tooltip" style={style} role="status">
      {lines.map(([key, value], i) => (
        <div key={key} className={i === 0 ? styles["tooltip-title"] : undefined}>
          {i > 0 && <span>{key}</span>} {value}
        </div>
      ))}
    </div>
  );

  function unitLines(): [string, string][] {
    if (!drawn) return [];
    const { units, layout } = drawn;
    const unit = layout.tree.order[hover.hit.position];
    const text = (name: string) => String(valueAt(units.column(name), unit) ?? "");
    const waiting = units.gpu[unit] < 0;
    const attribute = attributes.get(colourBy);
    const value = valueAt(units.column(colourBy), unit);
    const lines: [string, string][] = [
      ["title", waiting ? texts.waitingReason(text("name") || text("workload")) : text("gpu")],
    ];
    lines.push([texts.state, [text("state"), text("reason")].filter(Boolean).join(", ")]);
    if (text("workload"))
      lines.push([texts.workload, [text("name"), text("workload")].filter(Boolean).join(" · ")]);
    if (text("user")) lines.push([texts.user, text("user")]);
    if (waiting)
      lines.push(
        [texts.requested, texts.requestedGpus(text("gpus_requested"), text("resource_type"))],
        [texts.waiting, formatValue(Number(valueAt(units.column("waiting_s"), unit)), "s")],
        [texts.queuePosition, text("queue_position")],
      );
    if (attribute && value !== null && !["state", "user", "workload"].includes(colourBy)) {
      lines.push([
        attribute.label,
        typeof value === "number" ? formatValue(value, attribute.unit) : value,
      ]);
    }
    return lines;
  }

  function ruleLines(spot: RuleSpot): [string, string][] {
    if (!drawn) return [];
    const { slots, rules } = useOverview.getState();
    const entry = rules.find((one) => one.field === slots[spot.slot]);
    const units = drawn.layout.tree.unitCount[spot.group];
    const count = (share: number) =>
      texts.shareOfUnits(
        formatCount(Math.round(share * units)),
        formatCount(units),
        formatValue(share * 100, "%"),
      );
    return [
      ["title", entry?.title ?? texts.rule],
      [
        texts.inWord,
        engine.current?.groupName(spot.group, layerOf(drawn.layout, spot.group)) ?? "",
      ],
      [texts.now3, spot.now > 0 ? count(spot.now) : "none"],
      [texts.wholeRun, count(spot.any)],
    ];
  }

  function groupLines(): [string, string][] {
    if (!drawn) return [];
    const { tree } = drawn.layout;
    const { group } = hover.hit;
    const layer = layerOf(drawn.layout, group);
    const by = attributes.get(
      drawn.plan.request.layers.length >= layer
        ? (useOverview.getState().view.layers[layer - 1]?.by ?? "")
        : "",
    );
    const lines: [string, string][] = [["title", engine.current?.groupName(group, layer) ?? ""]];
    lines.push([by?.label ?? texts.group, texts.units3(formatCount(tree.weight[group]))]);
    if (layer < tree.layers)
      lines.push([texts.contains, texts.groups(formatCount(tree.childCount[group]))]);
    return lines;
  }
}
