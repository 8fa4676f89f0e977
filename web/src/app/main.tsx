import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { arrive } from "@/api/arrival";
import { App } from "@/app/App";
import "@/base/tokens.css";
import { applyTheme } from "@/base/theme";

applyTheme();
const root = document.getElementById("root");
if (root === null) throw new Error("The page has no element with id 'root'.");
await arrive();
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
