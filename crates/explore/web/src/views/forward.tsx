// The forward tape: one row per primitive, stepped, played or scrubbed.
import { useEffect, useRef } from "preact/hooks";
import { bytes, many, number, place } from "../format";
import type { Num, Tape, TapeNode } from "../schema";
import { set, useShown } from "../state";
import { showRow, Transport } from "../ui/transport";
import { Bytes, Card, Shown, StatsTable } from "../ui/value";
import { brief, Diagram, DRAWN } from "./diagram";

export const nameOf = (nodes: TapeNode[], from: number, id: number): string => nodes[id - from]?.name ?? `#${id}`;

export function ForwardView({ tape, begin }: { tape: Tape; begin: () => void }) {
  const shown = useShown();
  const at = Math.min(shown.forward ?? tape.total, tape.total);
  const now = tape.nodes[at - 1] ?? null;
  const picked = shown.node !== null ? tape.nodes[shown.node] ?? now : now;
  const kept = tape.nodes.slice(0, at).reduce((sum, n) => sum + n.saved.reduce((s, v) => s + v.bytes, 0), 0);
  const go = (forward: number) => set({ forward, node: null });
  return (
    <>
      <div class="intro">
        <h2>The forward tape</h2>
        <p class="lead">The program, one primitive step at a time. Each row uses rows above it, and keeps what its derivative will need.</p>
        {shown.guide === null && shown.preset === null && <p class="small">New to this? <button class="link" onClick={begin}>The five-minute guide</button> shows why one backward pass gives every gradient.</p>}
      </div>
      <Transport at={at} total={tape.total} go={go} label="Forward pass" text={now ? `${at} of ${tape.total}: ${now.name} = ${brief(now.value)}` : "nothing has run"} />
      <p class="hidden" aria-live="polite">{now ? `${now.name} = ${now.formula} = ${now.value?.text ?? ""}` : "Nothing has run yet."}</p>
      {tape.nodes.length <= DRAWN && (
        <Card>
          <Diagram nodes={tape.nodes} label="The tape as a graph" onPick={(id) => set({ node: id })}
            state={(n) => (n.id >= at ? "later" : n.id === at - 1 ? "current value-now" : "done")}
            under={(n) => (n.id < at ? { text: brief(n.value), kind: "value" } : null)}
            edge={(_from, to) => ({ kind: to === at - 1 ? "live value" : to < at ? "" : "later" })} />
        </Card>
      )}
      <div class="two">
        <Card title="Tape" tools={<span class="small muted">kept for backward so far: <Bytes n={kept} /></span>}>
          <TapeTable tape={tape} at={at} picked={shown.node} />
        </Card>
        <Card title={picked ? "This step" : "Before the first step"}>
          <div class="in">{picked ? <Detail node={picked} tape={tape} reached={picked.id < at} /> : <p class="muted">Press <kbd>→</kbd> or play.</p>}</div>
        </Card>
      </div>
      {at === tape.total && (
        <div class="row"><button class="btn main-action" onClick={() => set({ view: "reverse", reverse: 0 })}>Now read it backward</button></div>
      )}
    </>
  );
}

function TapeTable({ tape, at, picked }: { tape: Tape; at: number; picked: number | null }) {
  const current = useRef<HTMLTableRowElement>(null);
  useEffect(() => showRow(current.current), [at]);
  return (
    <div class="scroll tape-scroll" tabIndex={0} role="region" aria-label="Tape, as a table">
      <table class="tape">
        <thead><tr><th scope="col">#</th><th scope="col">step</th><th scope="col">value</th><th scope="col" class="kept-col">kept for backward</th></tr></thead>
        <tbody>
          {tape.nodes.map((n) => (
            <tr key={n.id} ref={n.id === at - 1 ? current : undefined} data-node={n.id}
              class={`${n.id >= at ? "later" : ""} ${n.id === at - 1 ? "current value-now" : ""} ${picked === n.id ? "picked" : ""}`}
              aria-current={n.id === at - 1 ? "step" : undefined}
              onClick={() => set({ node: n.id })}>
              <td class="num muted">{n.id}</td>
              <td><StepText node={n} /></td>
              <td class="value" data-cell="value">{n.id < at ? <Shown v={n.value} max={6} /> : <span class="muted">·</span>}</td>
              <td class="small kept-col">{n.id < at && n.saved.length > 0 ? n.saved.map((s, i) => <span key={i} class="badge">{savedName(s, tape)}</span>) : ""}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A long formula breaks after a comma or a brace, not inside a word. */
const breakable = (formula: string) => formula.split(/(?<=[,{])(?=\S)/).flatMap((piece, k) => (k > 0 ? [<wbr key={k} />, piece] : [piece]));

export const StepText = ({ node: n }: { node: TapeNode }) => (
  <button class="step-text" onClick={(e) => { e.stopPropagation(); set({ node: n.id }); }}>
    <i class="sym">{n.name}</i>
    {n.kind === "op" ? <> = <span class="mono">{breakable(n.formula)}</span></> : <span class="muted small"> {n.kind}</span>}
    {n.uses > 1 && <span class="badge reuse">used {n.uses}×</span>}
  </button>
);

const savedName = (s: TapeNode["saved"][number], tape: Tape) =>
  s.node !== null ? nameOf(tape.nodes, tape.from, s.node) : s.what;

export function Detail({ node: n, tape, reached }: { node: TapeNode; tape: { nodes: TapeNode[]; from: number; expression?: string }; reached: boolean }) {
  const source = n.span && tape.expression ? tape.expression : null;
  return (
    <div class="stack">
      <p class="big-step"><i class="sym">{n.name}</i>{n.kind === "op" && <> = <span class="mono">{n.formula}</span></>}</p>
      {reached ? <div class="value big-value"><Shown v={n.value} /></div> : <p class="muted">Not computed yet.</p>}
      <dl class="pairs wide">
        {n.op && <><dt>op</dt><dd><code>{n.op}</code> <span class="muted small">{n.family}</span></dd></>}
        {n.operands.length > 0 && tape.nodes.length > 0 && <><dt>operands</dt><dd class="row">{n.operands.map((id, k) => {
          const v = tape.nodes[id - tape.from];
          return <span key={k}><i class="sym">{nameOf(tape.nodes, tape.from, id)}</i>{v?.value && <> = <span class="value mono">{brief(v.value)}</span></>}</span>;
        })}</dd></>}
        {n.value?.spec && <><dt>type</dt><dd><code>{n.value.spec}</code></dd></>}
        {n.kind === "op" && <><dt>kept</dt><dd>{n.saved.length === 0 ? <span class="muted">{n.tracked ? "nothing: its derivative needs no value" : "nothing: no gradient flows through it"}</span> : n.saved.map((s, i) => <span key={i} class="badge">{s.node !== null ? nameOf(tape.nodes, tape.from, s.node) : s.what} · {bytes(s.bytes)}</span>)}</dd></>}
        <dt>used</dt><dd>{n.uses === 0 ? "by nothing after it" : `${many(n.uses, "time")}${n.uses > 1 ? ": as many contributions come back" : ""}`}</dd>
        {n.line && <><dt>line</dt><dd><code>{place(n.line)}</code></dd></>}
        {n.seconds !== null && n.seconds > 0 && <><dt>time</dt><dd class="num">{number((n.seconds * 1e6) as Num, 3)} µs</dd></>}
      </dl>
      {source && <pre class="source"><span>{[...source].slice(0, n.span![0]).join("")}</span><mark>{[...source].slice(...n.span!).join("")}</mark><span>{[...source].slice(n.span![1]).join("")}</span></pre>}
      {n.primitives.length > 1 && (
        <details><summary>{n.primitives.length} primitives of the engine</summary>
          <ul class="small mono">{n.primitives.map((p, i) => <li key={i}>{p.op} → {p.spec}{p.saved.length > 0 && <span class="muted"> keeps {p.saved.join(", ")}</span>}</li>)}</ul>
        </details>
      )}
      {n.value?.stats && reached && <details><summary>Statistics</summary><StatsTable v={n.value} /></details>}
    </div>
  );
}
