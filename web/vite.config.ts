import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { reportBundle } from "./report.ts";
import { widgetBundle } from "./widget.ts";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

// The server the dev page talks to; `marey demo --port 8600` is the usual one.
const server = process.env["MAREY_SERVER"] ?? "http://127.0.0.1:8600";

export default defineConfig({
  plugins: [react(), reportBundle(), widgetBundle()],
  resolve: { alias: { "@": here("./src") } },
  // The server puts the path in front under which a proxy shows it.
  base: "./",
  build: {
    outDir: here("../src/marey/api/web"),
    emptyOutDir: true,
    target: "es2022",
    sourcemap: false,
    chunkSizeWarningLimit: 900,
  },
  worker: { format: "es" },
  server: { proxy: { "/api": { target: server, ws: true } } },
  test: { include: ["src/**/*.test.ts"], environment: "node", testTimeout: 30_000 },
});
