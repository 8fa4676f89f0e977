/** The widget of `marey.notebook` as one ES module, written into the Python package beside the app. */

import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";
import { build } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const FOLDER = here("../src/marey/notebook/static/");

/** Writes `notebook/static/widget.js`: everything it needs is in it, styles included. */
export function widgetBundle(): Plugin {
  return {
    name: "marey-widget",
    apply: "build",
    async closeBundle() {
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
            entry: here("./src/features/notebook/main.ts"),
            formats: ["es"],
            fileName: () => "widget.js",
          },
        },
      });
      mkdirSync(FOLDER, { recursive: true });
      for (const one of [built].flat())
        if ("output" in one)
          for (const file of one.output)
            if (file.type === "chunk") writeFileSync(FOLDER + file.fileName, file.code);
    },
  };
}
