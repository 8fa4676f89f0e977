/** The widgets of `marey.notebook` as ES modules, written into the Python package beside the app. */

import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";
import { build } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const FOLDER = here("../src/marey/notebook/static/");
/** Each file and what it begins with; a notebook carries the one that its view needs. */
const BUNDLES = { "widget.js": "main.ts", "runs.js": "runs.ts" };

/** Writes `notebook/static/`: everything a widget needs is in its file, styles included. */
export function widgetBundle(): Plugin {
  return {
    name: "marey-widget",
    apply: "build",
    async closeBundle() {
      for (const [file, entry] of Object.entries(BUNDLES)) await writeBundle(file, entry);
    },
  };
}

async function writeBundle(file: string, entry: string): Promise<void> {
  const built = await build({
    configFile: false,
    root: here("."),
    logLevel: "error",
    resolve: { alias: { "@": here("./src") } },
    define: { "process.env.NODE_ENV": '"production"' },
    build: {
      write: false,
      target: "es2022",
      copyPublicDir: false,
      lib: {
        entry: here(`./src/features/notebook/${entry}`),
        formats: ["es"],
        fileName: () => file,
      },
    },
  });
  mkdirSync(FOLDER, { recursive: true });
  for (const one of [built].flat())
    if ("output" in one)
      for (const made of one.output)
        if (made.type === "chunk") writeFileSync(FOLDER + made.fileName, made.code);
}
