import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { expect, test } from "vitest";

const SOURCE = fileURLToPath(new URL(".", import.meta.url));
// What the reports and widgets say stands beside their drawing code, outside of the app.
const OUTSIDE = /\/(notebook|report)\/|\.test\.tsx?$|\/api\/schema\.ts$|\/texts\.ts$/;
/** Words that a machine reads, which nobody may translate: of the rule language, of verdicts, of answers. */
const VOCABULARY =
  /\/(rules\/clause|verdicts\/verdicts|replay\/memory|whatif\/MemoryView|whatif\/Strategies)\.tsx?$/;

function* files(folder: string): Generator<string> {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* files(path);
    else if (/\.tsx?$/.test(entry.name) && !OUTSIDE.test(path)) yield path;
  }
}

const SPOKEN = new Set(["aria-label", "title", "placeholder", "label", "alt"]);
/** Code in a text: SVG, CSS, shaders, selections and media queries. */
const CODE = /[<>{}=;"#]|sans-serif|^\(|gradient\(|^input, |(^|, )[0-9a-f]{6}\b|[a-z]:$/;

/** Whether a text in code reads like a sentence: two words, or one that goes on. */
function isSentence(text: string): boolean {
  return !CODE.test(text.trim()) && /[A-Za-z]{2,},? [a-z]{2,}|[a-z]{2,}…/.test(text);
}

/** Names of cached questions and errors that only a programmer meets. */
function isInternal(node: ts.Node): boolean {
  for (let at = node.parent; at && !ts.isSourceFile(at); at = at.parent) {
    if (ts.isPropertyAssignment(at) && at.name.getText() === "queryKey") return true;
    if (ts.isThrowStatement(at) || ts.isImportDeclaration(at) || ts.isLiteralTypeNode(at))
      return true;
    if (ts.isVariableDeclaration(at) && /^[A-Z_]+$|[kK]ey$/.test(at.name.getText())) return true;
    if (ts.isBinaryExpression(at) && /^[!=]==$/.test(at.operatorToken.getText())) return true;
  }
  return false;
}

/** Words that a page would show: text between tags, attributes that people read or hear, sentences in code. */
function ownWords(source: string, kind = ts.ScriptKind.TSX): string[] {
  const found: string[] = [];
  const file = ts.createSourceFile("x", source, ts.ScriptTarget.Latest, true, kind);
  const visit = (node: ts.Node): void => {
    if (ts.isJsxText(node)) {
      if (/[A-Za-z]{2,}/.test(node.text)) found.push(node.text.trim());
    } else if (
      ts.isStringLiteralLike(node) ||
      ts.isTemplateHead(node) ||
      ts.isTemplateMiddleOrTemplateTail(node)
    ) {
      const attribute = ts.isJsxAttribute(node.parent) ? node.parent.name.getText() : "";
      if (SPOKEN.has(attribute) ? /[a-z]{3}/.test(node.text) : isSentence(node.text))
        if (!isInternal(node)) found.push(node.text.trim());
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

const kindOf = (path: string) => (path.endsWith("x") ? ts.ScriptKind.TSX : ts.ScriptKind.TS);

test("the check finds what it looks for", () => {
  expect(ownWords('<p>No jobs match.</p>; <b title="Close the panel">x</b>')).toEqual([
    "No jobs match.",
    "Close the panel",
  ]);
  expect(ownWords("<p>{busy ? `Reading ${n} files` : 'looking…'}</p>")).toEqual(["looking…"]);
  expect(ownWords("say(`${n} files were read`)")).toEqual(["files were read"]);
  expect(ownWords("<p className='x'>{texts.none}</p>; <i title={texts.close} />")).toEqual([]);
  expect(
    ownWords("use({ queryKey: ['findings of', id] }); throw new Error('No such place')"),
  ).toEqual([]);
});

test("no page has words of its own: all are in the catalogue", () => {
  const found: string[] = [];
  for (const path of files(SOURCE))
    if (!VOCABULARY.test(path))
      for (const words of ownWords(readFileSync(path, "utf-8"), kindOf(path)))
        found.push(`${path.slice(SOURCE.length)}: ${words}`);
  expect(found).toEqual([]);
});
