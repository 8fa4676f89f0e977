const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Compare names as people read them: "gpu2" before "gpu10". */
export function naturalCompare(a: string, b: string): number {
  return collator.compare(a, b) || (a < b ? -1 : a > b ? 1 : 0);
}
