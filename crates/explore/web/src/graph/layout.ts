// Layered layout of the open part of a tree: each open group is laid out by itself and is a box in
// its parent, so that boxes nest and opening one moves its surroundings only.
//
// Dagre places groups of up to SMALL children. It takes seconds for hundreds, so larger groups get
// the same kind of layout in linear time: ranks by longest path, order within a rank by the means
// of neighbours, positions by a few rounds of moving towards them. Very tall results are folded
// into columns. A group whose children keep their sizes keeps its layout.
//
// An edge between two groups leaves the one by a port at its foot and enters the other by a port at
// its head. The ports are nodes for Dagre, which leads edges to them around the boxes in between.
import { Graph, layout as dagre } from "@dagrejs/dagre";
import { extent } from "../format";
import type { Group, Tree } from "./tree";
import type { Source } from "./source";

export interface Box {
  x: number; y: number; w: number; h: number;
  /** A leaf of the tape, or -1. */
  leaf: number;
  group: Group | null;
}
export interface Scene {
  boxes: Box[];
  /** Pairs of numbers of boxes. */
  edges: Uint32Array;
  /** For some edges, by their place in `edges`: points to go through, around the boxes in between. */
  via: Map<number, Point[]>;
  width: number;
  height: number;
  /** The box that stands for a leaf: its own, or that of the closed group around it. */
  boxOf: (leaf: number) => number;
}

const LEAF = { w: 132, h: 36 };
const CLOSED = { w: 168, h: 50 };
const PAD = 16;
const HEAD = 30;
const FOOT = 26;
const SMALL = 60;
/** Room for an edge at the side of a group. */
const BESIDE = 6;

export interface Point { x: number; y: number }
interface Placed {
  w: number; h: number; at: Point[];
  /** By two children, `a,b`, or one and a port: the points of an edge that passes others. */
  via?: Map<string, Point[]>;
  /** Where edges from outside come in at the head, and where others go out at the foot. */
  ports?: { in: number; out: number };
}

const IN = "in";
const OUT = "out";

const known = new WeakMap<Group, { sizes: string; placed: Placed }>();

export function place(tree: Tree, source: Source): Scene {
  const plans = new Map<Group, Placed>();
  const plan = (g: Group): Placed => {
    const sizes = [
      ...g.groups.map((c) => {
        if (!c.open) return CLOSED;
        const inner = plan(c);
        return { w: Math.max(inner.w + 2 * PAD, CLOSED.w), h: inner.h + HEAD + FOOT };
      }),
      ...g.leaves.map(() => LEAF),
    ];
    const key = sizes.map((s) => `${s.w}×${s.h}`).join();
    const before = known.get(g);
    if (before?.sizes === key) {
      plans.set(g, before.placed);
      return before.placed;
    }
    const order = [...g.groups.map((c) => c.first), ...g.leaves];
    let placed = sizes.length <= SMALL && g.edges.length <= 4 * SMALL ? byDagre(sizes, g, order) : null;
    // A long chain would be a thin strip: folded, it fits a screen.
    if (!placed || (sizes.length > 10 && placed.h > 8 * placed.w && !g.groups.some((c) => c.open))) placed = quickly(sizes, g.edges, order);
    plans.set(g, placed);
    known.set(g, { sizes: key, placed });
    return placed;
  };
  const whole = plan(tree.root);
  const boxes: Box[] = [];
  const groupBox = new Map<Group, number>();
  const leafBox = new Int32Array(source.total).fill(-1);
  const homes: { in: Group; child: number; dx: number; dy: number }[] = [];
  const put = (g: Group, dx: number, dy: number) => {
    const placed = plans.get(g)!;
    g.groups.forEach((c, k) => {
      const at = placed.at[k]!;
      const inner = c.open ? plans.get(c)! : null;
      const w = inner ? Math.max(inner.w + 2 * PAD, CLOSED.w) : CLOSED.w;
      const h = inner ? inner.h + HEAD + FOOT : CLOSED.h;
      groupBox.set(c, boxes.length);
      homes[boxes.length] = { in: g, child: k, dx, dy };
      boxes.push({ x: dx + at.x, y: dy + at.y, w, h, leaf: -1, group: c });
      if (inner) put(c, dx + at.x + (w - inner.w) / 2, dy + at.y + HEAD);
    });
    g.leaves.forEach((leaf, k) => {
      const at = placed.at[g.groups.length + k]!;
      leafBox[leaf] = boxes.length;
      homes[boxes.length] = { in: g, child: g.groups.length + k, dx, dy };
      boxes.push({ x: dx + at.x, y: dy + at.y, ...LEAF, leaf, group: null });
    });
  };
  put(tree.root, 0, 0);
  const boxOf = (leaf: number): number => {
    if (leafBox[leaf]! >= 0) return leafBox[leaf]!;
    let closed: Group | null = null;
    for (let g: Group | null = tree.home[leaf] ?? null; g; g = g.parent) if (!g.open) closed = g;
    return closed ? groupBox.get(closed) ?? -1 : -1;
  };
  // The way of an edge: out of the groups around its start, past what is between, and into those
  // around its end.
  const route = (a: number, b: number): Point[] => {
    let [from, to] = [homes[a]!, homes[b]!];
    const start: Point[] = [];
    const end: Point[][] = [];
    const inside = (h: typeof from, name: string) => (plans.get(h.in)!.via?.get(name) ?? []).map((p) => ({ x: p.x + h.dx, y: p.y + h.dy }));
    while (from.in !== to.in) {
      if (from.in.depth >= to.in.depth) {
        const around = groupBox.get(from.in)!;
        const { ports } = plans.get(from.in)!;
        if (ports) start.push(...inside(from, `${from.child},${OUT}`), { x: from.dx + ports.out, y: boxes[around]!.y + boxes[around]!.h });
        from = homes[around]!;
      } else {
        const around = groupBox.get(to.in)!;
        const { ports } = plans.get(to.in)!;
        if (ports) end.push([{ x: to.dx + ports.in, y: boxes[around]!.y }, ...inside(to, `${IN},${to.child}`)]);
        to = homes[around]!;
      }
    }
    return [...start, ...inside(from, `${from.child},${to.child}`), ...end.reverse().flat()];
  };
  const seen = new Set<number>();
  const edges: number[] = [];
  const via = new Map<number, Point[]>();
  for (let to = 0; to < source.total; to++) {
    for (const from of source.operands(to)) {
      const a = boxOf(from);
      const b = boxOf(to);
      if (a < 0 || b < 0 || a === b) continue;
      const id = a * 0x400000 + b;
      if (seen.has(id)) continue;
      seen.add(id);
      const way = route(a, b);
      if (way.length > 0) via.set(edges.length, way);
      edges.push(a, b);
    }
  }
  return { boxes, edges: Uint32Array.from(edges), via, width: whole.w, height: whole.h, boxOf };
}

type Size = { w: number; h: number };

/**
 * Edges without those that would close a cycle. A group has the order of its first node, and may use
 * what is computed after that; groups that interleave use each other.
 */
function acyclic(edges: [number, number][], order: number[]): [number, number][] {
  const kept: [number, number][] = [];
  const below = new Map<number, number[]>();
  const add = ([a, b]: [number, number]) => {
    kept.push([a, b]);
    below.set(a, [...(below.get(a) ?? []), b]);
  };
  const reaches = (from: number, to: number, seen = new Set<number>()): boolean =>
    from === to || (!seen.has(from) && !!seen.add(from) && (below.get(from) ?? []).some((k) => reaches(k, to, seen)));
  edges.filter(([a, b]) => order[a]! < order[b]!).forEach(add);
  for (const edge of edges) if (order[edge[0]]! >= order[edge[1]]! && !reaches(edge[1], edge[0])) add(edge);
  return kept;
}

function byDagre(sizes: Size[], { edges, entered, left }: Group, order: number[]): Placed {
  if (sizes.length === 0) return { w: 0, h: 0, at: [] };
  const graph = new Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 22, edgesep: 12, ranksep: 34, marginx: 0, marginy: 0 });
  graph.setDefaultEdgeLabel(() => ({}));
  sizes.forEach((s, k) => graph.setNode(String(k), { width: s.w, height: s.h }));
  for (const [a, b] of acyclic(edges, order)) graph.setEdge(String(a), String(b));
  // What is joined to nothing stands below what ran before it.
  const joined = new Set([...edges.flat(), ...entered, ...left]);
  const sequence = sizes.map((_, k) => k).sort((a, b) => order[a]! - order[b]!);
  sequence.forEach((k, i) => {
    if (i > 0 && !joined.has(k)) graph.setEdge(String(sequence[i - 1]), String(k));
  });
  // Ports are above and below everything: edges without weight hold them there and pull at nothing.
  const port = (name: string, used: Set<number>, others: number[]) => {
    if (used.size === 0) return;
    graph.setNode(name, { width: 1, height: 1 });
    const join = (k: number, label: { weight?: number }) => (name === IN ? graph.setEdge(IN, String(k), label) : graph.setEdge(String(k), OUT, label));
    used.forEach((k) => join(k, {}));
    others.forEach((k) => { if (!used.has(k)) join(k, { weight: 0 }); });
  };
  const first = (graph.sources() as string[]).map(Number);
  const last = (graph.sinks() as string[]).map(Number);
  port(IN, entered, first);
  port(OUT, left, last);
  dagre(graph);
  const top = Math.min(...sizes.map((s, k) => (graph.node(String(k)) as Point).y - s.h / 2));
  const at = sizes.map((s, k) => {
    const n = graph.node(String(k)) as Point;
    return { x: n.x - s.w / 2, y: n.y - s.h / 2 - top };
  });
  const size = { width: (graph.graph() as { width: number }).width, height: Math.max(...at.map((p, k) => p.y + sizes[k]!.h)) };
  // The height of a layer by its middle. Edges bend between layers: past the boxes of one they are
  // straight.
  const layers = new Map<number, number>();
  const layer = (y: number) => Math.round(y * 16);
  sizes.forEach((s, k) => {
    const y = layer(at[k]!.y + s.h / 2);
    layers.set(y, Math.max(layers.get(y) ?? 0, s.h));
  });
  const past = (x: number, y: number): Point[] => {
    const half = (layers.get(layer(y)) ?? 0) / 2;
    return half > 0 ? [{ x, y: y - half }, { x, y: y + half }] : [{ x, y }];
  };
  const via = new Map<string, Point[]>();
  for (const { v, w } of graph.edges()) {
    const { points } = graph.edge(v, w) as { points: Point[] };
    // The first and the last are at the boxes; with one more, the edge passes nothing.
    const way = points.length > 3 ? points.slice(1, -1).flatMap((p) => past(p.x, p.y - top)) : [];
    // A box that is lower than its layer: straight to the edge of the layer first.
    const [from, to] = [at[Number(v)], at[Number(w)]];
    if (from) {
      const s = sizes[Number(v)]!;
      const below = past(from.x + s.w / 2, from.y + s.h / 2)[1]!;
      if (below.y > from.y + s.h + 1) way.unshift(below);
    }
    if (to) {
      const s = sizes[Number(w)]!;
      const above = past(to.x + s.w / 2, to.y + s.h / 2)[0]!;
      if (above.y < to.y - 1) way.push(above);
    }
    if (way.length > 0) via.set(`${v},${w}`, way);
  }
  const middle = (name: string) => (graph.hasNode(name) ? (graph.node(name) as Point).x : size.width / 2);
  const ports = { in: middle(IN), out: middle(OUT) };
  // Dagre's width is that of the boxes: edges may pass beside them all.
  const beside = [...via.values()].flat().map((p) => p.x);
  const low = Math.min(0, ...beside.map((x) => x - BESIDE));
  const wide = Math.max(size.width, ...beside.map((x) => x + BESIDE)) - low;
  for (const p of [...at, ...[...via.values()].flat()]) p.x -= low;
  ports.in -= low;
  ports.out -= low;
  size.width = wide;
  // Dagre may put the first input last; mirrored, the drawing is as good and reads in order.
  const fed = new Set(edges.map(([, b]) => b));
  const inputs = sizes.map((_, k) => k).filter((k) => !fed.has(k)).sort((a, b) => order[a]! - order[b]!);
  if (inputs.length > 1 && at[inputs[0]!]!.x > at[inputs[inputs.length - 1]!]!.x) {
    at.forEach((p, k) => void (p.x = size.width - p.x - sizes[k]!.w));
    for (const points of via.values()) points.forEach((p) => void (p.x = size.width - p.x));
    ports.in = size.width - ports.in;
    ports.out = size.width - ports.out;
  }
  return { w: size.width, h: size.height, at, via, ports };
}

function quickly(sizes: Size[], edges: [number, number][], order: number[]): Placed {
  const n = sizes.length;
  const above: number[][] = Array.from({ length: n }, () => []);
  const below: number[][] = Array.from({ length: n }, () => []);
  for (const [a, b] of edges) {
    // An edge against the order of the tape (between groups that interleave) does not rank.
    if (order[a]! >= order[b]!) continue;
    below[a]!.push(b);
    above[b]!.push(a);
  }
  const byTape = Array.from({ length: n }, (_, k) => k).sort((a, b) => order[a]! - order[b]!);
  const rank = new Int32Array(n);
  let last = -1;
  for (const k of byTape) {
    for (const a of above[k]!) rank[k] = Math.max(rank[k]!, rank[a]! + 1);
    if (above[k]!.length === 0 && below[k]!.length === 0) rank[k] = last + 1;
    last = rank[k]!;
  }
  // Parameters and inputs stand next to what uses them first.
  for (const k of byTape) {
    if (above[k]!.length === 0 && below[k]!.length > 0) rank[k] = Math.max(0, extent(below[k]!.map((b) => rank[b]!))[0] - 1);
  }
  let ranks: number[][] = [];
  for (const k of byTape) (ranks[rank[k]!] ??= []).push(k);
  for (let r = 0; r < ranks.length; r++) ranks[r] ??= [];
  // A rank that is far wider than the whole is tall goes on in further rows.
  const area = sizes.reduce((sum, s) => sum + (s.w + 22) * (s.h + 40), 0);
  const widest = Math.max(1600, 2 * Math.sqrt(area));
  ranks = ranks.flatMap((row) => {
    const rows = Math.ceil(row.reduce((sum, k) => sum + sizes[k]!.w + 22, 0) / widest);
    const each = Math.ceil(row.length / Math.max(rows, 1));
    return rows <= 1 ? [row] : Array.from({ length: rows }, (_, i) => row.slice(i * each, (i + 1) * each));
  }).filter((row) => row.length > 0);
  const x = new Float64Array(n);
  const spread = (row: number[]) => {
    let at = 0;
    for (const k of row) {
      x[k] = at + sizes[k]!.w / 2;
      at += sizes[k]!.w + 22;
    }
    for (const k of row) x[k]! -= (at - 22) / 2;
  };
  ranks.forEach(spread);
  const mean = (list: number[]) => list.reduce((s, k) => s + x[k]!, 0) / list.length;
  for (let round = 0; round < 4; round++) {
    const down = round % 2 === 0;
    const side = down ? above : below;
    for (const row of down ? ranks : [...ranks].reverse()) {
      const want = new Map(row.map((k) => [k, side[k]!.length > 0 ? mean(side[k]!) : x[k]!]));
      row.sort((a, b) => want.get(a)! - want.get(b)!);
      // As near to what each wants as its neighbours to the left allow, then shifted by the mean
      // error.
      let edge = -Infinity;
      let error = 0;
      for (const k of row) {
        const at = Math.max(want.get(k)!, edge + sizes[k]!.w / 2);
        x[k] = at;
        edge = at + sizes[k]!.w / 2 + 22;
        error += at - want.get(k)!;
      }
      const shift = row.length > 0 ? error / row.length : 0;
      for (const k of row) x[k]! -= shift;
    }
  }
  const heights = ranks.map((row) => Math.max(0, extent(row.map((k) => sizes[k]!.h))[1]) + 40);
  const total = heights.reduce((a, b) => a + b, 0);
  const rowWidths = ranks.map((row) => extent(row.map((k) => x[k]! + sizes[k]!.w / 2))[1] - extent(row.map((k) => x[k]! - sizes[k]!.w / 2))[0]);
  const typical = [...rowWidths].sort((a, b) => a - b)[Math.floor(rowWidths.length * 0.9)] ?? LEAF.w;
  // Columns such that the whole is about one and a half times as wide as tall.
  const columns = Math.max(1, Math.round(Math.sqrt((1.5 * total) / (typical + 90))));
  const target = total / columns;
  const at = sizes.map(() => ({ x: 0, y: 0 }));
  let left = 0;
  let r = 0;
  let deepest = 0;
  while (r < ranks.length) {
    let y = 0;
    const begin = r;
    let low = Infinity;
    let high = -Infinity;
    while (r < ranks.length && (y === 0 || y + heights[r]! <= target + 1)) {
      for (const k of ranks[r]!) {
        low = Math.min(low, x[k]! - sizes[k]!.w / 2);
        high = Math.max(high, x[k]! + sizes[k]!.w / 2);
        at[k]!.y = y;
      }
      y += heights[r]!;
      r++;
    }
    for (let q = begin; q < r; q++) for (const k of ranks[q]!) at[k]!.x = left + x[k]! - sizes[k]!.w / 2 - low;
    left += Math.max(high - low, 0) + 90;
    deepest = Math.max(deepest, y - 40);
  }
  return { w: Math.max(left - 90, 1), h: Math.max(deepest, 1), at };
}
