import { useEffect, useState } from "react";
import { Select, Slider } from "@/base/ui/controls";
import type { Change } from "@/features/traces/whatif/changes";
import {
  factorToSlider,
  setChange,
  sliderRange,
  sliderToFactor,
  valueOf,
} from "@/features/traces/whatif/changes";
import type { Word } from "@/features/traces/whatif/queries";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/whatif/WhatIf.module.css";
import { whatIfTexts as texts } from "@/texts";

const GROUPS: readonly { key: Word["group"]; label: string }[] = [
  { key: "speed", label: texts.groupSpeed },
  { key: "gradients", label: texts.groupGradients },
  { key: "pipeline", label: texts.groupPipeline },
  { key: "sharding", label: texts.groupSharding },
  { key: "scale", label: texts.groupScale },
];

/** Groups that a kind of run has most use for. */
const OPEN: Record<string, readonly string[]> = {
  "data-parallel": ["speed", "gradients"],
  pipeline: ["speed", "pipeline"],
  sharded: ["speed", "sharding"],
  "parameter-server": ["speed", "sharding"],
};

interface ControlsProps {
  words: readonly Word[];
  strategy: string;
  changes: readonly Change[];
  onChange: (changes: Change[]) => void;
}

/** A control for every word of the replay, in groups. */
export function Controls({ words, strategy, changes, onChange }: ControlsProps) {
  const open = OPEN[strategy] ?? ["speed"];
  return (
    <>
      {GROUPS.map(({ key, label }) => {
        const own = words.filter((word) => word.group === key);
        if (own.length === 0) return null;
        const set = own.filter(({ word }) => valueOf(changes, word) !== "").length;
        return (
          <details key={key} className={styles["group"]} open={open.includes(key) || set > 0}>
            <summary>
              {label}
              {set > 0 && <span className={styles["count"]}>{set}</span>}
            </summary>
            {own.map((word) => (
              <Control
                key={word.word}
                word={word}
                value={valueOf(changes, word.word)}
                onChange={(value) => onChange(setChange(changes, word.word, value))}
              />
            ))}
          </details>
        );
      })}
    </>
  );
}

interface ControlProps {
  word: Word;
  value: string;
  onChange: (value: string) => void;
}

function Control(props: ControlProps) {
  const { word } = props;
  return (
    <div className={styles["control"]} data-word={word.word} title={word.meaning}>
      {word.control === "factor" ? (
        <Factor {...props} />
      ) : word.control === "choice" ? (
        <Select
          label={texts.word(word.word)}
          value={props.value}
          options={[
            { value: "", label: texts.asRecorded },
            ...[...new Set([...word.choices, ...(props.value ? [props.value] : [])])].map(
              (choice) => ({ value: choice, label: choice }),
            ),
          ]}
          onChange={props.onChange}
        />
      ) : (
        <Text {...props} />
      )}
      <p className={ui["muted"]}>{word.meaning}</p>
    </div>
  );
}

/** A slider whose middle is the recorded run; its ends are the factors that make sense. */
function Factor({ word, value, onChange }: ControlProps) {
  const [low, high] = sliderRange(word.least ?? 0.25, word.largest ?? 4);
  const canBeOff = word.takes.includes("off");
  const off = value === "off";
  return (
    <div className={styles["factor"]}>
      <Slider
        label={`${texts.word(word.word)} ${off ? texts.off : value || texts.asRecorded}`}
        value={off ? low : factorToSlider(value)}
        min={low}
        max={high}
        onChange={(place) => onChange(sliderToFactor(place))}
      />
      {canBeOff && (
        <label className={ui["toggle"]}>
          <input
            type="checkbox"
            checked={off}
            onChange={(event) => onChange(event.target.checked ? "off" : "")}
          />
          {texts.off}
        </label>
      )}
    </div>
  );
}

/** A text or a number that counts when it is left or Enter is pressed. */
function Text({ word, value, onChange }: ControlProps) {
  const [draft, setDraft] = useState(value);
  useEffect(() => setDraft(value), [value]);
  const numeric = word.control === "count" || word.control === "share";
  const commit = () => draft.trim() !== value && onChange(draft.trim());
  return (
    <label className={ui["field"]}>
      <span>{texts.word(word.word)}</span>
      <input
        type={numeric ? "number" : "text"}
        value={draft}
        placeholder={word.takes}
        {...(numeric
          ? {
              min: word.least ?? undefined,
              max: word.largest ?? undefined,
              step: word.control === "share" ? 0.05 : 1,
            }
          : {})}
        maxLength={180}
        onChange={(event) => setDraft(event.target.value)}
        onBlur={commit}
        onKeyDown={(event) => event.key === "Enter" && commit()}
      />
    </label>
  );
}
