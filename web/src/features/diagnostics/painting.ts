/** What drawing needs of the page: a canvas at the screen's resolution, and the theme's colours. */

import type { Theme } from "@/base/colour";
import type { TimelineStyle } from "@/charts/timeline";

/** A colour token of the page's theme. */
export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The colours of a timeline in a theme. */
export function timelineStyle(theme: Theme): TimelineStyle {
  const dark = theme === "dark";
  return {
    text: token("--muted"),
    grid: token("--line"),
    band: dark ? "#6cb6d938" : "#1c6f9933",
    faint: dark ? "#6cb6d916" : "#1c6f9914",
    median: token("--muted"),
    lit: token("--selected"),
    veil: dark ? "#0e1217a6" : "#ffffffa6",
  };
}
