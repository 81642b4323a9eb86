// Forward mode: a direction pushed along the tape; and one op seen both ways.
import { useAsk } from "../api";
import { float, isScalar, many, number, rows } from "../format";
import type { Nested, OneOp, Tape, Value, Variable } from "../schema";
import { get, set, useShown } from "../state";
import { Transport } from "../ui/transport";
import { Card, elements, N, Partial, Shown, Slope, Sym } from "../ui/value";
import { brief, Diagram, DRAWN } from "./diagram";
import { StepText } from "./forward";
import { OpShapes } from "./op";

export function TangentsView({ tape: plain }: { tape: Tape }) {
  const shown = useShown();
  const body = { expression: shown.expression, values: shown.values, direction: shown.direction };
  const asked = useAsk<Tape>("/api/expression", body);
  const tape = asked.data ?? plain;
  const forward = tape.forward;
  if (!forward) return <p class="note">Nothing here depends on a variable, so there is no direction to push.</p>;
  const given = new Map<number, Value>(forward.direction.map((d) => [d.node, d.tangent]));
  const steps = new Map(forward.tangents.map((t) => [t.node, t]));
  const total = tape.total;
  const at = Math.min(shown.tangent ?? total, total);
  const now = tape.nodes[at - 1] ?? null;
  const step = now ? steps.get(now.id) : undefined;
  const tangent = (id: number): Value | undefined => given.get(id) ?? steps.get(id)?.tangent;
  const name = (id: number) => tape.nodes[id]?.name ?? `#${id}`;
  const ops = tape.nodes.filter((n) => n.kind === "op");
  const node = shown.node !== null && tape.nodes[shown.node]?.kind === "op" ? shown.node : (ops.find((n) => moves(tangent(n.id))) ?? ops[0])?.id ?? null;
  return (
    <div class={`stack gap ${asked.busy ? "busy" : ""}`}>
      <div class="intro">
        <h2>Forward mode</h2>
        <p class="lead">Push a direction along with the values: a tangent <Sym name="v" dot /> says how fast <i class="sym">v</i> changes when the inputs move that way. One pass gives one direction's answer; all derivatives here take {many(forward.passes, "pass", "passes")}.</p>
      </div>
      {asked.failure && <p class="note bad" role="alert">{asked.failure.message}</p>}
      <Direction tape={tape} given={given} />
      <Transport at={at} total={total} go={(k) => set({ tangent: k })} label="Forward mode" text={now ? `${now.name}: tangent ${brief(tangent(now.id))}` : "start"} />
      <Card class="happening">
        <div class="in equation" aria-live="polite">
          {!now ? <p class="muted">Nothing has been pushed yet.</p>
            : given.has(now.id) ? <><Sym name={now.name} dot /> <span class="op">=</span> <span class="term tan"><Shown v={given.get(now.id)} /><small>the chosen direction</small></span></>
            : !step ? <p class="muted"><i class="sym">{now.name}</i> depends on no input: no tangent.</p>
            : <>
                <span class="term"><Sym name={now.name} dot /></span><span class="op">=</span>
                {step.terms.map((t, i) => (
                  <span key={i} class="equation inline">
                    {i > 0 && <span class="op">+</span>}
                    <span class="term value"><Slope local={t.local} tall={elements(step.tangent)} /><small><Partial of={now.name} by={name(t.from)} /></small></span>
                    <span class="op">{t.local.kind === "whole" && !isScalar(t.local.value ?? null) ? "·" : "×"}</span>
                    <span class="term tan"><Shown v={tangent(t.from)} /><small><Sym name={name(t.from)} dot /></small></span>
                  </span>
                ))}
                <span class="op">=</span><span class="term strong tan"><Shown v={step.tangent} /><small>tangent</small></span>
              </>}
        </div>
      </Card>
      {tape.nodes.length <= DRAWN && (
        <Card>
          <Diagram nodes={tape.nodes} label="Tangents flowing forward through the graph" onPick={(id) => set({ node: id })}
            state={(n) => (n.id >= at ? "later" : n.id === at - 1 ? "current tan-now" : "done")}
            under={(n) => (n.id < at ? { text: brief(n.value), kind: "value" } : null)}
            second={(n) => ({ text: n.id < at ? brief(tangent(n.id)) : "", kind: "tan" })}
            edge={(_f, to) => ({ kind: to === at - 1 ? "live tan" : to < at ? "" : "later" })} />
        </Card>
      )}
      <div class={tape.nodes.some((n) => n.value?.shape?.length) ? "stack gap" : "two"}>
        <Card title="Values and tangents">
          <div class="scroll tape-scroll" tabIndex={0} role="region" aria-label="Tangents, as a table">
            <table class="tape">
              <thead><tr><th scope="col">#</th><th scope="col">step</th><th scope="col">value</th><th scope="col">tangent</th></tr></thead>
              <tbody>
                {tape.nodes.map((n) => (
                  <tr key={n.id} data-node={n.id} class={`${n.id >= at ? "later" : ""} ${n.id === at - 1 ? "current tan-now" : ""} ${n.id === node ? "picked" : ""}`}>
                    <td class="num muted">{n.id}</td>
                    <td><StepText node={n} /></td>
                    <td class="value">{n.id < at && <Shown v={n.value} max={4} />}</td>
                    <td class="tan" data-cell="tangent">{n.id < at && (tangent(n.id) ? <Shown v={tangent(n.id)} max={4} /> : <span class="muted small">none</span>)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
        <Card title="The same number, both ways">
          <div class="in stack">
            <p class="small">The change of <i class="sym">{name(tape.result)}</i> along this direction, pushed forward and pulled back:</p>
            <dl class="pairs wide">
              <dt>forward, J·v</dt><dd class="tan"><N x={forward.check.forward} /></dd>
              <dt>reverse, ∇·v</dt><dd class="cot"><N x={forward.check.reverse} /></dd>
            </dl>
            <p class="small muted">Forward mode learnt this one number. The reverse sweep knows it for every direction at once.</p>
          </div>
        </Card>
      </div>
      {node !== null && <BothWays tape={tape} node={node} />}
    </div>
  );
}

/** Whether a tangent is not all zeros. */
const moves = (v: Value | undefined) => !!v && v.data !== null && v.data !== undefined && [v.data].flat(9).some((x) => x !== 0);

function Direction({ tape, given }: { tape: Tape; given: Map<number, Value> }) {
  const zero = (v: Value): Nested => {
    const make = (shape: number[]): Nested => (shape.length === 0 ? 0 : Array.from({ length: shape[0]! }, () => make(shape.slice(1))));
    return make(v.shape ?? []);
  };
  // Zeros, and a one at the given element.
  const unit = (v: Value, at = 0): Nested => {
    let k = 0;
    const make = (shape: number[]): Nested => (shape.length === 0 ? (k++ === at ? 1 : 0) : Array.from({ length: shape[0]! }, () => make(shape.slice(1))));
    return make(v.shape ?? []);
  };
  const all = () => Object.fromEntries(tape.variables.map((v) => [v.name, given.get(v.id)?.data ?? zero(v.value)]));
  const along = (k: number) => set({ direction: Object.fromEntries(tape.variables.map((v, i) => [v.name, i === k ? unit(v.value) : zero(v.value)])) });
  const change = (name: string, x: Nested | string) => set({ direction: { ...all(), ...get().direction, [name]: x } });
  return (
    <Card title="Direction" tools={<div class="chips">{tape.variables.map((v, k) => <button key={v.name} class="chip" onClick={() => along(k)}>along {v.name}{v.scalar ? "" : "₀"}</button>)}</div>}>
      <div class="in directions">
        {tape.variables.map((v) => {
          const d = given.get(v.id);
          return v.scalar || isScalar(d)
            ? (
              <div class="slider" key={v.name}>
                <label for={`dir-${v.name}`}><Sym name={v.name} dot /></label>
                <input id={`dir-${v.name}`} type="range" min={-1} max={1} step={0.05} value={float((d?.data ?? 0) as number)} onInput={(e) => change(v.name, e.currentTarget.valueAsNumber)} />
                <N x={(d?.data ?? 0) as number} class="tan" />
              </div>
            )
            : <Entries key={v.name} v={v} d={d} pick={(k) => set({ direction: Object.fromEntries(tape.variables.map((u) => [u.name, u.name === v.name ? unit(u.value, k) : zero(u.value)])) })} />;
        })}
      </div>
    </Card>
  );
}

/** The direction of a tensor: a click on an entry wiggles that one alone. */
function Entries({ v, d, pick }: { v: Variable; d: Value | undefined; pick: (k: number) => void }) {
  const table = d?.data !== null && d?.data !== undefined ? rows(d.data) : [];
  const wide = table[0]?.length ?? 0;
  if (table.length * wide > 144 || table.length === 0) return <div class="row"><Sym name={v.name} dot /> <Shown v={d} max={4} /></div>;
  return (
    <div class="row">
      <Sym name={v.name} dot />
      <div class="entries" role="group" aria-label={`Direction of ${v.name}: choose an entry`} style={{ gridTemplateColumns: `repeat(${wide}, auto)` }}>
        {table.flatMap((r, i) => r.map((x, j) => (
          <button key={`${i},${j}`} aria-pressed={float(x) !== 0} aria-label={`${v.name}, row ${i}, column ${j}: ${number(x, 3)}`} onClick={() => pick(i * wide + j)}>{number(x, 2)}</button>
        )))}
      </div>
    </div>
  );
}

function BothWays({ tape, node }: { tape: Tape; node: number }) {
  const shown = useShown();
  const { data, failure, busy } = useAsk<OneOp>("/api/op", { expression: shown.expression, values: shown.values, node });
  const ops = tape.nodes.filter((n) => n.kind === "op");
  return (
    <Card title="One op, both ways" tools={
      <label class="row small nowrap">op <select value={node} onChange={(e) => set({ node: Number(e.currentTarget.value) })}>
        {ops.map((n) => <option key={n.id} value={n.id}>{n.name} = {n.formula}</option>)}
      </select></label>}>
      <div class={`in ${busy ? "busy" : ""}`}>
        {failure ? <p class="note">{failure.message}</p> : data ? <OpShapes op={data} /> : <p class="muted">Asking the engine …</p>}
      </div>
    </Card>
  );
}
