import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { Override } from "@/base/rules/documents";
import { deleteRule, ownPart, saveRule } from "@/base/rules/documents";
import { overrideText, whom } from "@/base/rules/overrides";
import type { RuleBarProps } from "@/base/rules/RuleBar";
import { countText } from "@/base/rules/RuleBar";
import type { RuleEntry } from "@/base/rules/slots";
import { faultLabel } from "@/base/rules/slots";
import { PopoverClose } from "@/base/ui/controls";

type Actions = Pick<RuleBarProps, "lenses" | "onLenses" | "filtered" | "onFilter" | "coloured" | "onColour">;

/** What a rule means, whom it concerns, and what can be done with it. */
export function RuleDetails({ entry, onEdit, ...actions }: Actions & { entry: RuleEntry; onEdit: () => void }) {
  const { rule } = entry;
  return (
    <div className="settings rule-details" data-testid="rule-details">
      <h3>{entry.title}</h3>
      <p className="muted">
        {entry.kind === "lens" ? "Lens: highlights only, tells nobody" : [entry.severity, entry.fault && faultLabel(entry.fault), rule?.origin && `from ${rule.origin === "pack" ? "the shipped pack" : rule.origin === "file" ? "a rule file" : "this server"}`].filter(Boolean).join(" · ")}
      </p>
      <code className="rule-text">{entry.when}</code>
      {rule?.override && rule.override.length > 0 && <Exceptions overrides={rule.override} />}
      <p>{countText(entry)}</p>
      {(rule?.warnings ?? []).map((warning) => (
        <p key={warning} className="rule-warning">
          {warning}
        </p>
      ))}
      {rule?.explanation && <p>{rule.explanation}</p>}
      {rule?.next_step && (
        <p>
          <b>Next:</b> {rule.next_step}
        </p>
      )}
      <RuleActions entry={entry} onEdit={onEdit} {...actions} />
    </div>
  );
}

const MOST_EXCEPTIONS = 5;

function Exceptions({ overrides }: { overrides: readonly Override[] }) {
  return (
    <ul className="rule-exceptions" aria-label="Exceptions" data-testid="rule-exceptions">
      {overrides.slice(0, MOST_EXCEPTIONS).map((override, i) => (
        <li key={i}>
          {whom(override)}: <code>{overrideText(override)}</code>
        </li>
      ))}
      {overrides.length > MOST_EXCEPTIONS && <li className="muted">and {overrides.length - MOST_EXCEPTIONS} more exceptions</li>}
    </ul>
  );
}

/** The rule's own buttons; those the view has no use for are left out. */
export function RuleActions({ entry, onEdit, lenses, onLenses, filtered, onFilter, coloured, onColour }: Actions & { entry: RuleEntry; onEdit: () => void }) {
  const client = useQueryClient();
  const changed = () => Promise.all([client.invalidateQueries({ queryKey: ["rules"] }), client.invalidateQueries({ queryKey: ["verdicts"] })]);
  const enable = useMutation({ mutationFn: async () => entry.rule && saveRule({ ...ownPart(entry.rule), enabled: !entry.enabled }), onSuccess: changed });
  const forget = useMutation({ mutationFn: async () => entry.rule && deleteRule(entry.rule.id), onSuccess: changed });
  const failed = enable.error ?? forget.error;
  return (
    <>
      <div className="buttons rule-actions">
        {onFilter && entry.enabled && (
          <button type="button" aria-pressed={filtered?.has(entry.field) ?? false} onClick={() => onFilter(entry.field)}>
            Filter
          </button>
        )}
        {onColour && entry.enabled && (
          <button type="button" aria-pressed={coloured === entry.field} onClick={() => onColour(entry.field)}>
            Colour
          </button>
        )}
        <PopoverClose asChild>
          <button type="button" onClick={onEdit}>
            Edit and test
          </button>
        </PopoverClose>
        {entry.rule && (
          <button type="button" disabled={enable.isPending} onClick={() => enable.mutate()}>
            {entry.enabled ? "Switch off" : "Switch on"}
          </button>
        )}
        {entry.rule?.origin === "server" && (
          <button type="button" disabled={forget.isPending} onClick={() => forget.mutate()}>
            Delete
          </button>
        )}
        {entry.lens && (
          <button type="button" onClick={() => onLenses(lenses.filter((lens) => lens !== entry.lens))}>
            Remove the lens
          </button>
        )}
        {entry.rule && (
          <a className="button" href={`/findings?rule=${encodeURIComponent(entry.rule.id)}`}>
            Findings
          </a>
        )}
      </div>
      {failed && (
        <p role="alert" className="rule-warning">
          {failed.message}
        </p>
      )}
    </>
  );
}
