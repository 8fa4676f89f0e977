import { useCallback, useRef, useState } from "react";
import { Choice, IconButton, Popover, Select } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import type { Layer } from "@/charts/units/view";
import { newLayer } from "@/charts/units/view";
import { useAttributeOptions } from "@/features/overview/panels/attributeOptions";
import { useShared } from "@/features/overview/context";
import type { Dragged } from "@/features/overview/panels/dragging";
import { useDrag, useDrop } from "@/features/overview/panels/dragging";
import { LAYOUTS, LayerSettings, UnitSettings } from "@/features/overview/panels/LayerSettings";
import { editLayer, editView, moveLayer, useOverview } from "@/features/overview/store";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/overview/panels/LayersPanel.module.css";
import panelStyles from "@/features/overview/panels/panel.module.css";
import { overviewTexts as texts } from "@/texts";

const MOST_LAYERS = 8;

function insertLayer(by: string, at: number): void {
  const layers = [...useOverview.getState().view.layers];
  if (layers.length >= MOST_LAYERS) return;
  layers.splice(at, 0, newLayer(by));
  editView({ layers });
}

function removeLayer(index: number): void {
  editView({ layers: useOverview.getState().view.layers.filter((_, i) => i !== index) });
}

/** The layers of the view as a hierarchy; dragging or the arrow keys change it. */
export function LayersPanel() {
  const view = useOverview((state) => state.view);
  const [said, setSaid] = useState("");
  return (
    <section className={panelStyles["panel-section"]} aria-label={texts.layers}>
      <h2>{texts.layers}</h2>
      <Choice
        label={texts.squaresShow}
        value={view.units}
        options={[
          { value: "gpus", label: texts.gpus },
          { value: "waiting", label: texts.waiting },
          { value: "both", label: texts.both },
        ]}
        onChange={(units) => editView({ units })}
      />
      {view.units !== "gpus" && (
        <Choice
          label={texts.oneWaitingSquarePer}
          value={view.waiting_unit}
          options={[
            { value: "gpu", label: texts.requestedGpu },
            { value: "workload", label: texts.workload },
          ]}
          onChange={(waiting_unit) => editView({ waiting_unit })}
        />
      )}
      <ol className={styles["layers"]}>
        {view.layers.map((layer, index) => (
          <LayerRow key={`${index} ${layer.by}`} layer={layer} index={index} say={setSaid} />
        ))}
        <UnitRow depth={view.layers.length} />
      </ol>
      <AddLayer />
      <p className={ui["visually-hidden"]} aria-live="polite">
        {said}
      </p>
    </section>
  );
}

function LayerRow({
  layer,
  index,
  say,
}: {
  layer: Layer;
  index: number;
  say: (text: string) => void;
}) {
  const { attributes } = useShared();
  const options = useAttributeOptions();
  const row = useRef<HTMLLIElement>(null);
  const handle = useRef<HTMLButtonElement>(null);
  const dragging = useDrag(row, handle, { layer: index });
  const drop = useCallback(
    (dragged: Dragged, after: boolean) => {
      const to = index + (after ? 1 : 0);
      if ("attribute" in dragged) insertLayer(dragged.attribute, to);
      else moveLayer(dragged.layer, dragged.layer < to ? to - 1 : to);
    },
    [index],
  );
  const edge = useDrop(row, drop);
  const name = attributes.get(layer.by)?.label ?? layer.by;
  const move = (step: number) => {
    const to = index + step;
    if (to < 0 || to >= useOverview.getState().view.layers.length) return;
    moveLayer(index, to);
    say(texts.isNowLayer(name, to + 1));
    requestAnimationFrame(() => document.querySelectorAll<HTMLElement>("[data-grip]")[to]?.focus());
  };
  return (
    <li
      ref={row}
      className={styles["layer"]}
      data-edge={edge}
      data-dragging={dragging}
      style={{ marginLeft: index * 14 }}
      data-testid={`layer-${layer.by}`}
    >
      <button
        ref={handle}
        type="button"
        className={styles["grip"]}
        data-grip
        aria-label={texts.layerArrowUpAndDownMove(index + 1, name)}
        title={texts.dragOrUseTheArrowKeys}
        onKeyDown={(event) => {
          if (event.key === "ArrowUp") move(-1);
          else if (event.key === "ArrowDown") move(1);
          else if (event.key === "Delete" || event.key === "Backspace") removeLayer(index);
          else return;
          event.preventDefault();
        }}
      >
        <Icon name="grip" />
      </button>
      <Select
        label={texts.layerGroupsBy(index + 1)}
        hideLabel
        value={layer.by}
        options={options}
        onChange={(by) => editLayer(index, { by })}
      />
      <Popover
        label={texts.settingsOf(name)}
        side="right"
        trigger={<LayoutButton layer={layer} label={texts.settingsOf(name)} />}
      >
        <LayerSettings layer={layer} name={name} onChange={(change) => editLayer(index, change)} />
      </Popover>
      <IconButton icon="close" label={texts.remove(name)} onClick={() => removeLayer(index)} />
    </li>
  );
}

function LayoutButton({
  layer,
  label,
  ...rest
}: {
  layer: { layout: Layer["layout"] };
  label: string;
}) {
  const layout = LAYOUTS.find((one) => one.value === layer.layout);
  return (
    <button
      type="button"
      className={ui["icon-button"]}
      aria-label={label}
      title={texts.settings(layout?.label ?? "")}
      {...rest}
    >
      <Icon name={layout?.icon ?? "settings"} />
    </button>
  );
}

function UnitRow({ depth }: { depth: number }) {
  const view = useOverview((state) => state.view);
  const row = useRef<HTMLLIElement>(null);
  const drop = useCallback((dragged: Dragged) => {
    const end = useOverview.getState().view.layers.length;
    if ("attribute" in dragged) insertLayer(dragged.attribute, end);
    else moveLayer(dragged.layer, end - 1);
  }, []);
  const edge = useDrop(row, drop);
  return (
    <li
      ref={row}
      className={`${styles["layer"]} ${styles["unit"]}`}
      data-edge={edge ? "before" : null}
      style={{ marginLeft: depth * 14 }}
    >
      <span className={styles["square"]} aria-hidden="true" />
      <span className={styles["unit-name"]}>
        {view.units === "waiting" ? texts.requests : "GPUs"}
      </span>
      <Popover
        label={texts.unitSettings}
        side="right"
        trigger={<LayoutButton layer={view.unit} label={texts.unitSettings} />}
      >
        <UnitSettings
          unit={view.unit}
          onChange={(change) => editView({ unit: { ...view.unit, ...change } })}
        />
      </Popover>
    </li>
  );
}

const OFFERED = [
  "partition",
  "rack",
  "host",
  "model",
  "resource_type",
  "user",
  "project",
  "workload",
  "experiment",
  "state",
  "reason",
  "util",
];

/** Attributes to drag into the hierarchy; dropping a layer here removes it. */
function AddLayer() {
  const { attributes } = useShared();
  const view = useOverview((state) => state.view);
  const options = useAttributeOptions();
  const area = useRef<HTMLDivElement>(null);
  const drop = useCallback((dragged: Dragged) => {
    if ("layer" in dragged) removeLayer(dragged.layer);
  }, []);
  const edge = useDrop(area, drop);
  const used = new Set(view.layers.map((layer) => layer.by));
  return (
    <div
      ref={area}
      className={styles["add-layer"]}
      data-over={edge !== null}
      data-testid="add-layer"
    >
      <p>{texts.dragIntoTheHierarchyOrClick}</p>
      <div className={styles["chips"]}>
        {OFFERED.filter((id) => !used.has(id) && attributes.has(id)).map((id) => (
          <Chip key={id} id={id} label={attributes.get(id)?.label ?? id} />
        ))}
      </div>
      <Select
        label={texts.addALayer}
        hideLabel
        value=""
        options={[{ value: "", label: texts.moreAttributes }, ...options]}
        onChange={(by) => by && insertLayer(by, view.layers.length)}
      />
    </div>
  );
}

function Chip({ id, label }: { id: string; label: string }) {
  const chip = useRef<HTMLButtonElement>(null);
  const dragging = useDrag(chip, null, { attribute: id });
  return (
    <button
      ref={chip}
      type="button"
      className={styles["chip"]}
      data-dragging={dragging}
      onClick={() => insertLayer(id, useOverview.getState().view.layers.length)}
    >
      {label}
    </button>
  );
}
