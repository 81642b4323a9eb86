// Bundles src/ into dist/, which is checked in and embedded in the binary: `npm ci && npm run build`.
// The result is three files: index.html, app.css and app.js (a classic script). How a written page
// is made of them is in SCHEMA.md.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
mkdirSync(dist, { recursive: true });

await build({
  entryPoints: { app: join(here, "src/main.tsx") },
  outdir: dist,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  banner: { js: "/* Contains Preact, Dagre and uPlot (MIT licence). */" },
  logLevel: "warning",
});

const icon = readFileSync(join(here, "src/icon.svg")).toString("base64");
writeFileSync(
  join(dist, "index.html"),
  `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="description" content="Watch automatic differentiation run, number by number.">
<title>Pullback explorer</title>
<link rel="icon" href="data:image/svg+xml;base64,${icon}">
<link rel="stylesheet" href="/app.css">
<!-- data -->
<script defer src="/app.js"></script>
</head>
<body>
<noscript>This page needs JavaScript.</noscript>
<div id="app"></div>
</body>
</html>
`,
);
for (const name of ["index.html", "app.js", "app.css"]) {
  const bytes = readFileSync(join(dist, name));
  const kib = (length) => (length / 1024).toFixed(1);
  console.log(`${name}: ${kib(bytes.length)} KiB, ${kib(gzipSync(bytes).length)} KiB compressed`);
}
