// Live bytes over forward and backward: plain, checkpointed, under a budget; and the valley near
// √N.
import { useMemo } from "preact/hooks";
import { useAsk, written } from "../api";
import { bytes, count, many, seconds } from "../format";
import type { Memory, MemoryRun, Start } from "../schema";
import { set, useShown } from "../state";
import { Plot, type Line } from "../ui/plot";
import { Bytes, Card } from "../ui/value";

const COLOURS: Record<string, string> = { plain: "value", checkpointed: "cot", budget: "tan", recording: "value" };
const TITLES: Record<string, string> = { plain: "Plain", checkpointed: "Checkpointed", budget: "Under a budget", recording: "This recording" };

export function MemoryView({ start, recording }: { start: Start; recording: boolean }) {
  const shown = useShown();
  const own = !recording || shown.memory === "chain";
  const first = start.defaults.memory;
  const body = written ? first : {
    ...first,
    layers: shown.layers ?? first.layers,
    segment: shown.segment ?? first.segment,
    budget: shown.budget ?? first.budget,
  };
  const chain = useAsk<Memory>(own ? "/api/memory" : null, body);
  const file = useAsk<Memory>(recording && !own ? "/api/recording/memory" : null);
  const { data, failure, busy } = own ? chain : file;
  return (
    <div class="stack gap">
      <div class="intro">
        <h2>Memory</h2>
        <p class="lead">A reverse sweep reads what the forward pass kept, last value first. So memory climbs going forward and falls coming back. Checkpoints keep less and compute stretches again.</p>
      </div>
      {recording && (
        <div class="segment" role="group" aria-label="Of what">
          <button aria-pressed={!own} onClick={() => set({ memory: null })}>This recording</button>
          <button aria-pressed={own} onClick={() => set({ memory: "chain" })}>A chain of layers</button>
        </div>
      )}
      {own && <Controls start={start} body={body} peak={data?.runs[0]?.peak ?? null} />}
      {failure && <p class="note bad" role="alert">{failure.message}</p>}
      {!data && !failure && <p class="placeholder" aria-busy="true">The engine runs it …</p>}
      {data && <div class={busy ? "busy stack gap" : "stack gap"}><Runs runs={data.runs} layers={data.layers} />{data.segments && data.segments.length > 1 && <Valley memory={data} segment={body.segment} />}</div>}
    </div>
  );
}

function Controls({ start, body, peak }: { start: Start; body: { layers: number; width: number; batch: number; segment: number | null; budget: number | null }; peak: number | null }) {
  if (written) return <p class="note small">{many(body.layers, "layer")}, segments of {body.segment}, a budget of {bytes(body.budget)}. Other settings need the server.</p>;
  const top = Math.max(peak ?? 0, body.budget ?? 0, 1024);
  const step = 1024;
  return (
    <Card>
      <div class="in controls">
        <div class="field">
          <label for="layers">Layers: <span class="num">{body.layers}</span></label>
          <input id="layers" type="range" min={2} max={Math.min(start.limits.layers ?? 64, 64)} value={body.layers} onInput={(e) => set({ layers: e.currentTarget.valueAsNumber })} />
        </div>
        <div class="field">
          <label for="segment">Segment length: <span class="num">{body.segment}</span> <span class="muted">√{body.layers} ≈ {Math.sqrt(body.layers).toFixed(1)}</span></label>
          <input id="segment" type="range" min={1} max={body.layers} value={body.segment ?? 1} onInput={(e) => set({ segment: e.currentTarget.valueAsNumber })} />
        </div>
        <div class="field">
          <label for="budget">Budget for kept values: <span class="num">{bytes(body.budget)}</span></label>
          <input id="budget" type="range" min={step} max={top} step={step} value={body.budget ?? top} onInput={(e) => set({ budget: e.currentTarget.valueAsNumber })} />
        </div>
      </div>
    </Card>
  );
}

function Runs({ runs, layers }: { runs: MemoryRun[]; layers?: number }) {
  const top = Math.max(...runs.map((r) => r.peak), 1);
  return (
    <>
      <div class="run-cards">
        {runs.map((r) => (
          <section key={r.name} class={`card run ${COLOURS[r.name] ?? ""}`} data-run={r.name}>
            <h3>{TITLES[r.name] ?? r.name}{r.segment ? `, segments of ${r.segment}` : ""}{r.budget ? `, ${bytes(r.budget)}` : ""}</h3>
            <p class="big"><Bytes n={r.peak} /></p>
            <p class="small muted">at the peak{r.kept !== null && ` · ${bytes(r.kept)} kept for backward`}{r.budget ? ", and the values of the op that runs" : ""}</p>
            <p class="small">{r.recomputed > 0 ? `${many(r.recomputed, "op")} computed again` : "nothing computed again"}{r.seconds !== null && <span class="muted"> · {seconds(r.seconds)}</span>}</p>
            {runs.length > 1 && <span class={`race-bar ${COLOURS[r.name] ?? "value"}`} style={{ width: `${(r.peak / top) * 100}%` }} />}
          </section>
        ))}
      </div>
      {runs.map((r) => <Timeline key={r.name} run={r} top={top} />)}
      {layers !== undefined && <p class="small muted">The gradients of all runs are the same, bit for bit; the engine compared them.</p>}
    </>
  );
}

function Timeline({ run, top }: { run: MemoryRun; top: number }) {
  const { x, lines, bands, turn } = useMemo(() => {
    const t = run.timeline;
    const bands: [number, number][] = [];
    t.forEach((e, i) => {
      if (!e.recomputed) return;
      const last = bands[bands.length - 1];
      if (last && last[1] === i) last[1] = i + 1;
      else bands.push([i, i + 1]);
    });
    const colour = COLOURS[run.name] ?? "value";
    const lines: Line[] = [
      { name: "live", y: t.map((e) => e.bytes), colour, step: true, fill: true },
    ];
    if (run.kept !== null) lines.push({ name: "kept for backward", y: t.map((e) => e.kept), colour, step: true, dash: [3, 3], width: 1.5 });
    const back = t.findIndex((e) => e.phase !== "forward");
    return { x: t.map((_, i) => i), lines, bands, turn: back < 0 ? null : back };
  }, [run]);
  return (
    <Card title={run.name === "recording" ? "Live memory, op by op" : TITLES[run.name] ?? run.name} tools={<span class="row small muted">{bands.length > 0 && <span><span class="swatch cot-soft" /> computed again</span>}<span>┆ where backward begins</span></span>}>
      <div class="in"><Plot x={x} lines={lines} label={`Live bytes over time, ${TITLES[run.name] ?? run.name}; peak ${bytes(run.peak)}`} height={190} zeroY topY={top} whole binaryY mark={turn} bands={bands} bandColour="cot-soft"
        xName="op" formatX={(v) => count(Math.round(v))} formatY={(v) => bytes(Math.round(v))} /></div>
    </Card>
  );
}

function Valley({ memory, segment }: { memory: Memory; segment: number | null }) {
  const segments = memory.segments!;
  const { x, lines, best } = useMemo(() => {
    const best = segments.reduce((a, b) => (b.peak < a.peak ? b : a));
    return {
      x: segments.map((s) => s.segment), best,
      lines: [
        { name: "peak", y: segments.map((s) => s.peak), colour: "cot", points: true },
        { name: "kept for backward", y: segments.map((s) => s.kept), colour: "value", dash: [3, 3] },
      ] as Line[],
    };
  }, [memory]);
  return (
    <Card title="Peak by segment length">
      <div class="in stack">
        <p class="small">Short segments keep many borders, long ones hold a whole segment while it is computed again. The least is in between: at length <b class="num">{best.segment}</b> with {bytes(best.peak)}; √{memory.layers} ≈ {Math.sqrt(memory.layers ?? 1).toFixed(1)}.</p>
        <Plot x={x} lines={lines} label="Peak memory by segment length" height={220} zeroY whole binaryY mark={segment} xName="segment length" formatX={(v) => String(Math.round(v))} formatY={(v) => bytes(Math.round(v))}
          onPick={written ? undefined : (k) => set({ segment: k })} />
      </div>
    </Card>
  );
}
