// The reverse sweep: registers that start at zero and fill by `+=`, one contribution at a time.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { isScalar, many, rows } from "../format";
import type { Contribution, Num, Tape, TapeNode, Value, Visit } from "../schema";
import { set, useShown } from "../state";
import { showRow, Transport } from "../ui/transport";
import { Card, elements, N, Partial, Shown, Slope, Sym } from "../ui/value";
import { brief, Diagram, DRAWN } from "./diagram";
import { StepText } from "./forward";

/** Entries of a Jacobian that fit into a row of the list of contributions. */
const FEW = 8;

/** One thing that happens: the seed, a contribution, or a visit that passes nothing on. */
export interface Moment { visit: Visit | null; contribution: Contribution | null; order: number }

export function moments(tape: Tape): Moment[] {
  const all: Moment[] = [{ visit: null, contribution: null, order: 0 }];
  for (const visit of tape.sweep?.visits ?? []) {
    if (visit.contributions.length === 0) all.push({ visit, contribution: null, order: 0 });
    visit.contributions.forEach((contribution, order) => all.push({ visit, contribution, order }));
  }
  return all;
}

export function ReverseView({ tape }: { tape: Tape }) {
  const shown = useShown();
  const list = useMemo(() => moments(tape), [tape]);
  if (!tape.sweep?.seed) return <p class="note">Nothing here depends on a variable, so there is nothing to differentiate.</p>;
  const seed = tape.sweep.seed;
  const total = list.length;
  const at = Math.min(shown.reverse, total);
  const moment = at > 0 ? list[at - 1]! : null;
  // The registers as the engine reported them after each contribution; the page adds nothing up.
  const registers = new Map<number, Value>();
  const shares = new Map<number, number>();
  list.slice(0, at).forEach((m, k) => {
    if (k === 0) registers.set(seed.node, seed.cotangent);
    if (m.contribution?.after) {
      registers.set(m.contribution.to, m.contribution.after);
      shares.set(m.contribution.to, (shares.get(m.contribution.to) ?? 0) + 1);
    }
  });
  const done = at === total;
  const name = (id: number) => tape.nodes[id]?.name ?? `#${id}`;
  const visited = new Set(list.slice(0, at).map((m) => m.visit?.node ?? seed.node));
  const lit = moment?.contribution?.to ?? (at === 1 ? seed.node : null);
  const result = tape.nodes[tape.result];
  return (
    <>
      <div class="intro">
        <h2>The reverse sweep</h2>
        <p class="lead">The same tape, read from the last row up. A register <Sym name="v" bar />, the cotangent of <i class="sym">v</i>, says how much <i class="sym">{result?.name}</i> changes when <i class="sym">v</i> does. All start at zero; every use of a value adds its share.</p>
      </div>
      <Transport at={at} total={total} go={(reverse) => set({ reverse, node: null })} label="Reverse sweep" pace={1300} text={spoken(moment, at, name)} />
      <p class="hidden" aria-live="polite">{spoken(moment, at, name)}</p>
      <Happening moment={moment} at={at} tape={tape} name={name} earlier={moment?.contribution ? shares.get(moment.contribution.to) ?? 0 : 0} />
      {tape.nodes.length <= DRAWN && (
        <Card>
          <Diagram nodes={tape.nodes} label="Cotangents flowing back through the graph" onPick={(id) => set({ node: id })}
            state={(n) => (n.id === lit ? "current cot-now" : n.id === moment?.visit?.node ? "source-now" : registers.has(n.id) ? "done" : "later")}
            under={(n) => ({ text: brief(n.value), kind: "value" })}
            second={(n) => (n.tracked ? { text: registers.has(n.id) ? brief(registers.get(n.id)) : "0", kind: "cot" } : { text: "", kind: "" })}
            edge={(from, to, k) => {
              const when = passes(list, from, to, k);
              const passed = when >= 0 && when < at;
              return { kind: passed && list[when] === moment ? "live cot back" : passed ? "passed back" : "", text: passed ? slopeText(list[when]!) : undefined };
            }} />
        </Card>
      )}
      <div class={tape.nodes.some((n) => n.value?.shape?.length) ? "stack gap" : "two"}>
        <Card title="Registers" tools={<span class="small muted">{many(registers.size, "register")} filled</span>}>
          <Registers tape={tape} registers={registers} moment={moment} visited={visited} lit={lit} shares={shares} />
        </Card>
        <Card title="Every contribution so far">
          <Ledger list={list.slice(0, at)} name={name} />
        </Card>
      </div>
      {done && <Finished tape={tape} name={name} visits={tape.sweep.visits.length} />}
    </>
  );
}

/** When a contribution passes an edge. A product `a·a` passes one on for both: then it is that of the pair. */
function passes(list: Moment[], from: number, to: number, k: number): number {
  const pair = (m: Moment) => m.visit?.node === to && m.contribution?.to === from;
  const own = list.findIndex((m) => pair(m) && m.contribution!.operand === k);
  return own >= 0 ? own : list.findIndex(pair);
}

function slopeText({ contribution }: Moment): string | undefined {
  const v = contribution?.local.value;
  return v && isScalar(v) ? `×${brief(v)}` : undefined;
}

/** How many contributions a register receives in all. */
const received = (tape: Tape, node: number) =>
  tape.sweep!.visits.reduce((n, v) => n + v.contributions.filter((c) => c.to === node && c.after).length, 0);

function spoken(moment: Moment | null, at: number, name: (id: number) => string): string {
  if (!moment || at === 0) return "All registers are zero.";
  if (!moment.visit) return "The seed: the cotangent of the result is 1.";
  const c = moment.contribution;
  if (!c) return `${name(moment.visit.node)} passes nothing on.`;
  return `${name(c.to)} receives ${c.upstream?.text ?? ""} times ${c.local.value?.text ?? c.local.kind}, which is ${c.product?.text ?? ""}. Its register is now ${c.after?.text ?? ""}.`;
}

function Happening({ moment, at, tape, name, earlier }: { moment: Moment | null; at: number; tape: Tape; name: (id: number) => string; earlier: number }) {
  if (!moment || at === 0) {
    return <Card class="happening"><div class="in"><p class="muted">Every register is 0. The sweep starts by putting the seed, 1, into the register of the result.</p></div></Card>;
  }
  if (!moment.visit) {
    const seed = tape.sweep!.seed!;
    return (
      <Card class="happening">
        <div class="in equation">
          <Sym name={name(seed.node)} bar /> <span class="op">+=</span> <span class="term cot"><Shown v={seed.cotangent} /><small>the seed</small></span>
          <p class="why">How much does <i class="sym">{name(seed.node)}</i> change when <i class="sym">{name(seed.node)}</i> changes by a little? By exactly as much: 1.</p>
        </div>
      </Card>
    );
  }
  const c = moment.contribution;
  const from = tape.nodes[moment.visit.node]!;
  if (!c) return <Card class="happening"><div class="in"><p class="muted"><i class="sym">{from.name}</i> passes nothing on: no derivative flows through <code>{from.op}</code>.</p></div></Card>;
  const to = name(c.to);
  const whole = c.local.kind === "whole" && !isScalar(c.local.value ?? null);
  return (
    <Card class="happening">
      <div class="in equation" data-contribution={`${moment.visit.node}-${c.to}-${c.operand}`}>
        <span class="term"><Sym name={to} bar /><small>register</small></span>
        <span class="op" aria-label="plus equals">+=</span>
        <span class="term cot" data-cell="upstream"><Shown v={c.upstream} /><small>upstream <Sym name={from.name} bar /></small></span>
        <span class="op" aria-label="times">{whole ? "·" : "×"}</span>
        <span class="term value" data-cell="local"><Slope local={c.local} tall={elements(c.upstream)} /><small><Partial of={from.name} by={to} /></small></span>
        <span class="op">=</span>
        <span class="term strong cot" data-cell="product"><Shown v={c.product} /><small>this share</small></span>
        <p class="why">
          <Sym name={to} bar /> <span class="op">=</span> <span data-cell="before"><Shown v={c.before} /></span> <span class="op">+</span> <span class="cot"><Shown v={c.product} /></span> <span class="op">=</span> <b data-cell="after"><Shown v={c.after} /></b>
          {c.local.formula && c.local.formula !== "1" && <Rule op={from.op} formula={c.local.formula} />}
          {whole && (c.upstream?.shape?.length ?? 0) > 1 && <span class="muted small">upstream, read row by row, is one row of {elements(c.upstream)} numbers</span>}
          {earlier > 1 && <span class="badge cot">share {earlier} of {received(tape, c.to)}: added to what was there</span>}
        </p>
      </div>
    </Card>
  );
}

/** A rule as `pullback ops` prints it, with whose names are in it. */
function Rule({ op, formula }: { op: string | null; formula: string }) {
  const names = ["a", "b", "x"].filter((name) => new RegExp(`\\b${name}\\b`).test(formula));
  const notes = [/\bdy\b/.test(formula) && "dy is upstream", /\by\b/.test(formula) && "y is its result"].filter(Boolean);
  return <span class="muted small">rule of <code>{op}{names.length > 0 && `(${names.join(", ")})`}</code>: <code>{formula}</code>{notes.length > 0 && `, where ${notes.join(" and ")}`}</span>;
}

function Registers({ tape, registers, moment, visited, lit, shares }: { tape: Tape; registers: Map<number, Value>; moment: Moment | null; visited: Set<number>; lit: number | null; shares: Map<number, number> }) {
  const current = useRef<HTMLTableRowElement>(null);
  useEffect(() => showRow(current.current), [moment]);
  return (
    <div class="scroll tape-scroll" tabIndex={0} role="region" aria-label="Registers, as a table">
      <table class="tape">
        <thead><tr><th scope="col">#</th><th scope="col">step</th><th scope="col">value</th><th scope="col">cotangent</th></tr></thead>
        <tbody>
          {tape.nodes.map((n) => {
            const here = moment?.visit?.node === n.id;
            return (
              <tr key={n.id} data-node={n.id} ref={(lit ?? moment?.visit?.node) === n.id ? current : undefined} aria-current={here ? "step" : undefined}
                class={`${here ? "source-now" : ""} ${lit === n.id ? "current cot-now" : ""} ${visited.has(n.id) ? "visited" : ""}`}>
                <td class="num muted">{n.id}</td>
                <td><StepText node={n} /></td>
                <td class="value"><Shown v={n.value} max={4} /></td>
                <td class="cot" data-cell="register" key={`${n.id}-${shares.get(n.id) ?? 0}`}><RegisterCell node={n} value={registers.get(n.id)} /></td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

const RegisterCell = ({ node, value }: { node: TapeNode; value: Value | undefined }) =>
  value ? <Shown v={value} max={4} /> : node.tracked ? <span class="num zero" data-num="0">0</span> : <span class="muted small">none needed</span>;

function Ledger({ list, name }: { list: Moment[]; name: (id: number) => string }) {
  const rows = list.filter((m) => m.contribution);
  if (rows.length === 0) return <p class="in muted">Nothing yet. Step on with <kbd>→</kbd>.</p>;
  return (
    <div class="scroll tape-scroll" tabIndex={0} role="region" aria-label="Contributions, as a table">
      <table class="ledger">
        <thead><tr><th scope="col">register</th><th scope="col" class="right">upstream</th><th scope="col" class="right">slope</th><th scope="col" class="right">share</th></tr></thead>
        <tbody>
          {[...rows].reverse().map((m) => {
            const c = m.contribution!;
            return (
              <tr key={`${m.visit!.node}-${c.to}-${c.operand}`} data-ledger={`${m.visit!.node}-${c.to}-${c.operand}`}>
                <td><Sym name={name(c.to)} bar /> <span class="muted small">from <i class="sym">{name(m.visit!.node)}</i></span></td>
                <td class="right cot"><Shown v={c.upstream} max={3} /></td>
                <td class="right value">{!c.local.value || elements(c.local.value) <= FEW ? <Slope local={c.local} tall={elements(c.upstream)} /> : <span class="mono small">{c.local.formula ?? brief(c.local.value)}</span>}</td>
                <td class="right cot strong"><Shown v={c.product} max={3} /></td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Finished({ tape, name, visits }: { tape: Tape; name: (id: number) => string; visits: number }) {
  const gradient = tape.sweep!.gradient;
  const inputs = gradient.reduce((sum, g) => sum + elements(g.value), 0);
  const broken = gradient.some((g) => (Array.isArray(g.value.data) ? rows(g.value.data).flat() : [g.value.data]).some((x) => typeof x === "string"));
  return (
    <section class={`note ${broken ? "cot" : "good"} finished`} aria-label="Result">
      <p><b>One pass, {many(inputs, "derivative")}.</b> The sweep visited {many(visits, "step")} once each. A register is complete when its row is reached, because everything that used the value stands below it.</p>
      <div class="row gradients">
        {gradient.map((g) => (
          <span key={g.node} class="term" data-gradient={name(g.node)}>
            <Partial of={tape.nodes[tape.result]!.name} by={name(g.node)} /> = <b class="cot">{isScalar(g.value) ? <N x={g.value.data as Num} /> : <Shown v={g.value} />}</b>
          </span>
        ))}
      </div>
      {broken && <p class="small">NaN (not a number) and ∞ are what the formulas give here: the point is outside of a function's domain, on its edge, or too large for 64-bit numbers. Follow the table upwards to the first of them.</p>}
      <p class="row"><button class="btn" onClick={() => set({ view: "tangents" })}>Compare with forward mode</button></p>
    </section>
  );
}
