/**
 * The editor of one rule: fields or text, always in step; whom it matches, counted while typing; what it would have
 * found; kept as a lens of the view or as a rule of the site. Load it lazily.
 */

import { Dialog } from "radix-ui";
import { useEffect, useMemo, useState } from "react";
import { formatCount } from "@/base/format";
import { BacktestPanel } from "@/features/rules/BacktestPanel";
import type { Checked } from "@/features/rules/checking";
import { useCheck, usePreview } from "@/features/rules/checking";
import type { Clause, Span } from "@/features/rules/clause";
import { fieldAt, newCondition, printClause, suggestionIn } from "@/features/rules/clause";
import { ClauseFields } from "@/features/rules/ClauseFields";
import type { DraftRule, Lens, Override, PreviewDocument } from "@/base/verdicts/documents";
import { cleanOverrides } from "@/features/rules/overrides";
import { useLanguage } from "@/base/verdicts/queries";
import { SavePanel } from "@/features/rules/SavePanel";
import type { RuleEntry } from "@/base/verdicts/slots";
import { boundText, thresholdNames } from "@/base/verdicts/slots";
import type { RuleVerdict } from "@/base/verdicts/verdicts";
import { lensVerdict } from "@/base/verdicts/verdicts";
import { Choice, IconButton } from "@/base/ui/controls";
import { Permitted } from "@/base/ui/Permitted";
import ui from "@/base/ui/ui.module.css";
import ruleStyles from "@/base/verdicts/rules.module.css";
import styles from "@/features/rules/RuleEditor.module.css";
import formStyles from "@/features/rules/form.module.css";
import { rulesTexts as texts } from "@/texts";

export interface RuleEditorProps {
  /** The rule or lens to change; null for a new one. */
  entry: RuleEntry | null;
  lenses: readonly Lens[];
  onLenses: (lenses: Lens[]) => void;
  onClose: () => void;
  /** Whom the draft matches, as soon as it is counted; null when there is nothing to show any more. */
  onDraft?: (verdict: RuleVerdict | null) => void;
}

interface Draft {
  text: string;
  /** The fields, as last read from a good text or as edited. */
  clause: Clause | null;
  /** Where each field stands in the text; empty while the text itself is edited. */
  spans: Span[];
}

function firstDraft(entry: RuleEntry | null): Draft {
  if (entry) return { text: entry.rule?.when ?? entry.when, clause: null, spans: [] };
  const clause: Clause = { gpus: { reach: "any" }, when: newCondition() };
  return { clause, ...printClause(clause) };
}

export function RuleEditor({ entry, lenses, onLenses, onClose, onDraft }: RuleEditorProps) {
  const [draft, setDraft] = useState(() => firstDraft(entry));
  const [mode, setMode] = useState<"fields" | "text">("fields");
  const [values, setValues] = useState(entry?.rule?.thresholds ?? {});
  const [overrides, setOverrides] = useState(entry?.rule?.override ?? []);
  const thresholds = useMemo(
    () =>
      Object.fromEntries(
        [...new Set([...Object.keys(values), ...thresholdNames(draft.text)])].map((name) => [
          name,
          values[name] ?? "",
        ]),
      ),
    [values, draft.text],
  );
  const checked = useCheck(draft.text);
  const { reading } = checked;
  useEffect(() => {
    // A text that was typed becomes fields once the server has read it.
    if (reading)
      setDraft((now) => (now.spans.length === 0 ? { ...now, clause: reading.clause } : now));
  }, [reading]);
  const unset = thresholdNames(draft.text).filter((name) => thresholds[name].trim() === "");
  const valid = reading !== null && unset.length === 0;
  const rule = draftRule(entry, draft.text, thresholds, overrides);
  const counted = usePreview(boundText(draft.text, thresholds), valid);
  const { preview } = counted;
  useEffect(() => onDraft?.(preview ? lensVerdict(preview) : null), [preview, onDraft]);
  useEffect(() => () => onDraft?.(null), [onDraft]);
  const at =
    checked.error?.place && draft.spans.length > 0
      ? fieldAt(draft.spans, checked.error.place.start)
      : null;
  return (
    <Dialog.Root open modal={false} onOpenChange={(open) => !open && onClose()}>
      <Dialog.Portal>
        <Dialog.Content
          className={styles["rule-editor"]}
          aria-describedby={undefined}
          data-testid="rule-editor"
          onInteractOutside={(event) => event.preventDefault()}
        >
          <header>
            <Dialog.Title asChild>
              <h2>{entry ? entry.title : texts.newRule}</h2>
            </Dialog.Title>
            <Choice
              label={texts.editAs}
              value={mode}
              options={[
                { value: "fields", label: texts.fields },
                { value: "text", label: texts.text },
              ]}
              onChange={setMode}
            />
            <IconButton icon="close" label={texts.closeEditor} onClick={onClose} />
          </header>
          <div className={styles["rule-editor-body"]}>
            {mode === "text" ? (
              <TextField
                text={draft.text}
                checked={checked}
                onChange={(text) => setDraft({ ...draft, text, spans: [] })}
              />
            ) : (
              <Fields
                draft={draft}
                checked={checked}
                at={at}
                onChange={(clause) => setDraft({ clause, ...printClause(clause) })}
                onText={() => setMode("text")}
              />
            )}
            <Thresholds thresholds={thresholds} unset={unset} onChange={setValues} />
            {(reading?.warnings ?? []).map((warning) => (
              <p key={warning} className={ruleStyles["rule-warning"]} role="alert">
                {warning}
              </p>
            ))}
            <Count
              preview={counted.preview}
              counting={counted.counting}
              problem={counted.problem}
              valid={valid}
            />
            <Permitted to="contribute">
              <BacktestPanel rule={rule} valid={valid} />
            </Permitted>
            <SavePanel
              entry={entry}
              draft={rule}
              overrides={overrides}
              onOverrides={setOverrides}
              valid={valid}
              lenses={lenses}
              onLenses={onLenses}
              onDone={onClose}
            />
          </div>
        </Dialog.Content>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

/** What is tested: the text, its thresholds and exceptions, and when a finding opens and closes. */
function draftRule(
  entry: RuleEntry | null,
  when: string,
  thresholds: Record<string, string>,
  overrides: readonly Override[],
): DraftRule {
  const kept = entry?.rule;
  const times = kept
    ? { now: kept.now, open_after: kept.open_after, close_after: kept.close_after }
    : {};
  const own = cleanOverrides(overrides, Object.keys(thresholds));
  return {
    id: kept?.id ?? "draft",
    when,
    ...times,
    ...(Object.keys(thresholds).length > 0 ? { thresholds } : {}),
    ...(own.length > 0 ? { override: own } : {}),
  };
}

function Fields({
  draft,
  checked,
  at,
  onChange,
  onText,
}: {
  draft: Draft;
  checked: Checked;
  at: Span | null;
  onChange: (clause: Clause) => void;
  onText: () => void;
}) {
  const language = useLanguage();
  if (language.isError) return <p role="alert">{language.error.message}</p>;
  if (!language.data || (!draft.clause && !checked.error))
    return <p className={ui["muted"]}>{texts.loadingTheRule}</p>;
  if (!draft.clause)
    return (
      <p role="alert" className={ruleStyles["rule-warning"]}>
        {texts.theTextCannotBeShownAs(checked.error?.message ?? "")}{" "}
        <button type="button" className={ui["link"]} onClick={onText}>
          {texts.editTheText}
        </button>
      </p>
    );
  return (
    <>
      <ClauseFields
        clause={draft.clause}
        language={language.data}
        error={checked.error && { at, message: checked.error.message }}
        onChange={onChange}
      />
      <code className={ruleStyles["rule-text"]} data-testid="rule-as-text">
        {draft.text}
      </code>
    </>
  );
}

function TextField({
  text,
  checked,
  onChange,
}: {
  text: string;
  checked: Checked;
  onChange: (text: string) => void;
}) {
  const place = checked.error?.place ?? null;
  const better = checked.error && suggestionIn(checked.error.message);
  return (
    <div className={ui["field"]}>
      <label htmlFor="rule-when">{texts.rule}</label>
      <div className={styles["rule-text-box"]} data-testid="rule-text-box">
        {/* The same text behind the box, with the wrong place marked. */}
        <pre aria-hidden="true">
          {place ? text.slice(0, place.start) : text}
          {place && <mark>{text.slice(place.start, place.end) || " "}</mark>}
          {place && text.slice(place.end)}{" "}
        </pre>
        <textarea
          id="rule-when"
          data-testid="rule-when"
          value={text}
          spellCheck={false}
          maxLength={4000}
          aria-invalid={checked.error !== null}
          aria-describedby="rule-error"
          onChange={(event) => onChange(event.target.value)}
        />
      </div>
      <p id="rule-error" className={formStyles["rule-error"]} role="alert" data-testid="rule-error">
        {checked.error && (
          <>
            {place && texts.lineColumn(place.line, place.column)}
            {checked.error.message}
          </>
        )}
        {place && better && (
          <button
            type="button"
            className={ui["link"]}
            onClick={() => onChange(text.slice(0, place.start) + better + text.slice(place.end))}
          >
            {texts.use(better)}
          </button>
        )}
      </p>
    </div>
  );
}

function Thresholds({
  thresholds,
  unset,
  onChange,
}: {
  thresholds: Record<string, string>;
  unset: readonly string[];
  onChange: (thresholds: Record<string, string>) => void;
}) {
  const names = Object.keys(thresholds);
  if (names.length === 0) return null;
  return (
    <fieldset className={styles["rule-thresholds"]}>
      <legend>{texts.thresholds}</legend>
      {names.map((name) => (
        <label key={name}>
          ${name}{" "}
          <input
            value={thresholds[name]}
            maxLength={40}
            onChange={(event) => onChange({ ...thresholds, [name]: event.target.value })}
          />
        </label>
      ))}
      {unset.length > 0 && (
        <p className={ui["muted"]}>
          {texts.giveAValueSuchAs15(unset.map((name) => `$${name}`).join(texts.andJoin))}
        </p>
      )}
    </fieldset>
  );
}

function Count({
  preview,
  counting,
  problem,
  valid,
}: {
  preview: PreviewDocument | null;
  counting: boolean;
  problem: string | null;
  valid: boolean;
}) {
  const text = () => {
    if (!valid) return "–";
    if (problem && !preview) return problem;
    if (!preview) return texts.counting;
    return null;
  };
  const said = text();
  return (
    <div
      className={styles["rule-count"]}
      role="status"
      aria-live="polite"
      data-testid="rule-count"
      data-counting={counting}
    >
      {said !== null || !preview ? (
        <span className={ui["muted"]}>{said}</span>
      ) : (
        <>
          <CountOf label={texts.matchNow} held={preview.now} />{" "}
          <CountOf label={texts.overTheWholeRunLabel} held={preview.life} />
          <span className={ui["muted"]}>
            {texts.ofRunning(formatCount(preview.workloads_judged))}
          </span>
        </>
      )}
    </div>
  );
}

function CountOf({ label, held }: { label: string; held: PreviewDocument["now"] }) {
  return (
    <span>
      <b>{formatCount(held.workload_count)}</b>{" "}
      {texts.workload3(held.workload_count === 1 ? "" : "s")} <b>{formatCount(held.gpu_count)}</b>{" "}
      {texts.gpu(held.gpu_count === 1 ? "" : "s", label)}
    </span>
  );
}
