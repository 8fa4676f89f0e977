import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

// The bench's own page; it is never part of the app.
export default defineConfig({
  root: here("."),
  base: "./",
  plugins: [react()],
  resolve: { alias: { "@": here("../src") } },
  build: {
    target: "es2022",
    emptyOutDir: true,
    outDir: process.env["BENCH_OUT"] ?? here("./dist"),
    rollupOptions: { input: [here("./overview.html"), here("./marey.html")] },
  },
  worker: { format: "es" },
});
