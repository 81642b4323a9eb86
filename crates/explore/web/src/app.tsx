// The frame: header with the views, the panel on the left, the current view, and what floats above.
import { useEffect, useRef, useState } from "preact/hooks";
import { useAsk, written } from "./api";
import { KEYS, listen } from "./keys";
import { Guide, openGuide } from "./guide";
import { Predict } from "./predict";
import type { Start, Tape } from "./schema";
import { choose, Side } from "./side";
import { fresh, get, set, useShown, VIEWS, write, type View } from "./state";
import { isDark, toggleTheme } from "./theme";
import { Icon, Mark } from "./ui/icons";
import { CostView } from "./views/cost";
import { ForwardView } from "./views/forward";
import { GraphView } from "./views/graph";
import { MemoryView } from "./views/memory";
import { ProgramView } from "./views/program";
import { RecordedBothWays, RecordedTape } from "./views/recorded";
import { ReverseView } from "./views/reverse";
import { TangentsView } from "./views/tangents";
import { TrainingView } from "./views/training";

const NAMES: Record<View, string> = {
  forward: "Forward tape", reverse: "Reverse sweep", tangents: "Forward mode", cost: "Cost", memory: "Memory",
  graph: "Graph", program: "Program", training: "Training",
};
const WITH_SIDE: View[] = ["forward", "reverse", "tangents", "graph", "program"];

export function App({ start }: { start: Start }) {
  const shown = useShown();
  const [help, setHelp] = useState(false);
  const [toast, setToast] = useState<string | null>(null);
  const [dark, setDark] = useState(isDark());
  // What a prediction hides stays hidden until one is committed.
  const [committed, setCommitted] = useState<Record<string, number>>({});
  const file = shown.subject === "file";
  const tape = useAsk<Tape>(file ? null : "/api/expression", { expression: shown.expression, values: shown.values });

  const share = async () => {
    history.replaceState(null, "", write(get()));
    try {
      await navigator.clipboard.writeText(location.href);
      say("The link is in the clipboard: it opens this view.");
    } catch {
      say("The address bar has the link to this view.");
    }
  };
  const say = (text: string) => {
    setToast(text);
    setTimeout(() => setToast(null), 2600);
  };
  const flip = () => {
    toggleTheme();
    setDark(isDark());
  };
  useEffect(() => listen({
    view: (index) => set({ view: VIEWS[index]! }),
    key: (key) => {
      if (key === "?") setHelp(true);
      else if (key === "t") flip();
      else if (key === "s") void share();
      else if (key === "g") shown.guide === null ? openGuide(start) : set({ guide: null });
      else if (key === "/") document.getElementById("expression")?.focus();
      else if (key === "e") {
        const at = start.examples.findIndex((e) => e.expression === get().expression);
        const next = start.examples[(at + 1) % start.examples.length];
        if (next) choose(next);
      } else return false;
      return true;
    },
  }));
  useEffect(() => {
    document.title = `${NAMES[shown.view]} · Pullback explorer`;
    const tab = document.querySelector<HTMLElement>(".tabs [aria-current]");
    const bar = tab?.parentElement;
    if (tab && bar) bar.scrollLeft = tab.offsetLeft - (bar.clientWidth - tab.offsetWidth) / 2;
  }, [shown.view]);

  const side = WITH_SIDE.includes(shown.view) && !file;
  const example = file ? undefined : start.examples.find((e) => e.expression === shown.expression);
  const waiting = shown.preset !== null && committed[shown.preset] === undefined;
  return (
    <div class="app">
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the view</a>
      <header class="top">
        <div class="bar">
          <div class="brand"><Mark /><h1>Pullback <span class="brand-more">explorer</span></h1></div>
          <nav class="tabs" aria-label="Views">
            {VIEWS.map((view) => (
              <a key={view} href={write({ ...shown, view })} aria-current={shown.view === view ? "page" : undefined}
                onClick={(e) => { if (e.ctrlKey || e.metaKey) return; e.preventDefault(); set({ view }); }}>{NAMES[view]}</a>
            ))}
          </nav>
          <div class="tools">
            {shown.guide === null && <button class="btn guide-button" onClick={() => openGuide(start)} title="The five-minute guide (g)">Guide</button>}
            <button class="btn icon" onClick={share} aria-label="Copy a link to what you see" title="Copy a link (s)"><Icon name="link" /></button>
            <button class="btn icon" onClick={flip} aria-label={dark ? "Use the light theme" : "Use the dark theme"} title="Light or dark (t)"><Icon name={dark ? "sun" : "moon"} /></button>
            <button class="btn icon" onClick={() => setHelp(true)} aria-label="Keyboard and help" title="Keyboard (?)"><Icon name="help" /></button>
          </div>
        </div>
      </header>
      <div class={`body ${side ? "" : "wide"} ${shown.guide === null ? "" : "guided"}`}>
        {side && <Side start={start} tape={tape.data} failure={tape.failure} />}
        <main class="main" id="main" tabIndex={-1}>
          {written && <p class="note small">A written page: it carries the engine's answers for what it shows. Other expressions and values need the server: <code>pullback explore</code>.</p>}
          {start.opened.kind !== "expression" && <Subject start={start} />}
          <Guide start={start} />
          {shown.preset && <Predict key={shown.preset} start={start} id={shown.preset} committed={committed[shown.preset]}
            commit={(choice) => setCommitted((all) => ({ ...all, [shown.preset!]: choice }))} />}
          {example?.memory && (shown.view === "forward" || shown.view === "reverse") && (
            <p class="note row">This example is about memory. <button class="link" onClick={() => set({ view: "memory", layers: example.memory!.layers, segment: example.memory!.segment, budget: example.memory!.budget })}>See what it keeps and computes again</button></p>
          )}
          {waiting && shown.view !== "forward"
            ? <p class="note">Commit to a prediction first: this view would tell the answer.</p>
            : <Current start={start} tape={tape.data} busy={tape.busy} failed={tape.failure?.message ?? null} />}
        </main>
      </div>
      <Help open={help} close={() => setHelp(false)} start={start} />
      <div role="status" aria-live="polite">{toast && <div class="toast">{toast}</div>}</div>
    </div>
  );
}

/** Whether the views are about the file that was opened or about an expression. */
function Subject({ start }: { start: Start }) {
  const shown = useShown();
  return (
    <div class="row">
      <div class="segment" role="group" aria-label="Subject">
        <button aria-pressed={shown.subject === "file"} onClick={() => set({ ...fresh, subject: "file" })}>{start.opened.kind === "run" ? "Run" : "Recording"}</button>
        <button aria-pressed={shown.subject === "expression"} onClick={() => set({ ...fresh })}>Expression</button>
      </div>
      {shown.subject === "file" && <span class="mono small">{start.opened.title}</span>}
    </div>
  );
}

function Current({ start, tape, busy, failed }: { start: Start; tape: Tape | null; busy: boolean; failed: string | null }) {
  const shown = useShown();
  const file = shown.subject === "file";
  const recording = file && start.opened.kind === "recording";
  if (shown.view === "cost") return <CostView start={start} />;
  if (shown.view === "memory") return <MemoryView start={start} recording={recording} />;
  if (shown.view === "training") return <TrainingView start={start} />;
  if (shown.view === "program") return <ProgramView start={start} recording={recording} />;
  if (file && start.opened.kind === "run") return <p class="note">A run folder has no tape. Choose “Expression” on the left, or open the Training view.</p>;
  if (recording && start.opened.nodes === 0) {
    return <p class="note">{start.opened.program
      ? <>This file holds a program and no run of it, so there is no tape. <button class="link" onClick={() => set({ view: "program" })}>Open the program</button></>
      : <>This recording is empty: no op ran inside <code>pullback::record</code>.</>}</p>;
  }
  if (shown.view === "graph") return <GraphView key={recording ? "file" : "expression"} tape={tape} failed={failed} recording={recording} start={start} />;
  if (recording && (shown.view === "forward" || shown.view === "reverse")) return <RecordedTape key={shown.view} reverse={shown.view === "reverse"} />;
  if (recording) return <RecordedBothWays />;
  if (!tape) return failed ? <p class="placeholder">{failed}</p> : <p class="placeholder" aria-busy="true">Asking the engine …</p>;
  if (shown.view === "tangents") return <TangentsView tape={tape} />;
  return (
    <div class={`stack gap ${busy ? "busy" : ""}`}>
      {shown.view === "forward" ? <ForwardView tape={tape} begin={() => openGuide(start)} /> : <ReverseView tape={tape} />}
    </div>
  );
}

function Help({ open, close, start }: { open: boolean; close: () => void; start: Start }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open && !box.current?.open) box.current?.showModal();
    if (!open && box.current?.open) box.current.close();
  }, [open]);
  return (
    <dialog ref={box} onClose={close} aria-labelledby="help-title" onClick={(e) => { if (e.target === box.current) close(); }}>
      <div class="in">
        <div class="spread">
          <h2 id="help-title">Keyboard</h2>
          <button class="btn icon" onClick={close} aria-label="Close"><Icon name="close" /></button>
        </div>
        <div class="keys">
          {KEYS.map(([keys, text]) => <div key={text}><span>{text}</span><span>{keys.map((k) => (k === "…" ? " … " : <kbd key={k}>{k}</kbd>))}</span></div>)}
        </div>
        <details>
          <summary>Functions for expressions ({start.functions.length})</summary>
          <p class="small mono">{start.functions.join(", ")}</p>
        </details>
        <p class="small muted">Every number on this page was computed by the engine, Pullback {start.version}. The page itself differentiates nothing. The address holds what you chose, so a copied link opens the same; how a graph is zoomed and which of its groups are open is not in it.</p>
      </div>
    </dialog>
  );
}
