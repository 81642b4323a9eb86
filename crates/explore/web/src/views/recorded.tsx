// The tape and the sweep of a recording, read by pages of 200.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { useAsk } from "../api";
import { many, shape } from "../format";
import type { OneOp, RecordedNode, Recording, Sweep, Tape, Value } from "../schema";
import { set, useShown } from "../state";
import { showRow, Transport } from "../ui/transport";
import { Card, elements, Shown, Slope, StatsTable, Sym } from "../ui/value";
import { Detail, StepText } from "./forward";
import { OpShapes } from "./op";

const PAGE = 200;
/** Elements of a value that a recording keeps whole. */
const WHOLE = 32;
/** Families of ops that are not run alone: they contain others, or need other workers. */
const NOT_ALONE = new Set(["flow", "custom", "region", "collective"]);

export function RecordedTape({ reverse }: { reverse: boolean }) {
  const graph = useAsk<Recording>("/api/recording");
  if (graph.failure) return <p class="note bad" role="alert">{graph.failure.message}</p>;
  if (!graph.data) return <p class="placeholder" aria-busy="true">Reading the recording …</p>;
  return reverse ? <RecordedSweep recording={graph.data} /> : <RecordedForward recording={graph.data} />;
}

/** Ops that can be run again: on few enough elements that the recording has all their values. */
function small(r: Recording): number[] {
  const sizes = r.specs.map((s) => (/\[(.*)\]/.exec(s)?.[1] ?? "").split(",").reduce((n, d) => n * (d.trim() === "" ? 1 : Number(d)), 1));
  const size = (i: number) => sizes[r.nodes.spec[i] ?? 0] ?? Infinity;
  const alone = (i: number) => {
    const op = r.nodes.op[i];
    return op !== null && op !== undefined && !NOT_ALONE.has(r.families[op] ?? "");
  };
  const whole = (i: number) => size(i) <= WHOLE;
  return r.nodes.kind.flatMap((kind, i) => {
    const operands = r.nodes.operands[i]!;
    return kind === "op" && alone(i) && whole(i) && operands.length > 0 && operands.every(whole) ? [i] : [];
  });
}

/** No direction was pushed when a recording was made, but its ops have both ways. */
export function RecordedBothWays() {
  const shown = useShown();
  const graph = useAsk<Recording>("/api/recording");
  const ops = graph.data ? small(graph.data) : [];
  const id = shown.node !== null && graph.data?.nodes.kind[shown.node] === "op" ? shown.node : ops[0] ?? graph.data?.result ?? -1;
  const op = useAsk<OneOp>(id >= 0 ? `/api/recording/op?id=${id}` : null);
  return (
    <div class="stack gap">
      <div class="intro">
        <h2>One op of the recording, both ways</h2>
        <p class="lead">No direction was pushed when this was recorded, so there are no tangents to show. An op that is small enough is run again here, forward and in reverse. For a whole forward pass, choose “Expression”.</p>
      </div>
      {graph.failure && <p class="note bad" role="alert">{graph.failure.message}</p>}
      {graph.data && (
        <Card title="Op" tools={<label class="row small nowrap">node <input type="number" min={0} max={graph.data.total - 1} value={id} onChange={(e) => { if (Number.isFinite(e.currentTarget.valueAsNumber)) set({ node: e.currentTarget.valueAsNumber }); }} /></label>}>
          <div class="in">{op.failure ? <p class="note">{op.failure.message}</p> : op.data ? <OpShapes op={op.data} /> : <p class="muted">Asking the engine …</p>}</div>
        </Card>
      )}
    </div>
  );
}

function RecordedForward({ recording }: { recording: Recording }) {
  const shown = useShown();
  const total = recording.total;
  const at = Math.min(shown.forward ?? 1, total);
  const page = Math.floor(Math.max(at - 1, 0) / PAGE) * PAGE;
  const { data, failure, busy } = useAsk<Tape>(`/api/recording/tape?from=${page}&count=${PAGE}`);
  const current = useRef<HTMLTableRowElement>(null);
  useEffect(() => showRow(current.current), [at, data]);
  const name = (id: number) => recording.nodes.name[id] ?? data?.nodes[id - page]?.name ?? `v${id}`;
  const picked = shown.node ?? at - 1;
  return (
    <div class="stack gap">
      <div class="intro">
        <h2>The forward tape of {recording.title}</h2>
        <p class="lead">Every value of the program, in the order in which they were computed: {many(total, "node")}{recording.parts.length > 0 && ` in ${many(recording.parts.length, "part")}`}. Large values are shown by a histogram, their mean and spread.</p>
      </div>
      <Transport at={at} total={total} go={(forward) => set({ forward, node: null })} label="Forward pass" pace={350} />
      {failure && <p class="note bad" role="alert">{failure.message}</p>}
      <div class="two">
        <Card title={`Nodes ${page} to ${Math.min(page + PAGE, total) - 1}`}>
          <div class={`scroll tape-scroll tall ${busy ? "busy" : ""}`} tabIndex={0} role="region" aria-label="Tape, as a table">
            <table class="tape recorded">
              <thead><tr><th scope="col">#</th><th scope="col">step</th><th scope="col">value</th></tr></thead>
              <tbody>
                {data?.nodes.map((n) => (
                  <tr key={n.id} data-node={n.id} ref={n.id === at - 1 ? current : undefined} class={`${n.id >= at ? "later" : ""} ${n.id === at - 1 ? "current value-now" : ""} ${shown.node === n.id ? "picked" : ""}`} onClick={() => set({ node: n.id })}>
                    <td class="num muted">{n.id}</td>
                    <td><StepText node={n} /><div class="where">{n.part !== null && recording.parts[n.part]?.path}{n.part !== null && n.line && " · "}{n.line && <span class="mono" title={n.line}>{n.line.slice(n.line.lastIndexOf("/") + 1)}</span>}</div></td>
                    <td class="value"><Shown v={n.value} max={3} /></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
        <Picked id={picked} name={name} recording={recording} />
      </div>
    </div>
  );
}

function Picked({ id, name, recording }: { id: number; name: (id: number) => string; recording: Recording }) {
  const asked = useAsk<RecordedNode>(id >= 0 ? `/api/recording/node?id=${id}` : null);
  const node = asked.data;
  const runnable = useMemo(() => new Set(small(recording)), [recording]);
  const op = useAsk<OneOp>(node && runnable.has(node.node.id) ? `/api/recording/op?id=${node.node.id}` : null);
  if (asked.failure) return <p class="note bad">{asked.failure.message}</p>;
  if (!node) return <p class="placeholder">…</p>;
  return (
    <div class="stack">
      <Card title={`Node ${node.node.id}`} tools={<button class="btn" onClick={() => set({ view: "graph", node: node.node.id })}>In the graph</button>}>
        <div class="in stack">
          <Detail node={node.node} tape={{ nodes: [], from: 0 }} reached />
          {node.node.operands.length > 0 && <p class="small row">from {node.node.operands.map((o) => <button key={o} class="link mono" onClick={() => set({ node: o, forward: o + 1 })}>{name(o)} #{o}</button>)}</p>}
          {node.adjoint && <div class="stack"><span class="label cot">Gradient</span>{node.adjoint.stats ? <StatsTable v={node.adjoint} kind="cot" /> : <Shown v={node.adjoint} />}</div>}
        </div>
      </Card>
      {op.data && op.data.node === node.node.id && <Card title="Both ways"><div class="in"><OpShapes op={op.data} /></div></Card>}
    </div>
  );
}

function RecordedSweep({ recording }: { recording: Recording }) {
  const shown = useShown();
  // The first page says how many visits there are.
  const first = useAsk<Sweep>(`/api/recording/sweep?from=0&count=${PAGE}`);
  const total = first.data?.total ?? 0;
  const at = Math.min(shown.reverse, total);
  const page = Math.floor(Math.max(at - 1, 0) / PAGE) * PAGE;
  const { data, failure } = useAsk<Sweep>(`/api/recording/sweep?from=${page}&count=${PAGE}`);
  const current = useRef<HTMLTableRowElement>(null);
  useEffect(() => showRow(current.current), [at, data]);
  const label = (id: number) => {
    const op = recording.nodes.op[id];
    return recording.nodes.name[id] ?? `v${id}${op !== null && op !== undefined ? ` (${recording.ops[op]})` : ""}`;
  };
  const opName = (id: number) => {
    const op = recording.nodes.op[id];
    return op === null || op === undefined ? "it" : recording.ops[op]!;
  };
  // The backward pass starts at the first visit.
  const seed = first.data?.visits[0];
  const visit = data && at > 0 ? data.visits[at - 1 - data.from] : undefined;
  if (first.failure ?? failure) return <p class="note bad" role="alert">{(first.failure ?? failure)!.message}</p>;
  if (first.data && total === 0) return <p class="note">This recording has no backward pass: call <code>backward()</code> inside <code>pullback::record</code>. One that runs inside a compiled function is part of its program, and its equations are in the forward tape.</p>;
  return (
    <div class="stack gap">
      <div class="intro">
        <h2>The reverse sweep of {recording.title}</h2>
        <p class="lead">The backward pass went through {many(total, "step")}, from the result back to the parameters. Each multiplies what arrives by its own slope and passes the shares on. Large values are shown by a histogram, their mean and spread.</p>
      </div>
      <Transport at={at} total={total} go={(reverse) => set({ reverse })} label="Reverse sweep" pace={500} />
      {visit ? (
        <Card title={<><Sym name={label(visit.node)} /> passes on</>} class="happening">
          <div class="in stack">
            {visit.contributions.length === 0 && <p class="muted">Nothing: no derivative flows through it.</p>}
            {visit.contributions.map((c, k) => (
              <div class="equation" key={k}>
                <span class="term"><Sym name={label(c.to)} bar /><small>register</small></span><span class="op">+=</span>
                <span class="term cot"><Shown v={c.upstream ?? visit.adjoint} /><small>upstream</small></span><span class="op">×</span>
                <span class="term value">{c.local.kind === "unknown" ? <><span>J</span><small>of {opName(visit.node)}, never formed</small></> : <Slope local={c.local} tall={elements((c.upstream ?? visit.adjoint) as Value | null)} />}{c.local.formula && c.local.value && <small><code>{c.local.formula}</code></small>}{c.local.shape && <small>{shape(c.local.shape)}</small>}</span>
                <span class="op">=</span><span class="term strong cot"><Shown v={c.product} /><small>this share</small></span>
              </div>
            ))}
            {!!visit.left_out && <p class="muted small">and {many(visit.left_out, "contribution")} more</p>}
          </div>
        </Card>
      ) : <Card class="happening"><div class="in muted">{seed && <>The seed, the cotangent of <Sym name={label(seed.node)} />, is <Shown v={seed.adjoint} max={4} />. </>}Step on with <kbd>→</kbd>.</div></Card>}
      <Card title={`Visits ${page + 1} to ${Math.min(page + PAGE, total)}`}>
        <div class="scroll tape-scroll tall" tabIndex={0} role="region" aria-label="Visits, as a table">
          <table class="tape recorded">
            <thead><tr><th scope="col">#</th><th scope="col">node</th><th scope="col">cotangent</th><th scope="col">passes on to</th></tr></thead>
            <tbody>
              {data?.visits.map((v, k) => {
                const number = data.from + k + 1;
                return (
                  <tr key={number} ref={number === at ? current : undefined} class={`${number === at ? "current cot-now" : ""} ${number > at ? "later" : ""}`} onClick={() => set({ reverse: number })}>
                    <td class="num muted">{number}</td>
                    <td><button class="step-text" onClick={() => set({ reverse: number })}>{label(v.node)} <span class="muted small">#{v.node}</span></button></td>
                    <td class="cot"><Shown v={v.adjoint} max={3} /></td>
                    <td class="small">{v.contributions.map((c) => label(c.to)).join(", ") || "–"}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      </Card>
    </div>
  );
}
