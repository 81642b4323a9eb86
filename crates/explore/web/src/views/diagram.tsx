// A small tape as a drawing: values on the nodes, slopes on the edges. Laid out by Dagre from left
// to right; on a narrow screen from top to bottom.
import { Graph, layout } from "@dagrejs/dagre";
import { useEffect, useMemo } from "preact/hooks";
import { isScalar, number } from "../format";
import type { Num, TapeNode, Value } from "../schema";
import { useWidth } from "../ui/plot";

export const DRAWN = 36;

interface Props {
  nodes: TapeNode[];
  /** What stands under a node's name, and its class. */
  under: (node: TapeNode) => { text: string; kind: string } | null;
  second?: (node: TapeNode) => { text: string; kind: string } | null;
  state: (node: TapeNode) => string;
  edge: (from: number, to: number, operand: number) => { kind: string; text?: string };
  label: string;
  onPick?: (id: number) => void;
}

export const brief = (v: Value | null | undefined): string =>
  !v ? "" : isScalar(v) ? number(v.data as Num, 5) : v.shape ? `[${v.shape.join("×")}]` : v.text;

const TALL = 60;

/** As wide as its text, within reason. */
const text = (n: TapeNode) => (n.kind === "op" ? `${clip(n.name, 10)} = ${clip(n.formula, 16)}` : clip(n.name, 12));
const wide = (n: TapeNode) => Math.max(104, text(n).length * 7.9 + 18);

export function Diagram({ nodes, under, second, state, edge, label, onPick }: Props) {
  const [place, width] = useWidth<HTMLDivElement>();
  const narrow = width > 0 && width < 520;
  const shape = nodes.map((n) => `${n.id}:${n.operands.join(",")}:${text(n).length}`).join(";");
  const plan = useMemo(() => {
    const graph = new Graph({ multigraph: true });
    graph.setGraph({ rankdir: narrow ? "TB" : "LR", nodesep: narrow ? 20 : 26, ranksep: narrow ? 44 : 74, marginx: 8, marginy: 8 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const n of nodes) graph.setNode(String(n.id), { width: wide(n), height: TALL });
    for (const n of nodes) n.operands.forEach((from, k) => graph.setEdge(String(from), String(n.id), { width: 30, height: 12 }, String(k)));
    layout(graph);
    const at = new Map(nodes.map((n) => [n.id, graph.node(String(n.id)) as { x: number; y: number }]));
    const edges = nodes.flatMap((n) =>
      n.operands.map((from, k) => ({
        from, to: n.id, k,
        points: (graph.edge(String(from), String(n.id), String(k)) as { points: { x: number; y: number }[] }).points,
      })),
    );
    const size = graph.graph() as { width: number; height: number };
    // Dagre may put the first input last; mirrored, the drawing is as good and reads in order.
    const inputs = nodes.filter((n) => n.operands.length === 0);
    const across = narrow ? "x" : "y";
    if (inputs.length > 1 && at.get(inputs[0]!.id)![across] > at.get(inputs[inputs.length - 1]!.id)![across]) {
      const flip = (p: { x: number; y: number }) => void (p[across] = (narrow ? size.width : size.height) - p[across]);
      at.forEach(flip);
      edges.forEach((e) => e.points.forEach(flip));
    }
    return { at, edges, width: size.width, height: size.height };
  }, [shape, narrow]);
  // A drawing that is wider than its place follows what happens.
  useEffect(() => {
    const frame = place.current;
    const knot = frame?.querySelector(".knot.current");
    if (!frame || !knot || frame.scrollWidth <= frame.clientWidth) return;
    const at = knot.getBoundingClientRect();
    const box = frame.getBoundingClientRect();
    if (at.left < box.left + 20 || at.right > box.right - 20) frame.scrollLeft += at.left + at.width / 2 - box.left - box.width / 2;
  });
  const path = (points: { x: number; y: number }[]) => {
    const [first, ...rest] = points;
    let d = `M${first!.x},${first!.y}`;
    for (let i = 0; i < rest.length - 1; i++) {
      const p = rest[i]!;
      const q = rest[i + 1]!;
      d += `Q${p.x},${p.y} ${(p.x + q.x) / 2},${(p.y + q.y) / 2}`;
    }
    const last = rest[rest.length - 1]!;
    return `${d}L${last.x},${last.y}`;
  };
  return (
    <div ref={place} class="diagram scroll" tabIndex={0} role="region" aria-label={label}>
      <svg viewBox={`0 0 ${plan.width} ${plan.height}`} width={plan.width} height={plan.height} role="img" aria-label={label}
        style={{ maxWidth: plan.width > 1.6 * width ? "none" : "100%", height: "auto" }}>
        {plan.edges.map((e) => {
          const { kind, text: label } = edge(e.from, e.to, e.k);
          const middle = e.points[Math.floor(e.points.length / 2)]!;
          return (
            <g key={`${e.from}-${e.to}-${e.k}`} class={`edge ${kind}`}>
              <path d={path(e.points)} />
              {label && <><rect class="edge-back" x={middle.x - label.length * 3.7 - 5} y={middle.y - 10} width={label.length * 7.4 + 10} height={20} rx={6} /><text x={middle.x} y={middle.y + 4}>{label}</text></>}
            </g>
          );
        })}
        {nodes.map((n) => {
          const p = plan.at.get(n.id)!;
          const a = under(n);
          const b = second?.(n);
          return (
            <g key={n.id} class={`knot ${state(n)} ${n.uses > 1 ? "reused" : ""}`} transform={`translate(${p.x - wide(n) / 2},${p.y - TALL / 2})`} onClick={() => onPick?.(n.id)}>
              <rect width={wide(n)} height={TALL} rx={9} />
              <text class="knot-name" x={wide(n) / 2} y={18}><tspan class="sym">{clip(n.name, n.kind === "op" ? 10 : 12)}</tspan>{n.kind === "op" && <tspan class="knot-op"> = {clip(n.formula, 16)}</tspan>}</text>
              {a && <text class={`knot-under ${a.kind}`} x={wide(n) / 2} y={b === undefined ? 42 : 35}>{a.text}</text>}
              {b && <text class={`knot-under ${b.kind}`} x={wide(n) / 2} y={52}>{b.text}</text>}
            </g>
          );
        })}
      </svg>
    </div>
  );
}

function clip(long: string, n: number): string {
  return long.length > n ? `${long.slice(0, Math.max(n - 1, 1))}…` : long;
}
