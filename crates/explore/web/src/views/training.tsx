// Training health: loss curves, and gradients and updates by layer over time.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { canonical, useAsk, written } from "../api";
import { count, extent, float, many, number } from "../format";
import type { Points, Run, Start } from "../schema";
import { set, useShown } from "../state";
import { Plot, useTheme, type Line } from "../ui/plot";
import { isNight, ramp } from "../ui/ramp";
import { Card, Ramp } from "../ui/value";

/** Milliseconds between two looks at a run that may still be training. */
const REFRESH = 4000;
/** Names of what a run logs, in words. */
const WORDS: Record<string, string> = { lr: "learning rate", val: "validation" };
const plain = (name: string) => name.split("_").map((w) => WORDS[w] ?? w).join(" ");
const words = (name: string) => plain(name).replace(/^./, (c) => c.toUpperCase());
const OF_LAYERS = ["gradient", "update", "weight"] as const;
const HUE = ["value", "cot", "tan", "good", "bad", "ink-2"];

export function TrainingView({ start }: { start: Start }) {
  const has = start.opened.kind === "run";
  const { data, failure } = useRun(has);
  return (
    <div class="stack gap">
      <div class="intro">
        <h2>Training health</h2>
        <p class="lead">Loss, gradient norms and update ratios, layer by layer. A layer whose gradient vanishes, explodes or stops is flagged with the step where it began.</p>
      </div>
      {!has && (
        <div class="card placeholder">
          <p>No run folder is open.</p>
          <p>A training run leaves one. Train, then open it:</p>
          <pre class="shell">pullback train digits --out my-run{"\n"}pullback explore my-run</pre>
        </div>
      )}
      {failure && <p class="note bad" role="alert">{failure.message}</p>}
      {has && !data && !failure && <p class="placeholder" aria-busy="true">Reading the run …</p>}
      {data && <Health run={data} />}
    </div>
  );
}

/** The run as its files are now. What did not change stays the same object, so nothing is drawn again. */
function useRun(has: boolean) {
  const [turn, setTurn] = useState(0);
  const { data, failure } = useAsk<Run>(has ? "/api/run" : null, undefined, turn);
  const last = useRef<{ text: string; run: Run } | null>(null);
  useEffect(() => {
    if (!has || written) return;
    const timer = setInterval(() => { if (!document.hidden) setTurn((n) => n + 1); }, REFRESH);
    return () => clearInterval(timer);
  }, [has]);
  const run = useMemo(() => {
    if (!data) return null;
    const text = canonical(data);
    if (last.current?.text !== text) last.current = { text, run: data };
    return last.current.run;
  }, [data]);
  return { data: run, failure };
}

function Health({ run }: { run: Run }) {
  const shown = useShown();
  const what = OF_LAYERS.find((w) => w === shown.what) ?? "gradient";
  const layer = shown.layer;
  const setLayer = (name: string) => set({ layer: name });
  const losses = useMemo(() => run.series.filter((s) => /loss/i.test(s.name)), [run]);
  const others = useMemo(() => run.series.filter((s) => !/loss/i.test(s.name)).map((s) => [s]), [run]);
  return (
    <>
      <p class="row small"><b class="mono">{run.title}</b><span class="muted">{many(run.steps, "step")}</span>{Object.entries(run.config ?? {}).slice(0, 8).map(([k, v]) => <span key={k} class="badge">{k} {typeof v === "object" ? JSON.stringify(v) : String(v)}</span>)}</p>
      {run.notes.map((n) => <p key={n} class="note small">{n}</p>)}
      <Flags run={run} pick={setLayer} />
      <div class="even">
        {losses.length > 0 && <Card title="Loss"><div class="in"><Curves series={losses} label="Loss by step" log={wide(losses)} /></div></Card>}
        {others.map((one, i) => <Card key={one[0]!.name} title={words(one[0]!.name)}><div class="in"><Curves series={one} label={`${words(one[0]!.name)} by step`} first={i + 2} /></div></Card>)}
      </div>
      {run.layers.length > 0 && (
        <Card title="By layer" tools={
          <div class="segment" role="group" aria-label="Show">
            {OF_LAYERS.map((w) => <button key={w} aria-pressed={what === w} onClick={() => set({ what: w === "gradient" ? null : w })}>{w === "update" ? "update ratio" : w}</button>)}
          </div>}>
          <div class="in"><Heat run={run} what={what} chosen={layer} pick={setLayer} /></div>
        </Card>
      )}
    </>
  );
}

function Flags({ run, pick }: { run: Run; pick: (layer: string) => void }) {
  if (run.flags.length === 0) return run.layers.length === 0 ? null : <p class="note good">No layer vanishes, explodes or stops.</p>;
  const kinds = [...new Set(run.flags.map((f) => f.kind))];
  return (
    <div class="flags">
      {kinds.map((kind) => {
        const flags = run.flags.filter((f) => f.kind === kind);
        // Flags of a loss belong to no layer.
        const layers = new Set(flags.flatMap((f) => f.layer ?? [])).size;
        return (
          <details key={kind} class="note bad flag" open={flags.length <= 4}>
            <summary><span class="badge bad">{kind}</span> {layers > 0 && `${many(layers, "layer")}, `}first at step {extent(flags.map((f) => f.step))[0]}</summary>
            <ul>
              {flags.map((f, i) => (
                <li key={i} data-flag={kind}><FlaggedLayer name={f.layer} pick={pick} /><span class="small">{f.text}</span></li>
              ))}
            </ul>
          </details>
        );
      })}
    </div>
  );
}

const FlaggedLayer = ({ name, pick }: { name: string | null; pick: (layer: string) => void }) =>
  name === null ? null : <><button class="link" onClick={() => pick(name)}>{name}</button> </>;

/** Series on one axis of steps; a step that a series does not have is a gap. */
function aligned(series: { name: string; points: Points }[]): [number[], (number | null)[][]] {
  const steps = [...new Set(series.flatMap((s) => s.points.map(([x]) => x)))].sort((a, b) => a - b);
  const at = new Map(steps.map((x, i) => [x, i]));
  const columns = series.map((s) => {
    const y: (number | null)[] = steps.map(() => null);
    for (const [x, v] of s.points) y[at.get(x)!] = Number.isFinite(float(v)) ? float(v) : null;
    return y;
  });
  return [steps, columns];
}

/** Whether a logarithmic axis says more: all positive, over more than a decade. */
function wide(series: { points: Points }[]): boolean {
  const all = series.flatMap((s) => s.points.map(([, y]) => float(y))).filter(Number.isFinite);
  const [least, most] = extent(all);
  return least > 0 && most / least > 20;
}

function Curves({ series, label, log, first = 0 }: { series: { name: string; points: Points }[]; label: string; log?: boolean; first?: number }) {
  const { x, lines } = useMemo(() => {
    const [x, ys] = aligned(series);
    return { x, lines: ys.map((y, i): Line => ({ name: plain(series[i]!.name), y, colour: HUE[(i + first) % HUE.length]!, points: y.filter((v) => v !== null).length < 30, gaps: true })) };
  }, [series]);
  return <Plot x={x} lines={lines} label={label} logY={log} height={230} xName="step" formatX={(v) => count(v)} formatY={(v) => number(v, 3)} />;
}

function Heat({ run, what, chosen, pick }: { run: Run; what: (typeof OF_LAYERS)[number]; chosen: string | null; pick: (layer: string) => void }) {
  useTheme();
  const [lo, hi] = useMemo(() => {
    const all = run.layers.flatMap((l) => l[what].map(([, y]) => Math.log10(float(y)))).filter(Number.isFinite);
    return extent(all);
  }, [run, what]);
  const night = isNight();
  const [broken, zero] = night ? ["#ff8b82", "#000"] : ["#b3261e", "#444"];
  const has = (test: (y: number) => boolean) => run.layers.some((l) => l[what].some(([, y]) => test(float(y))));
  const colour = (y: number) => {
    if (!Number.isFinite(y)) return broken;
    if (y === 0) return zero;
    return ramp(hi > lo ? (Math.log10(y) - lo) / (hi - lo) : 0.5);
  };
  const flagged = new Set(run.flags.map((f) => f.layer));
  const layer = run.layers.find((l) => l.name === chosen) ?? null;
  const series = useMemo(() => (layer ? [{ name: layer.name, points: layer[what] }] : []), [layer, what]);
  return (
    <div class="stack">
      <div class="heat" role="table" aria-label={`${what} by layer over time`}>
        {run.layers.map((l) => {
          const points = thin(l[what], 80);
          const last = l[what][l[what].length - 1]?.[1];
          return (
            <div class="heat-row" role="row" key={l.name}>
              <span role="rowheader" class="heat-name"><button class={`link ${chosen === l.name ? "on" : ""}`} onClick={() => pick(l.name)}>{l.name}</button>{flagged.has(l.name) && <span class="badge bad">!</span>}</span>
              <span role="cell" class="heat-cells" aria-label={`last ${number(last, 3)}`}>
                {points.map(([x, y], i) => <span key={i} class="heat-cell" style={{ background: colour(float(y)) }} title={`step ${x}: ${number(y, 3)}`} />)}
              </span>
              <span role="cell" class="num small right">{number(last, 3)}</span>
            </div>
          );
        })}
      </div>
      {Number.isFinite(lo) && <div class="legend"><span>{number(10 ** lo, 2)}</span><Ramp /><span>{number(10 ** hi, 2)}</span><span class="muted">{what === "update" ? "norm of the change against the norm of the weights" : `root mean square of the ${what}`}</span>
        {has((y) => y === 0) && <span><span class="swatch" style={{ background: zero }} />zero</span>}
        {has((y) => !Number.isFinite(y)) && <span><span class="swatch" style={{ background: broken }} />not finite</span>}
      </div>}
      {layer && <div><h3>{layer.name} <span class="muted small">{count(layer.parameters)} parameters</span></h3><Curves key={`${layer.name}${what}`} series={series} label={`${what} of ${layer.name}`} log={wide(series)} first={1} /></div>}
    </div>
  );
}

const thin = (points: Points, n: number): Points =>
  points.length <= n ? points : Array.from({ length: n }, (_, i) => points[Math.round((i * (points.length - 1)) / (n - 1))]!);
