/** The path below which a proxy shows this server: "/marey", or "" where it has a name of its own. */

const META = 'meta[name="marey-prefix"]';

function readPrefix(): string {
  if (typeof document === "undefined") return "";
  return document.querySelector<HTMLMetaElement>(META)?.content ?? "";
}

export const PREFIX = readPrefix();

/** An address of this server as the browser must ask for it; one that has the prefix already stays as it is. */
export function withPrefix(address: string, prefix: string = PREFIX): string {
  return hasPrefix(address, prefix) ? address : prefix + address;
}

/** A path of the browser's address bar as the app's routes name it. */
export function withoutPrefix(path: string, prefix: string = PREFIX): string {
  return hasPrefix(path, prefix) ? path.slice(prefix.length) || "/" : path;
}

const hasPrefix = (address: string, prefix: string): boolean =>
  address.startsWith(prefix) && /^([/?#]|$)/.test(address.slice(prefix.length));
