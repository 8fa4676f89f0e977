import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const SOURCE = fileURLToPath(new URL(".", import.meta.url));
// What the reports and widgets say stands beside their drawing code, outside of the app.
const OUTSIDE = /\/(notebook|report)\/|\.test\.tsx?$|\/api\/schema\.ts$|\/texts\.ts$/;

function* files(folder: string): Generator<string> {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* files(path);
    else if (/\.tsx$/.test(entry.name) && !OUTSIDE.test(path)) yield path;
  }
}

/** Words that a page would show: text between tags, and attributes that people read or hear. */
function ownWords(source: string): string[] {
  const code = source.replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, "");
  const between = [...code.matchAll(/>\s*([A-Z][a-z]+(?: [a-z]+)+[^<>{}=;()]*)\s*</g)];
  const attributes = [
    ...code.matchAll(/\b(?:aria-label|title|placeholder|label|alt)="([^"]*[a-z]{3}[^"]*)"/g),
  ];
  return [...between, ...attributes].map((found) => found[1].trim());
}

test("the check finds what it looks for", () => {
  expect(ownWords('<p>No jobs match.</p><b title="Close the panel">x</b>')).toEqual([
    "No jobs match.",
    "Close the panel",
  ]);
  expect(ownWords('<p className="x">{texts.none}</p><i title={texts.close} />')).toEqual([]);
});

test("no page has words of its own: all are in the catalogue", () => {
  const found: string[] = [];
  for (const path of files(SOURCE))
    for (const words of ownWords(readFileSync(path, "utf-8")))
      found.push(`${path.slice(SOURCE.length)}: ${words}`);
  expect(found).toEqual([]);
});
