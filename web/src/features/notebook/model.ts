/** What a widget sees of its Python object: the traits that are synced. */
export interface Model {
  get: (name: string) => unknown;
  set: (name: string, value: unknown) => void;
  save_changes: () => void;
  on: (event: string, action: () => void) => void;
  off: (event: string, action: () => void) => void;
}
