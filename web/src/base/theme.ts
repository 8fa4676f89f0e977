/** Dark or light: as the system says, until the reader chooses. */

import { create } from "zustand";
import type { Theme } from "@/base/colour";

const KEY = "marey.theme";

function initialTheme(): Theme {
  const kept = safely(() => localStorage.getItem(KEY));
  if (kept === "dark" || kept === "light") return kept;
  return matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark";
}

function safely<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    return null;
  }
}

export const useTheme = create<{ theme: Theme; setTheme: (theme: Theme) => void }>((set) => ({
  theme: initialTheme(),
  setTheme: (theme) => {
    safely(() => localStorage.setItem(KEY, theme));
    document.documentElement.dataset["theme"] = theme;
    set({ theme });
  },
}));

/** Put the theme on the page before anything is drawn; while it is printed, the light one. */
export function applyTheme(): void {
  const print = matchMedia("print");
  const apply = (theme: Theme) => {
    document.documentElement.dataset["theme"] = theme;
    useTheme.setState({ theme });
  };
  print.addEventListener("change", () => apply(print.matches ? "light" : initialTheme()));
  apply(useTheme.getState().theme);
}
