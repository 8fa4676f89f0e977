/** What a widget sees of its Python object: the traits that are synced. */
export interface Model {
  get: (name: string) => unknown;
  set: (name: string, value: unknown) => void;
  save_changes: () => void;
  on: (event: string, action: () => void) => void;
  off: (event: string, action: () => void) => void;
}

/** Draws a model into an element; the answer undoes it. */
export type Render = (model: Model, host: HTMLElement) => () => void;

/** The module that a notebook loads: it draws the view that the model is. */
export function renderBy(views: Record<string, Render>) {
  return {
    render: ({ model, el }: { model: Model; el: HTMLElement }) =>
      views[model.get("_kind") as string](model, el),
  };
}
