import { useId } from "react";
import type { Clause, Condition, Expression, FieldName, Path, Span } from "@/features/rules/clause";
import {
  addBeside,
  isCondition,
  newCondition,
  OPERATORS,
  partsOf,
  REACHES,
  replaceAt,
  switchWord,
  toggleNot,
} from "@/features/rules/clause";
import type { LanguageDocument } from "@/base/verdicts/documents";
import { IconButton, NumberField, Select } from "@/base/ui/controls";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/rules/ClauseFields.module.css";
import formStyles from "@/features/rules/form.module.css";
import { rulesTexts as texts } from "@/texts";

export interface FieldError {
  at: Span | null;
  message: string;
}

interface Shared {
  language: LanguageDocument;
  error: FieldError | null;
  /** Replace the part at a path; null removes it. */
  edit: (path: Path, change: (part: Expression) => Expression | null) => void;
}

/** A rule as fields: whom it must hold for, and the conditions under AND, OR and NOT. */
export function ClauseFields({
  clause,
  language,
  error,
  onChange,
}: {
  clause: Clause;
  language: LanguageDocument;
  error: FieldError | null;
  onChange: (clause: Clause) => void;
}) {
  const reach = REACHES.find((one) => one.value === clause.gpus?.reach) ?? REACHES[0];
  const edit: Shared["edit"] = (path, change) =>
    onChange({ ...clause, when: replaceAt(clause.when, path, change) ?? newCondition() });
  const gpus = (value: string, amount: number | null) => {
    const chosen = REACHES.find((one) => one.value === value) ?? REACHES[0];
    onChange({
      ...clause,
      gpus: { reach: chosen.value, ...(chosen.amount ? { amount: amount ?? 1 } : {}) },
    });
  };
  return (
    <div className={styles["clause-fields"]}>
      <div className={styles["clause-reach"]}>
        <Select
          label={texts.appliesTo}
          value={reach.value}
          options={REACHES}
          onChange={(value) =>
            gpus(value, clause.gpus?.amount ?? (value === "at_least_share" ? 25 : 2))
          }
        />
        {reach.amount && (
          <NumberField
            label={reach.value === "at_least_share" ? texts.ofGpus : texts.gpus}
            value={clause.gpus?.amount ?? null}
            placeholder="1"
            onChange={(amount) => gpus(reach.value, amount)}
          />
        )}
      </div>
      <Part node={clause.when} path={[]} language={language} error={error} edit={edit} />
      {error && !error.at && (
        <p role="alert" className={formStyles["rule-error"]}>
          {error.message}
        </p>
      )}
    </div>
  );
}

function Part({ node, path, ...shared }: Shared & { node: Expression; path: Path }) {
  const { edit } = shared;
  const negated = "not" in node;
  const inner = negated ? node.not : node;
  const innerPath = negated ? [...path, 0] : path;
  const not = (
    <button
      type="button"
      className={styles["clause-not"]}
      aria-pressed={negated}
      title={texts.negatesTheConditionMissingDataStays}
      onClick={() => edit(path, toggleNot)}
    >
      {texts.not}
    </button>
  );
  if (isCondition(inner))
    return (
      <>
        <div className={styles["clause-row"]}>
          {not}
          <ConditionFields condition={inner} path={innerPath} {...shared} />
          <IconButton
            icon="close"
            label={texts.removeCondition}
            onClick={() => edit(path, () => null)}
          />
        </div>
        {path.length === 0 && <AddButtons path={path} edit={edit} />}
      </>
    );
  const word = "and" in inner ? "and" : "or";
  return (
    <fieldset className={styles["clause-group"]}>
      <legend>
        {not}
        <button
          type="button"
          className={styles["clause-word"]}
          title={texts.switchBetweenAndAndOr}
          aria-label={word === "and" ? texts.allOfTheseSwitchToAny : texts.anyOfTheseSwitchToAll}
          onClick={() => edit(innerPath, switchWord)}
        >
          {word === "and" ? texts.allOf : texts.anyOf}
        </button>
      </legend>
      {(partsOf(inner) ?? []).map((part, i) => (
        <Part key={i} node={part} path={[...innerPath, i]} {...shared} />
      ))}
      <AddButtons path={innerPath} edit={edit} />
    </fieldset>
  );
}

function AddButtons({ path, edit }: { path: Path; edit: Shared["edit"] }) {
  return (
    <div className={styles["clause-add"]}>
      <button
        type="button"
        className={ui["link"]}
        onClick={() => edit(path, (part) => addBeside(part, "and", newCondition()))}
      >
        {texts.and}
      </button>
      <button
        type="button"
        className={ui["link"]}
        onClick={() => edit(path, (part) => addBeside(part, "or", newCondition()))}
      >
        {texts.or}
      </button>
    </div>
  );
}

const OPERATOR_SIGNS: Record<string, string> = {
  "<": "<",
  "<=": "≤",
  ">": ">",
  ">=": "≥",
  "=": "=",
  "!=": "≠",
};
const WINDOWS = ["10m", "30m", "1h", "6h", "1d"];

function ConditionFields({
  condition,
  path,
  language,
  error,
  edit,
}: Shared & { condition: Condition; path: Path }) {
  const id = useId();
  const set = (change: Partial<Condition>) =>
    edit(path, (part) => ({ ...part, ...change }) as Expression);
  const fact = condition.fact === undefined ? null : (language.facts[condition.fact] ?? null);
  const isMetric = condition.fact === undefined;
  const wrong = (field: FieldName) =>
    error?.at?.field === field && error.at.path.join() === path.join()
      ? { "aria-invalid": true, "aria-describedby": `${id}-error` }
      : {};
  const here = error?.at?.path.join() === path.join();
  return (
    <div className={styles["clause-condition"]} data-testid="condition-fields">
      <Subject
        condition={condition}
        language={language}
        invalid={wrong("subject")}
        onChange={(next) => edit(path, () => next)}
      />
      {isMetric && (
        <>
          <input
            aria-label={texts.statistic}

            list={`${id}-statistics`}
            value={condition.statistic ?? ""}
            placeholder={"mean"}
            {...wrong("statistic")}
            onChange={(event) => set({ statistic: event.target.value })}
          />
          <datalist id={`${id}-statistics`}>
            {[
              ...Object.keys(language.statistics).filter((name) => name !== "share"),
              "p5",
              "p25",
              "p75",
              "p95",
              "p99",
              "share(< 10%)",
            ].map((name) => (
              <option key={name} value={name}>
                {language.statistics[name] ?? ""}
              </option>
            ))}
          </datalist>
        </>
      )}
      {(isMetric || condition.window !== undefined) && (
        <>
          <input
            aria-label={texts.overTheLastLabel}
            title={texts.aTrailingWindowSuchAs30m}

            list={`${id}-windows`}
            value={condition.window ?? ""}
            placeholder={texts.wholeRun}
            {...wrong("window")}
            onChange={(event) => set({ window: event.target.value })}
          />
          <datalist id={`${id}-windows`}>
            {WINDOWS.map((one) => (
              <option key={one} value={one} />
            ))}
          </datalist>
        </>
      )}
      {condition.over && (
        <span className={styles["clause-over"]}>{texts.over(condition.over)}</span>
      )}
      <select
        aria-label={texts.operator}
        className={styles["clause-op"]}
        value={condition.op}
        {...wrong("op")}
        onChange={(event) => set({ op: event.target.value })}
      >
        {OPERATORS.map((op) => (
          <option key={op} value={op} disabled={fact?.kind === "text" && op !== "=" && op !== "!="}>
            {OPERATOR_SIGNS[op]}
          </option>
        ))}
      </select>
      <ValueField
        condition={condition}
        placeholder={placeholderOf(condition, language)}
        invalid={wrong("value")}
        onChange={(value) => set({ value })}
      />
      {here && (
        <p id={`${id}-error`} className={formStyles["rule-error"]} role="alert">
          {error?.message}
        </p>
      )}
    </div>
  );
}

function Subject({
  condition,
  language,
  invalid,
  onChange,
}: {
  condition: Condition;
  language: LanguageDocument;
  invalid: object;
  onChange: (next: Condition) => void;
}) {
  const value = condition.fact ?? condition.metric ?? "";
  const choose = (name: string) => {
    const fact = Object.hasOwn(language.facts, name) ? language.facts[name] : null;
    if (!fact)
      return onChange({
        metric: name,
        statistic: condition.statistic ?? "mean",
        ...(condition.window ? { window: condition.window } : {}),
        op: condition.op,
        value: unitValue(condition, language.metrics[name]?.unit ?? ""),
      });
    const start = fact.kind === "text" ? [""] : fact.kind === "duration" ? "10m" : "1";
    onChange({ fact: name, op: fact.kind === "text" ? "=" : ">", value: start });
  };
  return (
    <select
      aria-label={texts.metricOrFact}
      className={styles["clause-subject"]}
      value={value}
      {...invalid}
      onChange={(event) => choose(event.target.value)}
    >
      <optgroup label={texts.metrics}>
        {Object.entries(language.metrics).map(([name, metric]) => (
          <option key={name} value={name} title={metric.label}>
            {metric.label}
          </option>
        ))}
      </optgroup>
      <optgroup label={texts.factsOfTheWorkload}>
        {Object.entries(language.facts).map(([name, one]) => (
          <option key={name} value={name} title={one.description}>
            {name.replaceAll("_", " ")}
          </option>
        ))}
      </optgroup>
    </select>
  );
}

/** Another metric has another unit: the number stays, the unit follows. */
function unitValue(condition: Condition, unit: string): string {
  const number =
    condition.fact === undefined ? /^-?[\d.]+/.exec(String(condition.value))?.[0] : undefined;
  if (number === undefined) return `10${unit === "%" ? "%" : unit ? ` ${unit}` : ""}`;
  return `${number}${unit === "%" ? "%" : unit ? ` ${unit}` : ""}`;
}

function placeholderOf(condition: Condition, language: LanguageDocument): string {
  if (condition.fact !== undefined)
    return texts.examples[language.facts[condition.fact]?.kind ?? "number"];
  const unit = language.metrics[condition.metric ?? ""]?.unit ?? "";
  return unit ? `10 ${unit}` : "10";
}

function ValueField({
  condition,
  placeholder,
  invalid,
  onChange,
}: {
  condition: Condition;
  placeholder: string;
  invalid: object;
  onChange: (value: Condition["value"]) => void;
}) {
  const list = Array.isArray(condition.value);
  const shown = Array.isArray(condition.value)
    ? condition.value.join(", ")
    : String(condition.value);
  const read = (text: string) =>
    list ? text.split(",").map((word, i) => (i === 0 ? word.trimStart() : word.trim())) : text;
  return (
    <input
      aria-label={texts.valueWithUnit}
      className={styles["clause-value"]}
      value={shown}
      placeholder={placeholder}
      {...invalid}
      onChange={(event) => onChange(read(event.target.value))}
    />
  );
}
