/** Small pieces of a page without React: elements, canvases and the colours around a widget. */

import type { Theme } from "@/base/colour";
import tokens from "@/base/tokens.css?inline";

type Children = (Node | string)[];

/** An element with attributes and children; texts are always texts. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Children
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function button(label: string, action: () => void): HTMLButtonElement {
  const made = make("button", { type: "button" }, label);
  made.addEventListener("click", action);
  return made;
}

/** A list to choose from, with its label. */
export function choice(
  label: string,
  options: readonly (readonly [string, string])[],
  value: string,
  chosen: (value: string) => void,
): { element: HTMLElement; set: (value: string) => void } {
  const select = make("select", { "aria-label": label });
  for (const [id, text] of options) select.append(make("option", { value: id }, text));
  select.value = value;
  select.addEventListener("change", () => chosen(select.value));
  return {
    element: make("label", {}, make("span", {}, label), select),
    set: (one) => (select.value = one),
  };
}

/** Dark or light, as the notebook around the widget is. */
export function themeAround(element: HTMLElement): Theme {
  for (let at: Element | null = element; at; at = parentOf(at)) {
    const [r, g, b, alpha] = paintColour(getComputedStyle(at).backgroundColor);
    if (alpha > 127) return r * 0.299 + g * 0.587 + b * 0.114 > 128 ? "light" : "dark";
  }
  return "light";
}

/** A colour of any notation (rgb, oklch, lab …) as it is painted: red, green, blue, alpha to 255. */
function paintColour(colour: string): Uint8ClampedArray {
  const context = make("canvas", { width: "1", height: "1" }).getContext("2d");
  if (!context) return new Uint8ClampedArray(4);
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}

function parentOf(element: Element): Element | null {
  const root = element.getRootNode();
  return element.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
}

/** The token of a colour as the widget sees it. */
export function tokenOf(element: HTMLElement, name: string): string {
  return getComputedStyle(element).getPropertyValue(name).trim();
}

const OWN = `
.marey { font: 12px/1.45 var(--font); color: var(--text); background: var(--panel); padding: 8px;
  border: 1px solid var(--line); border-radius: 6px; position: relative; text-align: left; }
.marey .bar { display: flex; flex-wrap: wrap; gap: 8px 14px; align-items: flex-end; margin-bottom: 6px; }
.marey label { display: grid; gap: 2px; color: var(--muted); }
.marey select, .marey button { font: inherit; color: var(--text); background: var(--raised);
  border: 1px solid var(--line-strong); border-radius: 4px; padding: 3px 8px; min-height: 26px; cursor: pointer; }
.marey button:hover { border-color: var(--accent); }
.marey button:disabled { opacity: 0.5; cursor: default; }
.marey :focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.marey .scroll { overflow: auto; max-height: 440px; border: 1px solid var(--line); background: var(--panel); }
.marey canvas { display: block; }
.marey .prune { display: grid; width: 220px; gap: 0; }
.marey input[type="range"] { width: 100%; margin: 0; accent-color: var(--accent); height: 16px; }
.marey .legend { display: flex; flex-wrap: wrap; gap: 6px 20px; align-items: center; margin: 6px 0;
  color: var(--muted); }
.marey .legend i { display: inline-block; width: 110px; height: 10px; margin: 0 6px; vertical-align: -1px; }
.marey .legend b { display: inline-block; border-radius: 50%; border: 1px solid var(--muted); margin: 0 5px;
  vertical-align: middle; }
.marey .legend i.kind { width: 10px; margin: 0 5px 0 0; }
.marey .stage { position: relative; overflow: hidden; border: 1px solid var(--line); touch-action: pan-y; }
.marey .stage canvas { position: absolute; }
.marey .said { min-height: 1.5em; color: var(--muted); overflow-wrap: anywhere; }
.marey table { border-collapse: collapse; margin: 4px 0 0; width: 100%; }
.marey th, .marey td { text-align: right; padding: 2px 8px; border-bottom: 1px solid var(--line); color: var(--text);
  background: none; }
.marey th:first-child, .marey td:first-child { text-align: left; overflow-wrap: anywhere; }
.marey th { color: var(--muted); font-weight: 500; }
.marey .rows { max-height: 180px; overflow: auto; }
`;

/** The frame of a widget: its styles stand inside, so that a shadow root changes nothing. */
export function frame(host: HTMLElement): HTMLElement {
  const scoped = tokens.replaceAll(/:root\b/g, ".marey");
  const root = make("div", { class: "marey" });
  root.dataset["theme"] = themeAround(host);
  host.append(make("style", {}, scoped + OWN), root);
  return root;
}
