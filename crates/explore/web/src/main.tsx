import { render } from "preact";
import { App } from "./app";
import { ask, Failure } from "./api";
import { applyTheme } from "./theme";
import type { Start } from "./schema";
import { begin } from "./state";
import "./styles/tokens.css";
import "./styles/page.css";
import "./styles/views.css";

applyTheme();
const root = document.getElementById("app")!;
ask<Start>("/api/start").then(
  (start) => {
    const first = start.opened.expression !== undefined ? start.opened : start.examples[0];
    begin({
      expression: first?.expression ?? "", values: first?.values ?? {},
      subject: start.opened.kind === "expression" ? "expression" : "file",
      // A file that holds a program alone has no tape to show.
      view: start.opened.kind === "run" ? "training" : start.opened.kind === "expression" ? "forward" : start.opened.nodes === 0 && start.opened.program ? "program" : "graph",
    });
    render(<App start={start} />, root);
  },
  (error: unknown) => {
    const message = error instanceof Failure ? error.message : String(error);
    render(<main class="main"><h1>Pullback explorer</h1><p class="note bad" role="alert">{message}</p></main>, root);
  },
);
