/** What a view gives to the rule bar; the app puts the bar (features/rules) into the views that show one. */

import type { ComponentType } from "react";
import type { Lens } from "@/base/verdicts/documents";
import type { RuleBoard } from "@/base/verdicts/queries";
import type { RuleVerdict } from "@/base/verdicts/verdicts";

export interface RuleBarProps {
  board: RuleBoard;
  /** Whether the board is of a past moment: it then tells what had been found. */
  past?: boolean;
  /** The lenses of this view, and what happens when they change. */
  lenses: readonly Lens[];
  onLenses: (lenses: Lens[]) => void;
  /** Field of the rule whose units are lit; also lit from elsewhere, such as a bar on the canvas. */
  lit: string | null;
  onLight: (field: string | null) => void;
  /** Fields of the rules that the view is filtered by. */
  filtered?: ReadonlySet<string>;
  onFilter?: (field: string) => void;
  /** Field of the rule that units are coloured by. */
  coloured?: string | null;
  onColour?: (field: string) => void;
  /** Which eight of the violated rules have a place. */
  page?: number;
  onPage?: (page: number) => void;
  /** Whom the draft in the editor matches, to be shown while it is typed. Give the same function each time. */
  onDraft?: (verdict: RuleVerdict | null) => void;
}

export type RuleBarComponent = ComponentType<RuleBarProps>;
