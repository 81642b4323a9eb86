// A small tape as a drawing: values on the nodes, slopes on the edges. Laid out by Dagre from left
// to right; on a narrow screen from top to bottom.
import { Graph, layout } from "@dagrejs/dagre";
import { useMemo } from "preact/hooks";
import { isScalar, number } from "../format";
import type { Num, TapeNode, Value } from "../schema";
import { useWidth } from "../ui/plot";

export const DRAWN = 36;

export interface Mark { from: number; to: number; operand: number; text?: string }
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

const WIDE = 112;
const TALL = 60;

export function Diagram({ nodes, under, second, state, edge, label, onPick }: Props) {
  const [place, width] = useWidth<HTMLDivElement>();
  const narrow = width > 0 && width < 520;
  const shape = nodes.map((n) => `${n.id}:${n.operands.join(",")}`).join(";");
  const plan = useMemo(() => {
    const graph = new Graph({ multigraph: true });
    graph.setGraph({ rankdir: narrow ? "TB" : "LR", nodesep: narrow ? 20 : 26, ranksep: narrow ? 44 : 74, marginx: 8, marginy: 8 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const n of nodes) graph.setNode(String(n.id), { width: WIDE, height: TALL });
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
        style={{ maxWidth: plan.width > 900 ? "none" : "100%", height: "auto" }}>
        {plan.edges.map((e) => {
          const { kind, text } = edge(e.from, e.to, e.k);
          const middle = e.points[Math.floor(e.points.length / 2)]!;
          return (
            <g key={`${e.from}-${e.to}-${e.k}`} class={`edge ${kind}`}>
              <path d={path(e.points)} />
              {text && <><rect class="edge-back" x={middle.x - text.length * 3.7 - 5} y={middle.y - 10} width={text.length * 7.4 + 10} height={20} rx={6} /><text x={middle.x} y={middle.y + 4}>{text}</text></>}
            </g>
          );
        })}
        {nodes.map((n) => {
          const p = plan.at.get(n.id)!;
          const a = under(n);
          const b = second?.(n);
          return (
            <g key={n.id} class={`knot ${state(n)} ${n.uses > 1 ? "reused" : ""}`} transform={`translate(${p.x - WIDE / 2},${p.y - TALL / 2})`} onClick={() => onPick?.(n.id)}>
              <rect width={WIDE} height={TALL} rx={9} />
              <text class="knot-name" x={WIDE / 2} y={18}><tspan class="sym">{clip(n.name, 8)}</tspan>{n.kind === "op" && <tspan class="knot-op"> = {clip(n.formula, 13 - Math.min(n.name.length, 8))}</tspan>}</text>
              {a && <text class={`knot-under ${a.kind}`} x={WIDE / 2} y={b === undefined ? 42 : 35}>{a.text}</text>}
              {b && <text class={`knot-under ${b.kind}`} x={WIDE / 2} y={52}>{b.text}</text>}
            </g>
          );
        })}
      </svg>
    </div>
  );
}

const clip = (text: string, n: number) => (text.length > n ? `${text.slice(0, Math.max(n - 1, 1))}…` : text);
