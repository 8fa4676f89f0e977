/** The filter of a table: a form that puts conditions together, and those that hold, to be taken off again. */

import { useState } from "react";
import type { Fields } from "@/base/conditions/conditions";
import { describeCondition, fieldName, NUMBER_OPS, TEXT_OPS } from "@/base/conditions/conditions";
import type { Comparison, Operator, Predicate } from "@/base/predicate";
import { Popover } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import ui from "@/base/ui/ui.module.css";
import { conditionTexts as texts } from "@/texts";

/** A button that opens the form. */
export function AddCondition({
  fields,
  onAdd,
}: {
  fields: Fields;
  onAdd: (condition: Comparison) => void;
}) {
  const [field, setField] = useState(fields.texts[0]);
  const [op, setOp] = useState<Operator>("eq");
  const [value, setValue] = useState("");
  const isNumber = fields.numbers.includes(field);
  const choose = (next: string) => {
    setField(next);
    setOp(fields.numbers.includes(next) ? "ge" : "eq");
  };
  const add = () => {
    const text = value.trim();
    if (text === "" || (isNumber && !Number.isFinite(Number(text)))) return;
    onAdd({ field, op, value: isNumber ? Number(text) : text });
    setValue("");
  };
  return (
    <Popover
      label={texts.filter}
      trigger={
        <button type="button" className={ui["button"]}>
          <Icon name="plus" /> {texts.filter}
        </button>
      }
    >
      <form
        className={ui["settings"]}
        onSubmit={(event) => {
          event.preventDefault();
          add();
        }}
      >
        <label className={ui["field"]}>
          <span>{texts.field}</span>
          <select value={field} onChange={(event) => choose(event.target.value)}>
            {[...fields.texts, ...fields.numbers].map((one) => (
              <option key={one} value={one}>
                {fieldName(one)}
              </option>
            ))}
          </select>
        </label>
        <label className={ui["field"]}>
          <span>{texts.condition}</span>
          <select value={op} onChange={(event) => setOp(event.target.value as Operator)}>
            {(isNumber ? NUMBER_OPS : TEXT_OPS).map((one) => (
              <option key={one} value={one}>
                {texts.operators[one]}
              </option>
            ))}
          </select>
        </label>
        <label className={ui["field"]}>
          <span>{texts.value}</span>
          <input
            value={value}
            inputMode={isNumber ? "decimal" : "text"}
            onChange={(event) => setValue(event.target.value)}
          />
        </label>
        <button type="submit" className={ui["button"]}>
          {texts.apply}
        </button>
      </form>
    </Popover>
  );
}

/** The conditions that hold; a click takes one off. */
export function ConditionChips({
  where,
  onChange,
}: {
  where: readonly Predicate[];
  onChange: (where: readonly Predicate[]) => void;
}) {
  return where.map((condition, place) => (
    <button
      key={JSON.stringify(condition)}
      type="button"
      className={ui["button"]}
      onClick={() => onChange(where.filter((_, i) => i !== place))}
    >
      {texts.conditionChip(describeCondition(condition))}
    </button>
  ));
}
