import { slotColour } from "@/base/verdicts/slots";
import { useTheme } from "@/base/theme";
import ruleStyles from "@/base/verdicts/rules.module.css";

/** A rule's mark: filled where it is violated now, a ring where it was over the life; the same on chips and canvas. */
export function RuleMark({
  slot,
  now,
  size = 10,
}: {
  slot: number | null;
  now: boolean;
  size?: number;
}) {
  const theme = useTheme((state) => state.theme);
  const colour = slot === null ? "var(--muted)" : slotColour(slot, theme);
  return (
    <svg
      className={ruleStyles["rule-mark"]}
      width={size}
      height={size}
      viewBox="0 0 10 10"
      aria-hidden="true"
    >
      <circle
        cx="5"
        cy="5"
        r={now ? 4.4 : 3.6}
        fill={now ? colour : "none"}
        stroke={colour}
        strokeWidth={now ? 0 : 1.6}
      />
    </svg>
  );
}
