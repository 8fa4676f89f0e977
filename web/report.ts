/** The drawing code of reports, one script and one style sheet for each kind, built beside the app. */

import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";
import { build } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Each kind of report and what its code begins with. */
const ENTRIES = {
  report: "./src/features/diagnostics/report/main.ts",
  trace: "./src/features/traces/report/main.ts",
};

/** Emits `report/report.js`, `report/trace.js` and their styles: what `marey` puts into a report's file. */
export function reportBundle(): Plugin {
  return {
    name: "marey-report",
    apply: "build",
    async generateBundle() {
      for (const [name, entry] of Object.entries(ENTRIES))
        for (const file of await buildEntry(name, entry))
          this.emitFile({
            type: "asset",
            fileName: `report/${file.fileName}`,
            source: file.type === "chunk" ? file.code : file.source,
          });
    },
  };
}

async function buildEntry(name: string, entry: string) {
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
        entry: here(entry),
        formats: ["iife"],
        name: "mareyReport",
        fileName: () => `${name}.js`,
        cssFileName: name,
      },
    },
  });
  return [built].flat().flatMap((one) => ("output" in one ? one.output : []));
}
