import { readdirSync } from "node:fs";
import { URL } from "node:url";
import js from "@eslint/js";
import reactHooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

// The layers: api ← base ← charts ← features ← app. A folder imports only from its left,
// always by "@/…"; features never import each other.
const LAYERS = ["api", "base", "charts", "features", "app"];
const climbing = { regex: "^\\.\\./", message: "Import across folders by '@/…'." };

// Text from the cluster never becomes markup.
const MARKUP = [
  {
    selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']",
    message: "Text from the cluster is always text.",
  },
  {
    selector: "AssignmentExpression[left.property.name='innerHTML']",
    message: "Text from the cluster is always text.",
  },
];

// What people read is in one catalogue.
const TEXTS = [
  {
    selector: "JSXText[value=/[A-Za-z]{2}/]",
    message: "Texts belong into src/texts.ts.",
  },
  {
    selector:
      "JSXAttribute[name.name=/^(aria-label|title|label|placeholder|alt)$/] > Literal[value=/[A-Za-z]{2}/]",
    message: "Texts belong into src/texts.ts.",
  },
];

function layer(name) {
  const above = LAYERS.slice(LAYERS.indexOf(name) + 1);
  const patterns = [climbing];
  if (above.length > 0) {
    patterns.push({
      regex: `^@/(${above.join("|")})(/|$)`,
      message: `${name}/ stands below ${above.join(", ")}.`,
    });
  }
  if (name === "charts" || name === "api") {
    patterns.push({
      regex: "^(react|react-dom|zustand|radix-ui)(/|$)",
      message: `${name}/ knows nothing of React.`,
    });
  }
  return {
    files: [`src/${name}/**/*.{ts,tsx}`],
    rules: { "no-restricted-imports": ["error", { patterns }] },
  };
}

function feature(name) {
  const patterns = [
    climbing,
    { regex: "^@/app(/|$)", message: "features/ stands below app." },
    { regex: "^wouter", message: "Import from @/base/router: it knows the prefix of a proxy." },
    {
      regex: `^@/features/(?!${name}(/|$))`,
      message: "Features never import each other; they meet in base/.",
    },
  ];
  // Loaded later is imported all the same.
  const reaching = {
    selector: `ImportExpression[source.value=/^@\\/(app|features\\/(?!${name}\\/))/]`,
    message: "Features never import each other; the app hands in what they show of others.",
  };
  return {
    files: [`src/features/${name}/**/*.{ts,tsx}`],
    rules: {
      "no-restricted-imports": ["error", { patterns }],
      "no-restricted-syntax": ["error", ...MARKUP, ...TEXTS, reaching],
    },
  };
}

const features = readdirSync(new URL("./src/features", import.meta.url), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => feature(entry.name));

export default tseslint.config(
  { ignores: ["node_modules", "dist", "src/api/schema.ts"] },
  js.configs.recommended,
  ...tseslint.configs.recommended,
  {
    plugins: { "react-hooks": reactHooks },
    rules: {
      "react-hooks/rules-of-hooks": "error",
      "react-hooks/exhaustive-deps": "error",
      "@typescript-eslint/consistent-type-imports": "error",
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
      "max-lines": ["error", { max: 500, skipBlankLines: true, skipComments: true }],
      "max-len": [
        "error",
        { code: 120, ignorePattern: '^\\s*(\\w+: )?"M[\\d.]', ignoreUrls: true },
      ],
      eqeqeq: "error",
      "no-restricted-syntax": ["error", ...MARKUP, ...TEXTS],
    },
  },
  ...LAYERS.filter((name) => name !== "features").map(layer),
  ...features,
);
