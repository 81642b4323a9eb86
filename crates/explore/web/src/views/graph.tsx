// The graph: a canvas to look at, and beside it an outline of the same groups that can be read and
// operated without seeing the canvas.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useAsk } from "../api";
import { Drawing, type Look } from "../graph/canvas";
import { place as arrange, type Box, type Scene } from "../graph/layout";
import { fromRecording, fromTape, type Source } from "../graph/source";
import { grow, reveal, type Group, type Tree } from "../graph/tree";
import { bytes, count, many, number, percent, place, seconds } from "../format";
import type { RecordedNode, Recording, Start, Tape, Value } from "../schema";
import { set, useShown } from "../state";
import { Icon } from "../ui/icons";
import { token, useTheme } from "../ui/plot";
import { isNight, ramp } from "../ui/ramp";
import { Card, Ramp, StatsTable } from "../ui/value";
import { Detail } from "./forward";

/** Families of ops: hue and saturation, and words where the name alone says little. */
const FAMILIES: Record<string, { hue: [number, number]; words?: string }> = {
  input: { hue: [205, 48], words: "inputs and parameters" },
  constant: { hue: [210, 6], words: "constants" },
  source: { hue: [325, 34], words: "literals, random numbers" },
  pointwise: { hue: [145, 34] },
  view: { hue: [220, 14], words: "views" },
  movement: { hue: [85, 28] },
  index: { hue: [180, 38], words: "indexing" },
  reduction: { hue: [42, 66], words: "reductions" },
  window: { hue: [14, 64], words: "products, convolutions" },
  linear: { hue: [300, 28], words: "linear algebra" },
  fused: { hue: [275, 40], words: "fused kernels" },
  region: { hue: [192, 56], words: "fused regions" },
  flow: { hue: [250, 50], words: "loops and branches" },
  custom: { hue: [352, 46] },
  composite: { hue: [50, 30], words: "composed of several" },
};
const ORDER = Object.keys(FAMILIES);
export const familyColour = (family: string): string => {
  const [h, s] = (FAMILIES[family] ?? FAMILIES.composite!).hue;
  return isNight() ? `hsl(${h} ${s * 0.9}% 32%)` : `hsl(${h} ${s}% 84%)`;
};

type Colour = "family" | "gradient" | "zero" | "seconds";
const COLOURS: [Colour, string][] = [["family", "family"], ["gradient", "gradient"], ["zero", "zeros"], ["seconds", "time"]];

export function GraphView({ tape, failed, recording, start }: { tape: Tape | null; failed: string | null; recording: boolean; start: Start }) {
  const asked = useAsk<Recording>(recording ? "/api/recording" : null);
  const source = useMemo(
    () => (recording ? (asked.data ? fromRecording(asked.data) : null) : tape ? fromTape(tape) : null),
    [recording, asked.data, tape],
  );
  const shape = recording ? asked.data : tape?.expression;
  return (
    <div class="stack gap">
      <div class="intro">
        <h2>The graph</h2>
        <p class="lead">
          {source ? `${many(source.total, "node")}, in layers from inputs to result.` : ""} Click a node for its numbers and its line; click a group to open or close it.
          {recording && asked.data && ` ${asked.data.title}: ${bytes(asked.data.bytes)} on disk${asked.data.peak ? `, ${bytes(asked.data.peak)} live at the peak` : ""}.`}
        </p>
      </div>
      {asked.failure && <p class="note bad" role="alert">{asked.failure.message}</p>}
      {!source && !asked.failure && (failed ? <p class="placeholder">{failed}</p> : <p class="placeholder" aria-busy="true">{recording ? "Reading the recording …" : "Asking the engine …"}</p>)}
      {source && <Explorer key={String(shape && recording ? source.title : shape)} source={source} recording={recording} tape={tape} />}
      {asked.data?.notes.map((n) => <p key={n} class="note small">{n}</p>)}
      {!recording && start.opened.kind === "expression" && <p class="small muted">Your own program: record it with <code>pullback::record(path, || …)</code> and open it with <code>pullback explore FILE</code>.</p>}
    </div>
  );
}

function Explorer({ source, recording, tape }: { source: Source; recording: boolean; tape: Tape | null }) {
  const shown = useShown();
  const theme = useTheme();
  const tree = useRef<Tree | null>(null);
  tree.current ??= grow(source);
  const [version, setVersion] = useState(0);
  const colour = COLOURS.find(([id]) => id === shown.colour)?.[0] ?? "family";
  const [query, setQuery] = useState("");
  const scene = useMemo<Scene>(() => arrange(tree.current!, source), [version]);
  const canvas = useRef<HTMLCanvasElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const drawing = useRef<Drawing | null>(null);
  const sceneNow = useRef(scene);
  sceneNow.current = scene;
  const [hover, setHover] = useState<{ leaf: number; group: Group | null; x: number; y: number } | null>(null);

  const ranges = useMemo(() => {
    const range = (f: (i: number) => number, log: boolean) => {
      let lo = Infinity;
      let hi = -Infinity;
      for (let i = 0; i < source.total; i++) {
        const v = log ? Math.log10(f(i)) : f(i);
        if (Number.isFinite(v)) {
          lo = Math.min(lo, v);
          hi = Math.max(hi, v);
        }
      }
      return [lo, hi] as const;
    };
    return { gradient: range(source.gradient, true), zero: [0, 1] as const, seconds: range(source.seconds, true) };
  }, [source]);

  const look = useMemo<Look>(() => {
    const colours = new Map(ORDER.map((f) => [f, familyColour(f)]));
    const night = isNight();
    const unknown = night ? "#2a323b" : "#e6e4dc";
    const steps = Array.from({ length: 33 }, (_, i) => ramp(i / 32));
    const heat = (t: number) => steps[Math.round(t * 32)]!;
    const leafColour = (i: number): string => {
      if (colour === "family") return colours.get(source.family(i)) ?? unknown;
      const raw = colour === "zero" ? source.zero(i) : Math.log10(source[colour](i));
      const [lo, hi] = ranges[colour];
      return Number.isFinite(raw) ? heat(hi > lo ? (raw - lo) / (hi - lo) : 0.5) : unknown;
    };
    const ground = token("sunk");
    return {
      fill: (b) => (b.leaf >= 0 ? leafColour(b.leaf) : ground),
      label: (b) => (b.leaf >= 0 ? source.label(b.leaf, tree.current!.home[b.leaf]!.path) : b.group!.label),
      detail: (b) => (b.leaf >= 0 ? source.detail(b.leaf) : many(b.group!.size, "node")),
      broken: (b) => (b.leaf >= 0 ? source.broken(b.leaf) : b.group!.broken),
      ink: token("ink"), muted: token("ink-3"), paper: token("paper"), sheet: token("sheet"), line: token("line-strong"),
      edge: night ? "rgb(160 175 190 / 0.34)" : "rgb(60 70 80 / 0.3)", bad: token("bad"), accent: token("accent"),
    };
  }, [source, colour, theme, ranges]);

  // What is opened or closed stays where it was on the screen; the rest moves around it.
  const anchor = useRef<{ group: Group; x: number; y: number } | null>(null);
  const corner = (g: Group) => {
    const box = sceneNow.current.boxes.find((b) => b.group === g);
    const d = drawing.current;
    return box && d ? { x: d.x + (box.x + box.w / 2) * d.k, y: d.y + box.y * d.k } : null;
  };
  const toggle = (g: Group) => {
    const at = corner(g);
    anchor.current = at && { group: g, ...at };
    g.open = !g.open;
    setVersion((v) => v + 1);
  };
  const focusLeaf = (leaf: number) => {
    set({ node: leaf });
    if (reveal(tree.current!, leaf)) setVersion((v) => v + 1);
    requestAnimationFrame(() => requestAnimationFrame(() => drawing.current?.centre(sceneNow.current.boxOf(leaf))));
  };

  useEffect(() => {
    const d = (drawing.current = new Drawing(canvas.current!));
    (canvas.current as unknown as { drawing: Drawing }).drawing = d;
    const observer = new ResizeObserver(([entry]) => {
      if (!canvas.current) return;
      const first = canvas.current.width <= 1;
      d.resize(entry!.contentRect.width, entry!.contentRect.height);
      if (first) d.begin();
    });
    observer.observe(frame.current!);
    return () => {
      observer.disconnect();
      d.stop();
    };
  }, []);
  const placed = useRef(false);
  useEffect(() => {
    drawing.current!.show(scene, look);
    if (anchor.current) {
      const now = corner(anchor.current.group);
      if (now) drawing.current!.pan(anchor.current.x - now.x, anchor.current.y - now.y);
      anchor.current = null;
    }
    if (!placed.current) {
      placed.current = true;
      const box = frame.current!.getBoundingClientRect();
      drawing.current!.resize(box.width, box.height);
      drawing.current!.begin();
      if (shown.node !== null && shown.node < source.total) focusLeaf(shown.node);
    }
  }, [scene, look]);
  useEffect(() => {
    if (!drawing.current) return;
    drawing.current.selected = shown.node !== null && shown.node < source.total ? scene.boxOf(shown.node) : -1;
    drawing.current.ask();
  }, [shown.node, scene]);
  usePointer(canvas, drawing, sceneNow, {
    hover: (box, x, y) => setHover(box && (box.leaf >= 0 || !box.group!.open) ? { leaf: box.leaf, group: box.group, x, y } : null),
    pick: (box) => {
      if (box.leaf >= 0) set({ node: box.leaf });
      else toggle(box.group!);
    },
  });
  const keys = (e: KeyboardEvent) => {
    const d = drawing.current!;
    const step = 60;
    if (e.key === "ArrowLeft") d.pan(step, 0);
    else if (e.key === "ArrowRight") d.pan(-step, 0);
    else if (e.key === "ArrowUp") d.pan(0, step);
    else if (e.key === "ArrowDown") d.pan(0, -step);
    else if (e.key === "+" || e.key === "=") d.zoom(1.3);
    else if (e.key === "-" || e.key === "−") d.zoom(1 / 1.3);
    else if (e.key === "0") d.fit();
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  const found = useMemo(() => {
    const q = query.trim().toLowerCase();
    if (!q) return null;
    const hits: number[] = [];
    for (let i = 0; i < source.total && hits.length < 200; i++) if (source.full(i).toLowerCase().includes(q) || source.detail(i).toLowerCase().includes(q)) hits.push(i);
    return hits;
  }, [query, source]);
  const broken = useMemo(() => {
    const list: number[] = [];
    for (let i = 0; i < source.total; i++) if (source.broken(i)) list.push(i);
    return list;
  }, [source]);
  const families = useMemo(() => {
    const present = new Set<string>();
    for (let i = 0; i < source.total; i++) present.add(source.family(i));
    return ORDER.filter((f) => present.has(f));
  }, [source]);
  return (
    <div class="graph-layout">
      <Card class="graph-card">
        <header>
          <div class="row tight">
            <button class="btn icon" aria-label="Zoom in" title="Zoom in (+)" onClick={() => drawing.current!.zoom(1.4)}><Icon name="plus" /></button>
            <button class="btn icon" aria-label="Zoom out" title="Zoom out (−)" onClick={() => drawing.current!.zoom(1 / 1.4)}><Icon name="minus" /></button>
            <button class="btn icon" aria-label="Fit" title="Fit (0)" onClick={() => drawing.current!.fit()}><Icon name="fit" /></button>
          </div>
          <div class="row">
            {broken.length > 0 && <button class="badge bad link-badge" onClick={() => focusLeaf(broken[0]!)}>{many(broken.length, "node")} with NaN: show the first</button>}
            <div class="segment" role="group" aria-label="Colour by">
              {COLOURS.map(([id, text]) => <button key={id} aria-pressed={colour === id} onClick={() => set({ colour: id === "family" ? null : id })}>{text}</button>)}
            </div>
          </div>
        </header>
        <div class="graph-frame" ref={frame}>
          <canvas ref={canvas} class="graph-canvas" width={1} height={1} tabIndex={0} role="application" aria-roledescription="graph"
            aria-label={`Graph of ${source.total} nodes. Arrow keys pan, plus and minus zoom, 0 fits. The outline next to it lists the same nodes.`} onKeyDown={keys} />
          {hover && <Hover hover={hover} source={source} recording={recording} tape={tape} />}
        </div>
        <Legend colour={colour} families={families} ranges={ranges} theme={theme} />
      </Card>
      <div class="stack">
        {shown.node !== null && shown.node < source.total && <Chosen id={shown.node} recording={recording} tape={tape} centre={() => focusLeaf(shown.node!)} />}
        <Card title="Outline" tools={<span class="small muted">{count(scene.boxes.length)} drawn</span>}>
          <div class="in stack">
            <input type="text" placeholder="Find an op, a name, a shape" aria-label="Find a node" value={query} onInput={(e) => setQuery(e.currentTarget.value)} />
            <div class="outline" tabIndex={0} role="region" aria-label="Outline of the graph">
              {found
                ? found.length === 0 ? <p class="muted small">Nothing has that.</p> : <ul>{found.map((i) => <LeafRow key={i} i={i} source={source} path="" go={focusLeaf} on={shown.node === i} />)}</ul>
                : <Outline group={tree.current.root} source={source} toggle={toggle} go={focusLeaf} on={shown.node} />}
            </div>
          </div>
        </Card>
      </div>
    </div>
  );
}

const LeafRow = ({ i, source, path, go, on }: { i: number; source: Source; path: string; go: (i: number) => void; on: boolean }) => (
  <li><button class={`leaf-row ${on ? "on" : ""}`} onClick={() => go(i)}><span class="num muted">{i}</span> {source.label(i, path)} <span class="muted small">{source.detail(i)}</span>{source.broken(i) && <span class="badge bad">NaN</span>}</button></li>
);

const SHOWN = 80;

function Outline({ group, source, toggle, go, on }: { group: Group; source: Source; toggle: (g: Group) => void; go: (i: number) => void; on: number | null }) {
  return (
    <ul>
      {group.groups.map((g) => (
        <li key={g.id}>
          <button class="group-row" aria-expanded={g.open} onClick={() => toggle(g)}><Icon name={g.open ? "down" : "right"} size={14} /> {g.label} <span class="muted small">{count(g.size)}</span>{g.broken && <span class="badge bad">NaN</span>}</button>
          {g.open && <Outline group={g} source={source} toggle={toggle} go={go} on={on} />}
        </li>
      ))}
      {group.leaves.slice(0, SHOWN).map((i) => <LeafRow key={i} i={i} source={source} path={group.path} go={go} on={on === i} />)}
      {group.leaves.length > SHOWN && <li class="muted small">and {count(group.leaves.length - SHOWN)} more: find them above</li>}
    </ul>
  );
}

function Legend({ colour, families, ranges, theme }: { colour: Colour; families: string[]; ranges: Record<"gradient" | "zero" | "seconds", readonly [number, number]>; theme: number }) {
  void theme;
  if (colour === "family") return <div class="legend">{families.map((f) => <span key={f}><span class="swatch" style={{ background: familyColour(f) }} />{FAMILIES[f]?.words ?? f}</span>)}</div>;
  const [lo, hi] = ranges[colour];
  if (!(hi >= lo)) return <div class="legend">Not known here.</div>;
  const text = (v: number) => (colour === "zero" ? percent(v) : colour === "seconds" ? seconds(10 ** v) : number(10 ** v, 2));
  return <div class="legend"><span>{text(lo)}</span><Ramp /><span>{text(hi)}</span><span class="muted">{colour === "gradient" ? "root mean square of the gradient" : colour === "zero" ? "share of zeros" : "time of the op"}</span></div>;
}

/** Asks for a node's details once the pointer has rested on it. */
function useNode(id: number, recording: boolean, tape: Tape | null, delay: number): { node: RecordedNode | null; failed: string | null } {
  const [settled, setSettled] = useState(delay === 0 ? id : -1);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(id), delay);
    return () => clearTimeout(timer);
  }, [id]);
  const asked = useAsk<RecordedNode>(recording && settled === id && id >= 0 ? `/api/recording/node?id=${id}` : null);
  if (!recording) {
    const node = tape?.nodes[id];
    const adjoint: Value | null = tape?.sweep?.visits.find((v) => v.node === id)?.adjoint ?? tape?.sweep?.gradient.find((g) => g.node === id)?.value ?? null;
    return { node: node ? { node, adjoint, visit: null } : null, failed: null };
  }
  return { node: asked.data && asked.data.node.id === id ? asked.data : null, failed: asked.failure?.message ?? null };
}

function Hover({ hover, source, recording, tape }: { hover: { leaf: number; group: Group | null; x: number; y: number }; source: Source; recording: boolean; tape: Tape | null }) {
  const { node } = useNode(hover.leaf, recording, tape, 90);
  const box = useRef<HTMLDivElement>(null);
  // Next to the pointer, on the side where there is room.
  useLayoutEffect(() => {
    const b = box.current!;
    const frame = b.parentElement!;
    const right = hover.x + 16 + b.offsetWidth <= frame.clientWidth;
    b.style.left = `${right ? hover.x + 16 : Math.max(4, hover.x - 16 - b.offsetWidth)}px`;
    b.style.top = `${Math.max(4, Math.min(hover.y + 14, frame.clientHeight - b.offsetHeight - 4))}px`;
  });
  return (
    <div class="hover" ref={box} aria-hidden="true">
      {hover.leaf >= 0
        ? <>
            <b>{source.full(hover.leaf)}</b> <span class="muted small">{source.detail(hover.leaf)}</span>
            {node && <div class="hover-stats">
              {node.node.value && <div><span class="small value">value</span><StatsTable v={node.node.value} /></div>}
              {node.adjoint && <div><span class="small cot">gradient</span><StatsTable v={node.adjoint} kind="cot" /></div>}
            </div>}
            {node?.node.line && <div class="small mono">{place(node.node.line)}</div>}
          </>
        : <><b>{hover.group!.label}</b> <span class="muted small">{many(hover.group!.size, "node")}; click to open</span></>}
    </div>
  );
}

function Chosen({ id, recording, tape, centre }: { id: number; recording: boolean; tape: Tape | null; centre: () => void }) {
  const { node, failed } = useNode(id, recording, tape, 0);
  return (
    <Card title={`Node ${id}`} tools={<div class="row tight">
      <button class="btn" onClick={centre}>Centre</button>
      <button class="btn" onClick={() => set({ view: "forward", forward: recording ? id + 1 : null, node: id })}>Show on the tape</button>
    </div>}>
      <div class="in stack">
        {failed && <p class="note bad">{failed}</p>}
        {!node && !failed && <p class="muted">Asking the engine …</p>}
        {node && <>
          <Detail node={node.node} tape={recording ? { nodes: [], from: 0 } : tape!} reached />
          {node.adjoint && <div class="stack"><span class="label cot">Gradient</span>{node.adjoint.stats ? <StatsTable v={node.adjoint} kind="cot" /> : <span class="cot mono">{node.adjoint.text}</span>}</div>}
        </>}
      </div>
    </Card>
  );
}

interface Actions { hover: (box: Box | null, x: number, y: number) => void; pick: (box: Box) => void }

/** Drag, wheel, pinch and click, on one canvas. */
function usePointer(canvas: preact.RefObject<HTMLCanvasElement | null>, drawing: preact.RefObject<Drawing | null>, scene: { current: Scene }, actions: Actions): void {
  const act = useRef(actions);
  act.current = actions;
  useEffect(() => {
    const c = canvas.current!;
    const down = new Map<number, { x: number; y: number }>();
    let moved = 0;
    // Whether the small drawing in the corner is held.
    let held = false;
    const local = (e: { clientX: number; clientY: number }) => {
      const r = c.getBoundingClientRect();
      return { x: e.clientX - r.left, y: e.clientY - r.top };
    };
    const onDown = (e: PointerEvent) => {
      const p = local(e);
      c.setPointerCapture(e.pointerId);
      held = down.size === 0 && drawing.current!.follow(p.x, p.y);
      if (held) return act.current.hover(null, 0, 0);
      down.set(e.pointerId, p);
      moved = 0;
    };
    const onMove = (e: PointerEvent) => {
      const d = drawing.current!;
      const p = local(e);
      if (held) return void d.follow(p.x, p.y, true);
      const before = down.get(e.pointerId);
      if (!before) {
        if (e.pointerType === "touch") return;
        const i = d.hit(p.x, p.y);
        if (i !== d.hovered) {
          d.hovered = i;
          d.ask();
          act.current.hover(scene.current.boxes[i] ?? null, p.x, p.y);
        }
        return;
      }
      if (down.size === 2) {
        const [a, b] = [...down.values()];
        const gap = Math.hypot(a!.x - b!.x, a!.y - b!.y);
        down.set(e.pointerId, p);
        const [q, r] = [...down.values()];
        d.zoom(Math.hypot(q!.x - r!.x, q!.y - r!.y) / Math.max(gap, 1), (q!.x + r!.x) / 2, (q!.y + r!.y) / 2);
        moved += 10;
        return;
      }
      moved += Math.abs(p.x - before.x) + Math.abs(p.y - before.y);
      d.pan(p.x - before.x, p.y - before.y);
      down.set(e.pointerId, p);
      if (moved > 6) act.current.hover(null, 0, 0);
    };
    const onUp = (e: PointerEvent) => {
      if (held) return void (held = false);
      const was = down.delete(e.pointerId);
      if (!was || moved > 6 || e.type === "pointercancel") return;
      const p = local(e);
      const box = scene.current.boxes[drawing.current!.hit(p.x, p.y)];
      if (box) act.current.pick(box);
    };
    const onWheel = (e: WheelEvent) => {
      e.preventDefault();
      const p = local(e);
      drawing.current!.zoom(Math.exp(-e.deltaY * (e.deltaMode === 1 ? 0.05 : 0.0016)), p.x, p.y);
    };
    const onLeave = () => {
      drawing.current!.hovered = -1;
      drawing.current!.ask();
      act.current.hover(null, 0, 0);
    };
    c.addEventListener("pointerdown", onDown);
    c.addEventListener("pointermove", onMove);
    c.addEventListener("pointerup", onUp);
    c.addEventListener("pointercancel", onUp);
    c.addEventListener("pointerleave", onLeave);
    c.addEventListener("wheel", onWheel, { passive: false });
  }, []);
}
