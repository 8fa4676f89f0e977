import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { idFrom } from "@/features/rules/clause";
import type {
  DraftRule,
  Lens,
  Override,
  RuleScope,
  SentRule,
  Severity,
} from "@/base/verdicts/documents";
import { deleteRule, ownPart, saveRule } from "@/base/verdicts/documents";
import { overrideProblem } from "@/features/rules/overrides";
import { Overrides } from "@/features/rules/Overrides";
import { noteSaved, useLanguage } from "@/base/verdicts/queries";
import type { RuleEntry } from "@/base/verdicts/slots";
import { boundText, faultLabel } from "@/base/verdicts/slots";
import { Choice, Select, Toggle } from "@/base/ui/controls";
import { useCurrentUser } from "@/base/account";
import ui from "@/base/ui/ui.module.css";
import ruleStyles from "@/base/verdicts/rules.module.css";
import styles from "@/features/rules/SavePanel.module.css";
import formStyles from "@/features/rules/form.module.css";
import { rulesTexts as texts } from "@/texts";

interface SaveProps {
  entry: RuleEntry | null;
  /** Text, thresholds and exceptions as they stand. */
  draft: DraftRule;
  /** The exceptions as they are being typed. */
  overrides: readonly Override[];
  onOverrides: (overrides: Override[]) => void;
  valid: boolean;
  lenses: readonly Lens[];
  onLenses: (lenses: Lens[]) => void;
  onDone: () => void;
}

const FRESH: SentRule = {
  id: "",
  when: "",
  severity: "warning",
  enabled: true,
  waste: true,
  now: "10m",
  open_after: "0s",
  close_after: "10m",
};
const ID = /^[a-z0-9][a-z0-9_.-]{0,63}$/;
const MOST_LENSES = 12;

/** Keep the draft: as a lens of this view, or as a rule of oneself, a project or the site. */
export function SavePanel(props: SaveProps) {
  const { entry } = props;
  const scopes = useScopes(entry?.rule?.scope);
  const kept = entry?.rule?.scope;
  const [kind, setKind] = useState<"lens" | RuleScope>(
    kept && entry?.rule?.may_change && scopes.includes(kept) ? kept : "lens",
  );
  return (
    <section className={styles["rule-save"]} aria-label={texts.save}>
      <Choice
        label={texts.saveAs}
        value={kind}
        options={[
          { value: "lens" as const, label: texts.lensOfThisView },
          ...scopes.map((value) => ({ value, label: texts.ruleScopes[value] })),
        ]}
        onChange={setKind}
      />
      {kind === "lens" ? <SaveLens {...props} /> : <SaveRule {...props} scope={kind} />}
    </section>
  );
}

/** For whom somebody may save a rule; one that has an owner keeps it. */
function useScopes(kept: RuleScope | undefined): RuleScope[] {
  const me = useCurrentUser().data;
  if (kept === "personal" || kept === "project") return [kept];
  const may = (permission: string) => me?.permissions.includes(permission) ?? false;
  const allowed = {
    personal: may("contribute") && me?.user !== "",
    project: may("contribute") && me?.projects.length === 1,
    site: may("operate"),
  };
  return (["personal", "project", "site"] as const).filter((scope) => allowed[scope]);
}

function SaveLens({ entry, draft, valid, lenses, onLenses, onDone }: SaveProps) {
  const [name, setName] = useState(entry?.title ?? "");
  const called = name.trim();
  const taken = lenses.some((lens) => lens.name === called && lens !== entry?.lens);
  const full = lenses.length >= MOST_LENSES && !entry?.lens;
  const save = () => {
    const lens = { name: called, when: boundText(draft.when, draft.thresholds ?? {}) };
    onLenses(
      entry?.lens ? lenses.map((one) => (one === entry.lens ? lens : one)) : [...lenses, lens],
    );
    onDone();
  };
  return (
    <form
      className={styles["rule-form"]}
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <p className={ui["muted"]}>{texts.highlightsOnlyInThisViewAnd}</p>
      <div className={formStyles["rule-line"]}>
        <input
          aria-label={texts.lensName}
          placeholder={texts.lensName}
          value={name}
          maxLength={60}
          onChange={(event) => setName(event.target.value)}
        />
        <button
          type="submit"
          className={`${ui["button"]} ${ui["primary"]}`}
          data-testid="save-lens"
          disabled={!valid || called === "" || taken || full}
        >
          {texts.saveAsLens}
        </button>
      </div>
      {taken && <p className={ruleStyles["rule-warning"]}>{texts.aLensWithThisNameAlready}</p>}
      {full && (
        <p className={ruleStyles["rule-warning"]}>{texts.aViewCanHoldAtMost(MOST_LENSES)}</p>
      )}
    </form>
  );
}

function SaveRule({
  entry,
  draft,
  overrides,
  onOverrides,
  valid,
  onDone,
  scope,
}: SaveProps & { scope: RuleScope }) {
  const client = useQueryClient();
  const language = useLanguage();
  const [rule, setRule] = useState<SentRule>(() =>
    entry?.rule ? ownPart(entry.rule) : { ...FRESH, ...(entry ? { title: entry.title } : {}) },
  );
  const set = (change: Partial<SentRule>) => setRule({ ...rule, ...change });
  const id = rule.id || idFrom(rule.title ?? "");
  const changed = () =>
    Promise.all([
      client.invalidateQueries({ queryKey: ["rules"] }),
      client.invalidateQueries({ queryKey: ["verdicts"] }),
    ]);
  const save = useMutation({
    mutationFn: () => {
      const own = { ...rule };
      delete own.override;
      delete own.thresholds;
      return saveRule({ ...own, ...draft, id }, scope);
    },
    onSuccess: async (saved) => {
      noteSaved(saved.id);
      await changed();
      onDone();
    },
  });
  const forget = useMutation({
    mutationFn: () => deleteRule(id),
    onSuccess: async () => {
      await changed();
      onDone();
    },
  });
  const failed = save.error ?? forget.error;
  const problem = overrideProblem(draft.override ?? []);
  return (
    <form
      className={styles["rule-form"]}
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate();
      }}
    >
      <p className={ui["muted"]}>{texts.ruleScopeMeans[scope]}</p>
      <label className={styles["rule-label"]}>
        {texts.title}
        <input
          value={rule.title ?? ""}
          maxLength={200}
          required
          onChange={(event) => set({ title: event.target.value })}
        />
      </label>
      <label className={styles["rule-label"]}>
        {texts.id}
        <input
          value={rule.id}
          placeholder={idFrom(rule.title ?? "") || texts.derivedFromTheTitle}
          maxLength={64}
          disabled={entry?.rule !== null && entry !== null}
          onChange={(event) => set({ id: event.target.value })}
        />
      </label>
      <div className={ui["pair"]}>
        <Choice
          label={texts.severity}
          value={rule.severity}
          options={(["info", "warning", "critical"] as Severity[]).map((value) => ({
            value,
            label: value,
          }))}
          onChange={(severity) => set({ severity })}
        />
        <Select
          label={texts.kindOfFault}
          value={rule.fault ?? ""}
          options={[
            { value: "", label: texts.noneOfThese },
            ...Object.keys(language.data?.faults ?? {})
              .filter((fault) => fault !== "healthy")
              .map((value) => ({ value, label: faultLabel(value) })),
          ]}
          onChange={(fault) => {
            const next = { ...rule };
            delete next.fault;
            setRule(fault ? { ...next, fault } : next);
          }}
        />
      </div>
      <label className={styles["rule-label"]}>
        {texts.explanation}
        <textarea
          value={rule.explanation ?? ""}
          rows={2}
          maxLength={4000}
          onChange={(event) => set({ explanation: event.target.value })}
        />
      </label>
      <Overrides overrides={overrides} thresholds={draft.thresholds ?? {}} onChange={onOverrides} />
      {problem && <p className={ruleStyles["rule-warning"]}>{problem}</p>}
      <Toggle
        label={texts.enabled}
        checked={rule.enabled}
        onChange={(enabled) => set({ enabled })}
      />
      {scope === "site" && (
        <Toggle
          label={texts.countItsGpuHoursAsWasted}
          checked={rule.waste}
          onChange={(waste) => set({ waste })}
        />
      )}
      {scope === "site" && entry?.rule && entry.rule.origin !== "server" && (
        <p className={ui["muted"]}>
          {texts.aRuleSavedHereReplacesThe(
            entry.rule.origin === "pack" ? texts.ofTheBuiltInPack : texts.ofTheRuleFile,
          )}
        </p>
      )}
      <div className={formStyles["rule-line"]}>
        <button
          type="submit"
          className={`${ui["button"]} ${ui["primary"]}`}
          data-testid="save-rule"
          disabled={!valid || problem !== null || !ID.test(id) || save.isPending}
        >
          {entry?.rule?.scope === scope ? texts.saveRule : texts.saveAsRule[scope]}
        </button>
        {entry?.rule?.origin === "server" && entry.rule.may_change && (
          <button
            className={ui["button"]}
            type="button"
            disabled={forget.isPending}
            onClick={() => forget.mutate()}
          >
            {texts.deleteWord}
          </button>
        )}
      </div>
      {failed && (
        <p role="alert" className={ruleStyles["rule-warning"]}>
          {failed.message}
        </p>
      )}
    </form>
  );
}
