// The cost shape: measured times of both modes as n and m grow. The Jacobian is a rectangle whose
// corner is dragged; forward mode pays per column, reverse mode per row.
import { useMemo, useRef, useState } from "preact/hooks";
import { useAsk, written } from "../api";
import { count, many, number, seconds } from "../format";
import type { Cost, CostPoint, Start } from "../schema";
import { set, useShown } from "../state";
import { Plot } from "../ui/plot";
import { Card } from "../ui/value";

const LEVELS = [1, 2, 4, 8, 16, 32, 64, 128, 256];

export function CostView({ start }: { start: Start }) {
  const shown = useShown();
  // A link may say anything.
  const within = (k: number, most: number | undefined) => Math.max(1, Math.min(most ?? 256, k));
  const [n, m] = [within(shown.n, start.limits.n), within(shown.m, start.limits.m)];
  const [again, setAgain] = useState(0);
  const [dragged, setDragged] = useState<[number, number] | null>(null);
  const cap = (list: number[], most: number | undefined) => list.filter((k) => k <= (most ?? 256));
  const ns = cap(LEVELS, start.limits.n);
  const ms = cap(LEVELS, start.limits.m);
  const points = useMemo(() => {
    if (written) return start.defaults.cost.points;
    const list: [number, number][] = [[n, m]];
    for (const k of ns) if (k !== n) list.push([k, m]);
    for (const k of ms) if (k !== m) list.push([n, k]);
    return list.slice(0, start.limits.points ?? 32);
  }, [n, m]);
  const asked = useAsk<Cost>("/api/cost", { points }, again);
  const cost = asked.data;
  const near = (list: CostPoint[] | undefined, a: number, b: number) =>
    list?.reduce<CostPoint | null>((best, p) => {
      const d = (q: CostPoint) => Math.abs(Math.log2(q.n / a)) + Math.abs(Math.log2(q.m / b));
      return !best || d(p) < d(best) ? p : best;
    }, null);
  const here = near(cost?.points, n, m);
  const byN = useMemo(() => (cost?.points ?? []).filter((p) => p.m === here?.m).sort((a, b) => a.n - b.n), [cost, here?.m]);
  const byM = useMemo(() => (cost?.points ?? []).filter((p) => p.n === here?.n).sort((a, b) => a.m - b.m), [cost, here?.n]);
  const lines = (list: CostPoint[]) => [
    { name: "forward mode, whole Jacobian", y: list.map((p) => p.forward.seconds), colour: "tan", points: true },
    { name: "reverse mode, whole Jacobian", y: list.map((p) => p.reverse.seconds), colour: "cot", points: true },
    { name: "the function alone", y: list.map((p) => p.function), colour: "ink-3", dash: [4, 4] },
  ];
  const nLines = useMemo(() => lines(byN), [byN]);
  const mLines = useMemo(() => lines(byM), [byM]);
  const xs = useMemo(() => [byN.map((p) => p.n), byM.map((p) => p.m)] as const, [byN, byM]);
  const shownAt = dragged ?? [n, m];
  const commit = (a: number, b: number) => {
    setDragged(null);
    set({ n: a, m: b });
  };
  return (
    <div class="stack gap">
      <div class="intro">
        <h2>The cost shape</h2>
        <p class="lead">For f: ℝⁿ → ℝᵐ the Jacobian has m rows and n columns. A forward pass gives one column, a reverse pass one row. Drag the corner; every time is measured by running the engine now.</p>
      </div>
      <div class="two cost-two">
        <Card title="The Jacobian" tools={<span class="small muted">y = W₂·tanh(W₁·x){cost && `, hidden width ${cost.hidden}`}</span>}>
          <div class="in stack">
            <Jacobian n={shownAt[0]} m={shownAt[1]} ns={ns} ms={ms} drag={(a, b) => setDragged([a, b])} drop={commit} />
            <p class="legend plain"><span><span class="swatch tan" />one forward pass: a column</span><span><span class="swatch cot" />one reverse pass: a row</span></p>
            <div class="even">
              <Levels label="n, inputs" list={ns} value={shownAt[0]} pick={(k) => commit(k, m)} />
              <Levels label="m, outputs" list={ms} value={shownAt[1]} pick={(k) => commit(n, k)} />
            </div>
          </div>
        </Card>
        <Card title="Measured" tools={!written && <button class="btn" onClick={() => setAgain(again + 1)} disabled={asked.busy}>{asked.busy ? "Measuring …" : "Measure again"}</button>}>
          <div class={`in stack ${asked.busy ? "busy" : ""}`}>
            {asked.failure && <p class="note bad" role="alert">{asked.failure.message}</p>}
            {here && (here.n !== n || here.m !== m) && <p class="note small">Nearest point measured: n = {here.n}, m = {here.m}.{written && " More needs the server."}</p>}
            {here ? <Verdict p={here} /> : !asked.failure && <p class="muted">Measuring …</p>}
          </div>
        </Card>
      </div>
      {cost && here && (
        <div class="even">
          <Card title={`As n grows, m = ${here.m}`}><div class="in">
            <Plot x={xs[0] as number[]} lines={nLines} label={`Measured time by n at m = ${here.m}`} logX logY xName="n" formatX={(v) => count(v)} formatY={(v) => seconds(v)} mark={here.n} onPick={(k) => commit(k, here.m)} />
          </div></Card>
          <Card title={`As m grows, n = ${here.n}`}><div class="in">
            <Plot x={xs[1] as number[]} lines={mLines} label={`Measured time by m at n = ${here.n}`} logX logY xName="m" formatX={(v) => count(v)} formatY={(v) => seconds(v)} mark={here.m} onPick={(k) => commit(here.n, k)} />
          </div></Card>
        </div>
      )}
    </div>
  );
}

function Verdict({ p }: { p: CostPoint }) {
  const most = Math.max(p.forward.seconds, p.reverse.seconds, 1e-12);
  const bar = (share: number) => ({ width: `${Math.max(1.5, share * 100)}%` });
  const faster = p.forward.seconds < p.reverse.seconds ? "Forward" : "Reverse";
  const factor = Math.max(p.forward.seconds, p.reverse.seconds) / Math.max(Math.min(p.forward.seconds, p.reverse.seconds), 1e-12);
  return (
    <>
      <dl class="race">
        <dt class="tan">Forward mode</dt>
        <dd><span class="race-bar tan" style={bar(p.forward.seconds / most)} /><span class="num">{seconds(p.forward.seconds)}</span> <span class="muted small">{many(p.forward.passes, "pass", "passes")}</span></dd>
        <dt class="cot">Reverse mode</dt>
        <dd><span class="race-bar cot" style={bar(p.reverse.seconds / most)} /><span class="num">{seconds(p.reverse.seconds)}</span> <span class="muted small">{many(p.reverse.passes, "pass", "passes")}</span></dd>
      </dl>
      <p>{faster} mode is <b class="num">{number(factor, 2)}×</b> faster here.</p>
      <dl class="pairs wide">
        <dt>f alone</dt><dd class="num">{seconds(p.function)}</dd>
        <dt>f and one reverse pass</dt><dd class="num">{seconds(p.reverse.pass)}</dd>
        <dt><b>cheap-gradient ratio</b></dt><dd><b class="num cot">{number(p.ratio, 3)}</b> <span class="muted small">one pass against f</span></dd>
        <dt>multiplications</dt><dd class="small num wrap">f {count(p.counted.function)} · forward {count(p.counted.forward)} · reverse {count(p.counted.reverse)}</dd>
      </dl>
    </>
  );
}

const Levels = ({ label, list, value, pick }: { label: string; list: number[]; value: number; pick: (k: number) => void }) => {
  const at = Math.max(0, list.findIndex((k) => k >= value));
  return (
    <div class="field">
      <label for={`level-${label[0]}`}>{label}: <span class="num">{value}</span></label>
      <input id={`level-${label[0]}`} type="range" min={0} max={list.length - 1} value={at} aria-valuetext={`${label}: ${value}`} onInput={(e) => pick(list[e.currentTarget.valueAsNumber]!)} />
    </div>
  );
};

const SIDE = 250;

function Jacobian({ n, m, ns, ms, drag, drop }: { n: number; m: number; ns: number[]; ms: number[]; drag: (n: number, m: number) => void; drop: (n: number, m: number) => void }) {
  const held = useRef(false);
  const box = useRef<SVGSVGElement>(null);
  const length = (k: number, list: number[]) => 26 + (Math.log2(k) / Math.log2(list[list.length - 1]!)) * (SIDE - 26);
  const w = length(n, ns);
  const h = length(m, ms);
  const from = (e: PointerEvent): [number, number] => {
    const r = box.current!.getBoundingClientRect();
    const scale = (SIDE + 60) / r.width;
    const level = (px: number, list: number[]) => {
      const k = ((px - 26) / (SIDE - 26)) * (list.length - 1);
      return list[Math.max(0, Math.min(list.length - 1, Math.round(k)))]!;
    };
    return [level((e.clientX - r.left) * scale - 40, ns), level((e.clientY - r.top) * scale - 30, ms)];
  };
  const lines = (count: number, size: number) => Array.from({ length: Math.min(count, 64) - 1 }, (_, i) => ((i + 1) * size) / Math.min(count, 64));
  return (
    <svg ref={box} class="jacobian" viewBox={`0 0 ${SIDE + 60} ${SIDE + 60}`} role="img" aria-label={`A Jacobian of ${m} rows and ${n} columns`}
      onPointerMove={(e) => { if (held.current) drag(...from(e)); }}
      onPointerUp={(e) => { if (held.current) { held.current = false; drop(...from(e)); } }}
      onPointerCancel={() => { held.current = false; }}>
      <rect class="jac-limit" x={40} y={30} width={SIDE} height={SIDE} rx={4} />
      <text x={40 + w / 2} y={20} class="jac-text">{many(n, "column")}</text>
      <text transform={`translate(28,${30 + h / 2}) rotate(-90)`} class="jac-text">{many(m, "row")}</text>
      <rect class="jac" x={40} y={30} width={w} height={h} />
      {lines(n, w).map((x) => <line key={`v${x}`} class="jac-line" x1={40 + x} x2={40 + x} y1={30} y2={30 + h} />)}
      {lines(m, h).map((y) => <line key={`h${y}`} class="jac-line" y1={30 + y} y2={30 + y} x1={40} x2={40 + w} />)}
      <rect class="jac-row" x={40} y={30} width={w} height={Math.max(h / Math.min(m, 64), 3)} />
      <rect class="jac-col" x={40} y={30} width={Math.max(w / Math.min(n, 64), 3)} height={h} />
      <circle class="jac-grip" cx={40 + w} cy={30 + h} r={10} onPointerDown={(e) => { held.current = true; (e.currentTarget as Element).setPointerCapture(e.pointerId); e.preventDefault(); }} />
    </svg>
  );
}
