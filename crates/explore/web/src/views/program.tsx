// The compiler, pass by pass; fused regions with their code; the arena as a Gantt chart.
import { useMemo, useState } from "preact/hooks";
import { useAsk } from "../api";
import { bytes, count, many, seconds } from "../format";
import type { Program, Recording, Stage, Start } from "../schema";
import { set, useShown } from "../state";
import { useTheme, useWidth } from "../ui/plot";
import { Card } from "../ui/value";
import { familyColour } from "./graph";

export function ProgramView({ start, recording }: { start: Start; recording: boolean }) {
  const shown = useShown();
  const ofFile = recording && !shown.model;
  const body = shown.model ? { model: shown.model } : { expression: shown.expression, values: shown.values };
  const own = useAsk<Program>(ofFile ? null : "/api/program", body);
  const graph = useAsk<Recording>(ofFile ? "/api/recording" : null);
  const none = ofFile && graph.data !== null && !graph.data.program;
  const file = useAsk<Program>(ofFile && graph.data?.program ? "/api/recording/program" : null);
  const { data, failure, busy } = ofFile ? file : own;
  return (
    <div class="stack gap">
      <div class="intro">
        <h2>The program</h2>
        <p class="lead">The list of steps as a compiler sees it: recorded once, simplified pass by pass, neighbours fused into one loop, and every value given its place in memory.</p>
      </div>
      <div class="chips" role="group" aria-label="Compile">
        <button class="chip" aria-pressed={!shown.model} onClick={() => set({ model: null, stage: null })}>{recording ? "the recording" : "value and gradient of the expression"}</button>
        {start.defaults.models.map((m) => <button key={m} class="chip" aria-pressed={shown.model === m} onClick={() => set({ model: m, stage: null })}>{m}: a training step</button>)}
      </div>
      {failure && <p class="note bad" role="alert">{failure.message}</p>}
      {none && <p class="note">This recording has no program: nothing that ran was compiled. Call a function made by <code>jit</code> inside <code>pullback::record</code>, or write a program with <code>pullback::record_program(path, &program)</code>. The models above are compiled here.</p>}
      {ofFile && graph.data?.program && graph.data.total > 0 && <p class="note small">The first compiled function that the recorded run called.</p>}
      {!none && !data && !failure && <p class="placeholder" aria-busy="true">Compiling …</p>}
      {data && <div class={`stack gap ${busy ? "busy" : ""}`}><Compiled program={data} /></div>}
    </div>
  );
}

function Compiled({ program }: { program: Program }) {
  const [open, setOpen] = useState<number | null>(program.regions[0]?.id ?? null);
  const show = (id: number) => {
    setOpen(id);
    requestAnimationFrame(() => document.getElementById(`region-${id}`)?.scrollIntoView({ behavior: "smooth", block: "center" }));
  };
  return (
    <>
      <Stages program={program} show={show} />
      <Regions program={program} open={open} setOpen={setOpen} />
      {program.arena && program.arena.intervals.length > 0 && <Arena arena={program.arena} />}
    </>
  );
}

const words = (pass: string) => pass.replaceAll("_", " ");

/** What each pass is for. */
const PURPOSE: Record<string, string> = {
  trace: "What your function did, op by op, with its backward pass.",
  inline: "Puts the bodies of conditionals and loops that are known beforehand in place.",
  dead_code: "Removes what nothing uses.",
  fold: "Computes what depends on constants alone, once, now.",
  simplify: "Rewrites by rules of algebra: x·1 is x, two transposes are none.",
  common_subexpressions: "Computes equal things once.",
  layout: "Moves transposes and reshapes to where they cost nothing.",
  remat: "Computes cheap values again instead of keeping them in memory.",
  fuse: "Joins neighbouring ops into regions: one loop over the elements, with nothing written in between.",
  epilogue: "Lets a matrix product finish with the region after it, while its results are in cache.",
  schedule: "Orders the equations so that memory is free early.",
  overlap: "Starts the exchange with other workers early, and waits for it late.",
  compiled: "What runs, after all passes.",
};

/** What a pass did, in words. */
function did(s: Stage): string {
  const parts = [
    s.fused > 0 && `fused ${many(s.fused, "equation")} into ${many(Math.max(s.into, 1), "region")}`,
    s.unused > 0 && `removed ${s.unused} that nothing used`,
    s.duplicate > 0 && `removed ${many(s.duplicate, "duplicate")}`,
    s.replaced > 0 && `replaced ${s.replaced}`,
    s.added > s.into && `added ${s.added - s.into}`,
    s.rewired > 0 && `gave ${many(s.rewired, "equation")} another operand`,
    s.moved > 0 && `moved ${many(s.moved, "equation")}`,
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(", ") : "changed nothing";
}

const HOW = { fused: "fused", duplicate: "computed elsewhere", unused: "unused", replaced: "replaced" };

function Stages({ program, show }: { program: Program; show: (region: number) => void }) {
  const shown = useShown();
  // The last pass that did more than move equations says the most.
  const last = Math.max(program.stages.findLastIndex((s) => s.added + s.removed + s.rewired > 0), 0);
  const at = Math.min(shown.stage ?? last, program.stages.length - 1);
  const stage = program.stages[at];
  const top = Math.max(...program.stages.map((s) => s.after), 1);
  const move = (e: KeyboardEvent) => {
    const by = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0;
    if (!by) return;
    e.preventDefault();
    const next = Math.max(0, Math.min(program.stages.length - 1, at + by));
    set({ stage: next });
    requestAnimationFrame(() => (document.querySelector(`[data-stage="${next}"]`) as HTMLElement | null)?.focus());
  };
  return (
    <div class="stages">
      <Card title="Passes">
        <ol class="passes" onKeyDown={move}>
          {program.stages.map((s, i) => (
            <li key={i}>
              <button data-stage={i} aria-current={i === at ? "step" : undefined} onClick={() => set({ stage: i })}>
                <span class="pass-name">{words(s.name)}</span>
                <span class="num small">{s.unchanged ? <span class="muted">no change</span> : i > 0 && s.added + s.removed + s.rewired === 0 ? <>{s.moved} moved</> : <>{s.before} → {s.after}</>}</span>
                <span class="pass-bar" style={{ width: `${(s.after / top) * 100}%` }} />
              </button>
            </li>
          ))}
        </ol>
      </Card>
      {stage && <StageText program={program} stage={stage} at={at} show={show} />}
    </div>
  );
}

/** A pass that changed nothing has the equations of the last one that did. */
const equationsAt = (program: Program, at: number) => {
  for (let k = at; k >= 0; k--) if (!program.stages[k]!.unchanged) return program.stages[k]!;
  return program.stages[at]!;
};

function StageText({ program, stage, at, show }: { program: Program; stage: Stage; at: number; show: (region: number) => void }) {
  // The lines of an expression's program are lines of the explorer, not the reader's.
  const { subject, model } = useShown();
  const lines = subject === "file" || model !== null;
  const source = equationsAt(program, at);
  const [gone, setGone] = useState(true);
  const sentence = at === 0 ? `${many(stage.after, "equation")}.` : `It ${did(stage)}.`;
  return (
    <Card title={at === 0 ? "As traced" : `After ${words(stage.name)}`} tools={stage.seconds > 0 && <span class="small muted">{seconds(stage.seconds)}</span>}>
      <p class="in pass-text"><span>{PURPOSE[stage.name]}</span> <b>{sentence}</b></p>
      <div class="scroll code-scroll" tabIndex={0} role="region" aria-label={`Equations after ${stage.name}`}>
        <ol class="equations">
          {source.equations.map((e) => (
            <li key={e.index} class={`${!stage.unchanged && at > 0 ? (e.state === "kept" ? "" : e.state) : ""} ${e.family === "region" ? "in-region" : ""}`}>
              <span class="num muted">{e.index}</span>
              <span class="family-dot" style={{ background: familyColour(e.family) }} title={e.family} />
              <code>{e.text}</code>
              {at > 0 && !stage.unchanged && e.state !== "kept" && <span class={`badge ${e.state === "new" ? "good" : ""}`}>{e.state === "new" ? "new" : "other operand"}</span>}
              {e.region !== null && <button class="badge value link-badge" onClick={() => show(e.region!)}>region {e.region}</button>}
              {lines && e.line && <span class="muted small line" title={e.line}>{e.line.slice(e.line.lastIndexOf("/") + 1)}</span>}
            </li>
          ))}
          {(source.left_out ?? 0) > 0 && <li class="muted">and {count(source.left_out!)} more</li>}
        </ol>
        {stage.gone.length > 0 && (
          <details open={gone} onToggle={(e) => setGone(e.currentTarget.open)} class="gone">
            <summary>Gone, {many(stage.gone.length, "equation")}</summary>
            <ul>{stage.gone.slice(0, 400).map((g, i) => <li key={i}><span class="badge">{HOW[g.how]}{g.region !== null && ` into region ${g.region}`}</span> <code>{g.text}</code></li>)}</ul>
          </details>
        )}
      </div>
    </Card>
  );
}

function Regions({ program, open, setOpen }: { program: Program; open: number | null; setOpen: (id: number | null) => void }) {
  if (program.regions.length === 0 && program.kernels.length === 0) return null;
  return (
    <Card title="Fused regions" tools={<span class="small muted">{program.kernels.map((k) => `${k.name} × ${k.count}`).join(" · ")}</span>}>
      <div class="in stack regions" tabIndex={0} role="region" aria-label="Fused regions and their code">
        {program.regions.length === 0 && <p class="muted">No neighbouring pointwise ops to fuse here: every equation runs a kernel of its own.</p>}
        {program.regions.slice(0, 200).map((r) => (
          <section key={r.id} id={`region-${r.id}`} class={`region ${open === r.id ? "open" : ""}`}>
            <button class="region-head" aria-expanded={open === r.id} onClick={() => setOpen(open === r.id ? null : r.id)}>
              <span class="badge value">region {r.id}</span> <span class="mono small">{r.ops.join(" · ")}</span> <span class="muted small">equation {r.equation}</span>
            </button>
            {open === r.id && <RegionCode region={r} />}
          </section>
        ))}
      </div>
    </Card>
  );
}

/** The instructions of a region beside the machine code that was generated of them. */
function RegionCode({ region: r }: { region: Program["regions"][number] }) {
  return (
    <div class="codes">
      <div>
        <p class="small muted">What it computes for each element</p>
        <pre class="scroll" tabIndex={0} role="region" aria-label={`Instructions of region ${r.id}`}>{r.code}</pre>
      </div>
      <div>
        <p class="small muted">{r.native === null ? "Machine code" : r.native_of > 1 ? `Machine code, one piece for ${r.native_of} regions, as generated for this machine` : "Machine code, as generated for this machine"}</p>
        {r.native === null
          ? <p class="small muted in">None: it runs by kernels, slice by slice, as loops of its own are generated for floats alone; or this machine has no AVX2.</p>
          : <pre class="scroll native" tabIndex={0} role="region" aria-label={`Machine code of region ${r.id}`}>{r.native}</pre>}
      </div>
    </div>
  );
}

function Arena({ arena }: { arena: NonNullable<Program["arena"]> }) {
  const [place, width] = useWidth<HTMLDivElement>();
  const theme = useTheme();
  const [pick, setPick] = useState<number | null>(null);
  const height = 300;
  const left = 74;
  const w = Math.max(width - left - 8, 10);
  const moments = Math.max(arena.moments, 1);
  const top = Math.max(arena.bytes, 1);
  const list = useMemo(() => arena.intervals.slice(0, 3000), [arena]);
  void theme;
  const chosen = pick !== null ? list[pick] : null;
  return (
    <Card title="The arena" tools={<span class="small muted">{bytes(arena.bytes)} for {many(arena.intervals.length, "buffer")}; alone they would be {bytes(arena.intervals.reduce((s, i) => s + i.bytes, 0))}</span>}>
      <div class="in stack">
        <div ref={place}>
          <svg class="arena" width={width || 10} height={height + 34} role="img" aria-label={`Arena of ${bytes(arena.bytes)} over ${moments} equations`}>
            {[0, 0.25, 0.5, 0.75, 1].map((t) => (
              <g key={t}>
                <line class="rule" x1={left} x2={left + w} y1={height - t * height + 10} y2={height - t * height + 10} />
                <text class="axis" x={left - 8} y={height - t * height + 14} text-anchor="end">{bytes(Math.round(t * top))}</text>
              </g>
            ))}
            {list.map((i, k) => (
              <rect key={k} class={`slot ${pick === k ? "on" : ""}`} x={left + (i.first / moments) * w} width={Math.max(((i.last - i.first + 1) / moments) * w - 0.6, 1)}
                y={10 + height - ((i.offset + i.bytes) / top) * height} height={Math.max((i.bytes / top) * height - 0.6, 1)}
                style={{ fill: slotColour(i.op) }} onPointerEnter={() => setPick(k)} onClick={() => setPick(k)} />
            ))}
            <text class="axis" x={left} y={height + 28}>equation 0</text>
            <text class="axis" x={left + w} y={height + 28} text-anchor="end">{moments - 1}</text>
          </svg>
        </div>
        <p class="small" aria-live="polite">{chosen ? <><code>{chosen.name}: {chosen.spec}</code> from <code>{chosen.op}</code>: {bytes(chosen.bytes)} at offset {count(chosen.offset)}, equations {chosen.first} to {chosen.last}{chosen.line && <> · <code>{chosen.line}</code></>}</> : <span class="muted">Each bar is a buffer: as wide as its life, as high as its size. Bars that share a height share memory.</span>}</p>
        <details>
          <summary>Buffers as a table</summary>
          <div class="scroll tape-scroll" tabIndex={0} role="region" aria-label="Buffers, as a table">
            <table><thead><tr><th scope="col">buffer</th><th scope="col">op</th><th scope="col" class="right">offset</th><th scope="col" class="right">bytes</th><th scope="col" class="right">life</th></tr></thead>
              <tbody>{list.slice(0, 300).map((i, k) => <tr key={k}><td class="mono small">{i.name}: {i.spec}</td><td class="mono small">{i.op}</td><td class="right num">{count(i.offset)}</td><td class="right num">{count(i.bytes)}</td><td class="right num">{i.first}–{i.last}</td></tr>)}</tbody></table>
          </div>
        </details>
      </div>
    </Card>
  );
}

/** One hue per op name, so that the same op is the same colour everywhere on the chart. */
function slotColour(op: string): string {
  let h = 7;
  for (const c of op) h = (h * 31 + c.charCodeAt(0)) % 360;
  return document.documentElement.dataset.theme === "dark" ? `hsl(${h} 38% 44%)` : `hsl(${h} 46% 68%)`;
}

