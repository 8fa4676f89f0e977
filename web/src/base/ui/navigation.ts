/** The pages that a reader can go to; the app gives them, the head of every page shows them. */

import { createContext } from "react";

export interface PageEntry {
  path: string;
  label: string;
  /** Whether it stands behind "More" instead of in the bar. */
  more: boolean;
}

export const PagesContext = createContext<readonly PageEntry[]>([]);
