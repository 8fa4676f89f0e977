/** The drawing code of reports as one script and one style sheet, built beside the app. */

import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";
import { build } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Emits `report/report.js` and `report/report.css`: what `marey` puts into a report's file. */
export function reportBundle(): Plugin {
  return {
    name: "marey-report",
    apply: "build",
    async generateBundle() {
      const entry = here("./src/features/diagnostics/report/main.ts");
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
            entry,
            formats: ["iife"],
            name: "mareyReport",
            fileName: () => "report.js",
            cssFileName: "report",
          },
        },
      });
      for (const one of [built].flat()) {
        if (!("output" in one)) continue;
        for (const file of one.output)
          this.emitFile({
            type: "asset",
            fileName: `report/${file.fileName}`,
            source: file.type === "chunk" ? file.code : file.source,
          });
      }
    },
  };
}
