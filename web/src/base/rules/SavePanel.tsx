import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { idFrom } from "@/base/rules/clause";
import type { DraftRule, Lens, Override, RuleDocument, Severity } from "@/base/rules/documents";
import { deleteRule, ownPart, saveRule } from "@/base/rules/documents";
import { overrideProblem } from "@/base/rules/overrides";
import { Overrides } from "@/base/rules/Overrides";
import { useLanguage } from "@/base/rules/queries";
import type { RuleEntry } from "@/base/rules/slots";
import { boundText, faultLabel } from "@/base/rules/slots";
import { Choice, Select, Toggle } from "@/base/ui/controls";

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

type Kept = Omit<RuleDocument, "origin" | "warnings">;

const FRESH: Kept = { id: "", when: "", severity: "warning", enabled: true, waste: true, now: "10m", open_after: "0s", close_after: "10m" };
const ID = /^[a-z0-9][a-z0-9_.-]{0,63}$/;
const MOST_LENSES = 12;

/** Keep the draft: as a lens in this view and its link, or as a rule of the site that opens findings. */
export function SavePanel(props: SaveProps) {
  const { entry } = props;
  const [kind, setKind] = useState<"lens" | "site">(entry?.rule ? "site" : "lens");
  return (
    <section className="rule-save" aria-label="Save">
      <Choice
        label="Save as"
        value={kind}
        options={[
          { value: "lens", label: "Lens of this view" },
          { value: "site", label: "Site rule" },
        ]}
        onChange={setKind}
      />
      {kind === "lens" ? <SaveLens {...props} /> : <SaveRule {...props} />}
    </section>
  );
}

function SaveLens({ entry, draft, valid, lenses, onLenses, onDone }: SaveProps) {
  const [name, setName] = useState(entry?.title ?? "");
  const called = name.trim();
  const taken = lenses.some((lens) => lens.name === called && lens !== entry?.lens);
  const full = lenses.length >= MOST_LENSES && !entry?.lens;
  const save = () => {
    const lens = { name: called, when: boundText(draft.when, draft.thresholds ?? {}) };
    onLenses(entry?.lens ? lenses.map((one) => (one === entry.lens ? lens : one)) : [...lenses, lens]);
    onDone();
  };
  return (
    <form
      className="rule-form"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <p className="muted">Only highlights, in this view and whoever gets its link. It opens no findings and tells nobody.</p>
      <div className="rule-line">
        <input aria-label="Name of the lens" placeholder="Name of the lens" value={name} maxLength={60} onChange={(event) => setName(event.target.value)} />
        <button type="submit" className="primary" data-testid="save-lens" disabled={!valid || called === "" || taken || full}>
          Save as lens
        </button>
      </div>
      {taken && <p className="rule-warning">There is a lens of this name already.</p>}
      {full && <p className="rule-warning">A view holds at most {MOST_LENSES} lenses.</p>}
    </form>
  );
}

function SaveRule({ entry, draft, overrides, onOverrides, valid, onDone }: SaveProps) {
  const client = useQueryClient();
  const language = useLanguage();
  const [rule, setRule] = useState<Kept>(() => (entry?.rule ? ownPart(entry.rule) : { ...FRESH, ...(entry ? { title: entry.title } : {}) }));
  const set = (change: Partial<Kept>) => setRule({ ...rule, ...change });
  const id = rule.id || idFrom(rule.title ?? "");
  const changed = () => Promise.all([client.invalidateQueries({ queryKey: ["rules"] }), client.invalidateQueries({ queryKey: ["verdicts"] })]);
  const save = useMutation({
    mutationFn: () => {
      const own = { ...rule };
      delete own.override;
      delete own.thresholds;
      return saveRule({ ...own, ...draft, id });
    },
    onSuccess: async () => {
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
      className="rule-form"
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate();
      }}
    >
      <p className="muted">Judges every workload from its first sample; opens findings, and tells people where notification is set up.</p>
      <label className="rule-label">
        Title
        <input value={rule.title ?? ""} maxLength={200} required onChange={(event) => set({ title: event.target.value })} />
      </label>
      <label className="rule-label">
        Id
        <input value={rule.id} placeholder={idFrom(rule.title ?? "") || "made from the title"} maxLength={64} disabled={entry?.rule !== null && entry !== null} onChange={(event) => set({ id: event.target.value })} />
      </label>
      <div className="pair">
        <Choice label="Severity" value={rule.severity} options={(["info", "warning", "critical"] as Severity[]).map((value) => ({ value, label: value }))} onChange={(severity) => set({ severity })} />
        <Select
          label="Kind of fault"
          value={rule.fault ?? ""}
          options={[{ value: "", label: "none of these" }, ...Object.keys(language.data?.faults ?? {}).filter((fault) => fault !== "healthy").map((value) => ({ value, label: faultLabel(value) }))]}
          onChange={(fault) => {
            const next = { ...rule };
            delete next.fault;
            setRule(fault ? { ...next, fault } : next);
          }}
        />
      </div>
      <label className="rule-label">
        Explanation
        <textarea value={rule.explanation ?? ""} rows={2} maxLength={4000} onChange={(event) => set({ explanation: event.target.value })} />
      </label>
      <Overrides overrides={overrides} thresholds={draft.thresholds ?? {}} onChange={onOverrides} />
      {problem && <p className="rule-warning">{problem}</p>}
      <Toggle label="In force" checked={rule.enabled} onChange={(enabled) => set({ enabled })} />
      <Toggle label="Its GPU-hours count as wasted" checked={rule.waste} onChange={(waste) => set({ waste })} />
      {entry?.rule && entry.rule.origin !== "server" && <p className="muted">A rule saved here replaces the one {entry.rule.origin === "pack" ? "of the shipped pack" : "of the rule file"}; deleting it brings that back.</p>}
      <div className="rule-line">
        <button type="submit" className="primary" data-testid="save-rule" disabled={!valid || problem !== null || !ID.test(id) || save.isPending}>
          {entry?.rule ? "Save the rule" : "Save as site rule"}
        </button>
        {entry?.rule?.origin === "server" && (
          <button type="button" disabled={forget.isPending} onClick={() => forget.mutate()}>
            Delete
          </button>
        )}
      </div>
      {failed && (
        <p role="alert" className="rule-warning">
          {failed.message}
        </p>
      )}
    </form>
  );
}
