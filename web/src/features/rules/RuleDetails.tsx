import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { Override } from "@/base/verdicts/documents";
import { deleteRule, ownPart, saveRule } from "@/base/verdicts/documents";
import { overrideText, whom } from "@/features/rules/overrides";
import type { RuleBarProps } from "@/base/verdicts/ruleBar";
import { countText } from "@/features/rules/RuleBar";
import type { RuleEntry } from "@/base/verdicts/slots";
import { faultLabel } from "@/base/verdicts/slots";
import { findingsAddress } from "@/base/addresses";
import { PageLink } from "@/base/ui/PageLink";
import { PopoverClose } from "@/base/ui/controls";
import ui from "@/base/ui/ui.module.css";
import ruleStyles from "@/base/verdicts/rules.module.css";
import styles from "@/features/rules/RuleDetails.module.css";
import { rulesTexts as texts } from "@/texts";

type Actions = Pick<
  RuleBarProps,
  "lenses" | "onLenses" | "filtered" | "onFilter" | "coloured" | "onColour"
>;

/** What a rule means, whom it concerns, and what can be done with it. */
export function RuleDetails({
  entry,
  onEdit,
  ...actions
}: Actions & { entry: RuleEntry; onEdit: () => void }) {
  const { rule } = entry;
  return (
    <div className={`${ui["settings"]} ${styles["rule-details"]}`} data-testid="rule-details">
      <h3>{entry.title}</h3>
      <p className={ui["muted"]}>
        {entry.kind === "lens"
          ? texts.lensHighlightsOnlySendsNoNotifications
          : [
              entry.severity,
              entry.fault && faultLabel(entry.fault),
              rule && rule.scope !== "site" && texts.ruleOf(rule.scope, rule.owner),
              rule?.origin &&
                texts.from(
                  rule.origin === "pack"
                    ? texts.theBuiltInPack
                    : rule.origin === "file"
                      ? texts.aRuleFile
                      : texts.thisServer,
                ),
            ]
              .filter(Boolean)
              .join(" · ")}
      </p>
      <code className={ruleStyles["rule-text"]}>{entry.when}</code>
      {rule?.override && rule.override.length > 0 && <Exceptions overrides={rule.override} />}
      <p>{countText(entry)}</p>
      {(rule?.warnings ?? []).map((warning) => (
        <p key={warning} className={ruleStyles["rule-warning"]}>
          {warning}
        </p>
      ))}
      {rule?.explanation && <p>{rule.explanation}</p>}
      {rule?.next_step && (
        <p>
          <b>{texts.nextStep}</b> {rule.next_step}
        </p>
      )}
      <RuleActions entry={entry} onEdit={onEdit} {...actions} />
    </div>
  );
}

const MOST_EXCEPTIONS = 5;

function Exceptions({ overrides }: { overrides: readonly Override[] }) {
  return (
    <ul
      className={styles["rule-exceptions"]}
      aria-label={texts.exceptions}
      data-testid="rule-exceptions"
    >
      {overrides.slice(0, MOST_EXCEPTIONS).map((override, i) => (
        <li key={i}>
          {whom(override)}: <code>{overrideText(override)}</code>
        </li>
      ))}
      {overrides.length > MOST_EXCEPTIONS && (
        <li className={ui["muted"]}>
          {texts.andMoreExceptions(overrides.length - MOST_EXCEPTIONS)}
        </li>
      )}
    </ul>
  );
}

/** The rule's own buttons; those the view has no use for are left out. */
export function RuleActions({
  entry,
  onEdit,
  lenses,
  onLenses,
  filtered,
  onFilter,
  coloured,
  onColour,
}: Actions & { entry: RuleEntry; onEdit: () => void }) {
  const client = useQueryClient();
  const mayChange = entry.rule?.may_change ?? false;
  const changed = () =>
    Promise.all([
      client.invalidateQueries({ queryKey: ["rules"] }),
      client.invalidateQueries({ queryKey: ["verdicts"] }),
    ]);
  const enable = useMutation({
    mutationFn: async () =>
      entry.rule && saveRule({ ...ownPart(entry.rule), enabled: !entry.enabled }, entry.rule.scope),
    onSuccess: changed,
  });
  const forget = useMutation({
    mutationFn: async () => entry.rule && deleteRule(entry.rule.id),
    onSuccess: changed,
  });
  const failed = enable.error ?? forget.error;
  return (
    <>
      <div className={styles["rule-actions"]}>
        {onFilter && entry.enabled && (
          <button
            className={ui["button"]}
            type="button"
            aria-pressed={filtered?.has(entry.field) ?? false}
            onClick={() => onFilter(entry.field)}
          >
            {texts.filter}
          </button>
        )}
        {onColour && entry.enabled && (
          <button
            className={ui["button"]}
            type="button"
            aria-pressed={coloured === entry.field}
            onClick={() => onColour(entry.field)}
          >
            {texts.colour}
          </button>
        )}
        <PopoverClose asChild>
          <button className={ui["button"]} type="button" onClick={onEdit}>
            {texts.editAndTest}
          </button>
        </PopoverClose>
        {entry.rule && mayChange && (
          <button
            className={ui["button"]}
            type="button"
            disabled={enable.isPending}
            onClick={() => enable.mutate()}
          >
            {entry.enabled ? texts.disable : texts.enable}
          </button>
        )}
        {entry.rule?.origin === "server" && mayChange && (
          <button
            className={ui["button"]}
            type="button"
            disabled={forget.isPending}
            onClick={() => forget.mutate()}
          >
            {texts.deleteWord}
          </button>
        )}
        {entry.lens && (
          <button
            className={ui["button"]}
            type="button"
            onClick={() => onLenses(lenses.filter((lens) => lens !== entry.lens))}
          >
            {texts.removeLens}
          </button>
        )}
        {entry.rule && (
          <PageLink className={ui["button"]} href={findingsAddress({ rule: entry.rule.id })}>
            {texts.findings}
          </PageLink>
        )}
      </div>
      {failed && (
        <p role="alert" className={ruleStyles["rule-warning"]}>
          {failed.message}
        </p>
      )}
    </>
  );
}
