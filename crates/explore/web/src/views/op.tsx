// J·v and Jᵀ·w of one op, with the shapes drawn to scale.
import type { ComponentChildren } from "preact";
import { many, rows } from "../format";
import type { Num, OneOp, Value } from "../schema";
import { elements, Grid, N, Shown, Sym } from "../ui/value";

const unit = (n: number) => Math.max(14, Math.min(120, 14 * Math.sqrt(n) * 1.3));

const Block = ({ tall, wide, kind, label, children }: { tall: number; wide: number; kind: string; label: string; children?: ComponentChildren }) => (
  <span class="block-wrap">
    <span class={`block ${kind}`} style={{ width: `${unit(wide)}px`, height: `${unit(tall)}px` }}>{children}</span>
    <small>{label}<br />{tall}×{wide}</small>
  </span>
);

export function OpShapes({ op }: { op: OneOp }) {
  const out = elements(op.result);
  return (
    <div class="stack">
      <p><i class="sym">{op.name}</i> = <span class="mono">{op.formula}</span>{op.derivative && <span class="muted small"> · derivative: <code>{op.derivative}</code></span>}</p>
      <div class="even">
        <div class="stack way">
          <h3 class="tan">Forward: J·v</h3>
          <p class="small muted">Tangents of the operands come in, one tangent of the result goes out.</p>
          {op.operands.map((o) => (
            <div class="shapes" key={o.node}>
              <Block tall={out} wide={o.jacobian.columns} kind="jac" label="J" /><span class="op">·</span>
              <Block tall={o.jacobian.columns} wide={1} kind="tan" label={`${o.name}'s v`} /><span class="op">=</span>
              <Block tall={out} wide={1} kind="tan" label="J·v" />
            </div>
          ))}
          <Facts rows={[...op.operands.map((o): [ComponentChildren, Value] => [<Sym name={o.name} dot />, o.tangent]), [<Sym name={op.name} dot />, op.jvp]]} kind="tan" />
        </div>
        <div class="stack way">
          <h3 class="cot">Reverse: Jᵀ·w</h3>
          <p class="small muted">The cotangent of the result comes in, one cotangent per operand goes out.</p>
          {op.operands.map((o) => (
            <div class="shapes" key={o.node}>
              <Block tall={o.jacobian.columns} wide={out} kind="jac" label="Jᵀ" /><span class="op">·</span>
              <Block tall={out} wide={1} kind="cot" label="w" /><span class="op">=</span>
              <Block tall={o.jacobian.columns} wide={1} kind="cot" label={`to ${o.name}`} />
            </div>
          ))}
          <Facts rows={[[<Sym name={op.name} bar />, op.cotangent], ...op.operands.map((o): [ComponentChildren, Value] => [<Sym name={o.name} bar />, o.jtv])]} kind="cot" />
        </div>
      </div>
      {op.operands.map((o) => o.jacobian.data && (
        <div key={o.node} class="row"><span class="small muted">J by <i class="sym">{o.name}</i>, {o.jacobian.rows} × {o.jacobian.columns}</span><Grid data={rows(o.jacobian.data) as Num[][]} max={12} digits={3} /></div>
      ))}
      <p class="note small">Both ways agree: ⟨w, J·v⟩ = <N x={op.inner.jvp_with_cotangent} class="tan" /> and ⟨Jᵀ·w, v⟩ = <N x={op.inner.tangent_with_vjp} class="cot" />.
        Neither builds J, which has a row for each of {many(out, "result")} and a column for each of {many(op.operands.reduce((n, o) => n + o.jacobian.columns, 0), "input")}.</p>
    </div>
  );
}

const Facts = ({ rows: list, kind }: { rows: [ComponentChildren, Value][]; kind: string }) => (
  <dl class="pairs wide">{list.map(([name, v], i) => [<dt key={`t${i}`}>{name}</dt>, <dd key={`d${i}`} class={kind}><Shown v={v} max={6} /></dd>])}</dl>
);
