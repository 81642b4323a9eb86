// How a tensor is shown: a number, a small grid of numbers, or its shape with statistics.
import type { ComponentChildren } from "preact";
import { bytes, float, isScalar, number, percent, rows, shape } from "../format";
import { ramp } from "./ramp";
import type { Local, Num, Stats, Value } from "../schema";

/** One number. The full digits are in the tooltip and in `data-num`, for tests and for copying. */
export const N = ({ x, digits, class: c = "" }: { x: Num | null | undefined; digits?: number; class?: string }) => (
  <span class={`num ${c}`} data-num={x === null || x === undefined ? "" : String(x)} title={x === null || x === undefined ? undefined : String(x)}>
    {number(x, digits)}
  </span>
);

const CELLS = 8;

export function Grid({ data, digits = 4, max = CELLS, label }: { data: Num[][]; digits?: number; max?: number; label?: string }) {
  const tall = data.length;
  const wide = Math.max(0, ...data.map((r) => r.length));
  const shown = data.slice(0, max).map((r) => r.slice(0, max));
  const scale = Math.max(...data.flat().map((x) => Math.abs(float(x))).filter(Number.isFinite), 1e-300);
  return (
    <span class="grid-wrap">
      <span class="grid" role="img" aria-label={label ?? `${tall} by ${wide} numbers: ${data.slice(0, 4).map((r) => r.slice(0, 6).map((x) => number(x, 3)).join(", ")).join("; ")}`}
        style={{ gridTemplateColumns: `repeat(${Math.min(wide, max)}, auto)` }}>
        {shown.flatMap((r, i) =>
          r.map((x, j) => {
            const v = float(x);
            const heat = Number.isFinite(v) ? Math.round((Math.abs(v) / scale) * 100) : 0;
            return (
              <span key={`${i},${j}`} class={`cell ${v < 0 ? "neg" : ""} ${Number.isFinite(v) ? "" : "broken"}`}
                style={{ "--heat": `${heat}%` }} data-num={String(x)} title={String(x)}>
                {number(x, digits)}
              </span>
            );
          }),
        )}
      </span>
      {(tall > max || wide > max) && <span class="muted small">of {tall} × {wide}</span>}
    </span>
  );
}

export function Shown({ v, max, digits, none = "–" }: { v: Value | null | undefined; max?: number; digits?: number; none?: string }) {
  if (!v) return <span class="muted">{none}</span>;
  if (isScalar(v)) return <N x={v.data as Num} digits={digits} />;
  if (v.data !== null && v.data !== undefined) return <Grid data={rows(v.data)} max={max} digits={digits ?? 4} />;
  if (v.stats) {
    return (
      <span class="summary" title={v.text}>
        <span class="muted small">{v.spec ?? shape(v.shape)}</span>
        <Bars stats={v.stats} />
        <span class="small"><N x={v.stats.mean} digits={3} /> ± <N x={v.stats.std} digits={3} /></span>
      </span>
    );
  }
  return <span class="summary"><span class="muted small">{v.spec}</span><span class="muted small absent">{v.text}</span></span>;
}

export function Bars({ stats, large = false }: { stats: Stats; large?: boolean }) {
  const h = stats.histogram;
  if (!h) return null;
  const width = large ? 220 : 64;
  const height = large ? 64 : 20;
  const top = Math.max(...h.counts, 1);
  const step = width / h.counts.length;
  return (
    <svg class="bars" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img"
      aria-label={`Histogram from ${number(h.low, 3)} to ${number(h.high, 3)}`}>
      {h.counts.map((c, i) => (
        <rect key={i} x={i * step + 0.5} width={Math.max(step - 1, 0.8)} y={height - (c / top) * height}
          height={c === 0 ? 0 : Math.max((c / top) * height, 1)} />
      ))}
    </svg>
  );
}

export function StatsTable({ v, kind = "value" }: { v: Value; kind?: "value" | "cot" }) {
  const s = v.stats;
  if (!s) return isScalar(v) ? <p><N x={v.data as Num} /></p> : <p class="muted small">No statistics.</p>;
  const h = s.histogram;
  return (
    <div class="stats">
      {h && <div class={`histogram ${kind}`}><Bars stats={s} large /><div class="spread small muted"><N x={h.low} digits={3} /><N x={h.high} digits={3} /></div></div>}
      <dl class="pairs">
        <dt>mean</dt><dd><N x={s.mean} digits={4} /></dd>
        <dt>std</dt><dd><N x={s.std} digits={4} /></dd>
        <dt>min</dt><dd><N x={s.min} digits={4} /></dd>
        <dt>max</dt><dd><N x={s.max} digits={4} /></dd>
        <dt>zeros</dt><dd>{percent(s.zero)}</dd>
        <dt>NaN</dt><dd class={s.nan > 0 ? "bad-text" : ""}>{percent(s.nan)}{s.inf > 0 && `, ∞ ${percent(s.inf)}`}</dd>
      </dl>
    </div>
  );
}

/** A local derivative: a number, a diagonal, a Jacobian, or the reason why there is none to see. */
export function Slope({ local, tall }: { local: Local; tall?: number }) {
  const v = local.value;
  if (local.kind === "zero") return <span class="num">0</span>;
  if (v && isScalar(v)) return <N x={v.data as Num} />;
  if (local.kind === "whole" && v?.data !== null && v?.data !== undefined) return <Grid data={jacobian(v, tall ?? 1)} max={10} digits={3} />;
  if (v) return <Shown v={v} />;
  if (local.formula) return <code>{local.formula}</code>;
  return <span class="muted small">{local.shape ? `a ${shape(local.shape)} Jacobian` : "not recorded"}</span>;
}

/** A Jacobian (the result's axes, then the operand's) with one row per element of the result. */
function jacobian(v: Value, tall: number): Num[][] {
  const table = rows(v.data!);
  if (tall <= 1) return table;
  const flat = table.flat();
  const wide = flat.length / tall;
  return Array.from({ length: tall }, (_, i) => flat.slice(i * wide, (i + 1) * wide));
}

export const elements = (v: Value | null | undefined): number => (v?.shape ?? []).reduce((a, b) => a * b, 1);

export const Bytes = ({ n }: { n: number | null | undefined }) => <span class="num" title={n === null || n === undefined ? undefined : `${n} bytes`}>{bytes(n)}</span>;

/** Text with names such as `a` set as mathematics: italic, with a bar for cotangents. */
export const Sym = ({ name, bar, dot }: { name: string; bar?: boolean; dot?: boolean }) => {
  const word = <i class="sym">{name}</i>;
  return bar ? <span class="over cot" aria-label={`cotangent of ${name}`} role="img">{word}</span>
    : dot ? <span class="dotted tan" aria-label={`tangent of ${name}`} role="img">{word}</span> : word;
};

/** ∂y/∂x as MathML. */
export const Partial = ({ of, by }: { of: string; by: string }) => (
  <math aria-label={`derivative of ${of} by ${by}`}>
    <mfrac>
      <mrow><mo>∂</mo><mi>{of}</mi></mrow>
      <mrow><mo>∂</mo><mi>{by}</mi></mrow>
    </mfrac>
  </math>
);

/** The scale of colours of `ramp`, from small to large. */
export const Ramp = () => <span class="ramp" style={{ background: `linear-gradient(90deg, ${ramp(0)}, ${ramp(0.5)}, ${ramp(1)})` }} />;

export const Card = ({ title, tools, children, class: c = "" }: { title?: ComponentChildren; tools?: ComponentChildren; children: ComponentChildren; class?: string }) => (
  <section class={`card ${c}`}>
    {title && <header><h3>{title}</h3>{tools}</header>}
    {children}
  </section>
);
