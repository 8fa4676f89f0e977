import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const SRC = join(import.meta.dirname, "..");
const files = readdirSync(SRC, { recursive: true, encoding: "utf8" });
const read = (path: string) => readFileSync(join(SRC, path), "utf8");
const bare = (css: string) => css.replace(/\/\*[\s\S]*?\*\//g, "").replace(/:global\([^)]*\)/g, "");
const classesOf = (css: string) =>
  new Set([...bare(css).matchAll(/\.([a-zA-Z][\w-]*)(?=[^{};]*\{)/g)].map(([, name]) => name));

const modules = files.filter((path) => path.endsWith(".module.css"));
const used = new Map(modules.map((path) => [path, new Set<string>()]));
for (const path of files.filter((one) => one.endsWith(".tsx"))) {
  const text = read(path);
  for (const [, name, module] of text.matchAll(/import (\w+) from "@\/([\w/.-]+\.module\.css)"/g))
    for (const [, cls] of text.matchAll(new RegExp(`\\b${name}\\["([\\w-]+)"\\]`, "g")))
      used.get(module)?.add(cls);
}

test.each(modules)("%s has the classes that are used of it, and no others", (path) => {
  expect([...(used.get(path) ?? [])].sort()).toEqual([...classesOf(read(path))].sort());
});

test("styles that are no module's are the tokens and the bare elements", () => {
  const plain = files.filter((path) => path.endsWith(".css") && !path.endsWith(".module.css"));
  expect(plain.sort()).toEqual(["app/app.css", "base/tokens.css"]);
  for (const path of plain) expect([...classesOf(read(path))]).toEqual([]);
});

test("only the tokens name colours", () => {
  for (const path of files.filter((one) => one.endsWith(".css") && one !== "base/tokens.css"))
    expect(bare(read(path)).match(/#[0-9a-f]{3,8}\b/gi), path).toBeNull();
});
