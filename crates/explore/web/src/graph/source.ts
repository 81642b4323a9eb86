// A graph to draw, whatever it comes from: the columns of a recording, or a small tape.
import { float } from "../format";
import type { Part, Recording, Tape } from "../schema";

export interface Source {
  title: string;
  total: number;
  /** The node that is differentiated; what runs after it is a group of its own. */
  result: number;
  parts: Part[];
  part: (i: number) => number | null;
  operands: (i: number) => number[];
  /** As it is drawn within a part of this path. */
  label: (i: number, path: string) => string;
  /** With its module, to be searched for. */
  full: (i: number) => string;
  detail: (i: number) => string;
  family: (i: number) => string;
  /** Root mean square of the gradient, share of zeros, seconds; NaN where unknown. */
  gradient: (i: number) => number;
  zero: (i: number) => number;
  seconds: (i: number) => number;
  /** Whether the value or its gradient has a NaN. */
  broken: (i: number) => boolean;
}

export function fromRecording(r: Recording): Source {
  const n = r.nodes;
  const full = (i: number) => n.name[i] ?? (n.op[i] === null || n.op[i] === undefined ? n.kind[i]! : r.ops[n.op[i]!]!);
  return {
    title: r.title, total: r.total, result: r.result ?? r.total - 1, parts: r.parts,
    part: (i) => n.part[i] ?? null,
    operands: (i) => n.operands[i] ?? [],
    label: (i, path) => {
      const name = full(i);
      return path && name.startsWith(`${path}.`) ? name.slice(path.length + 1) : name;
    },
    full,
    detail: (i) => r.specs[n.spec[i]!] ?? "",
    family: (i) => (n.kind[i] === "op" && n.op[i] !== null ? r.families[n.op[i]!]! : n.kind[i] === "constant" ? "constant" : "input"),
    gradient: (i) => float(n.gradient[i]),
    zero: (i) => n.zero[i] ?? NaN,
    seconds: (i) => n.seconds[i] ?? NaN,
    broken: (i) => (n.nan[i] ?? 0) > 0 || (n.gradient_nan[i] ?? 0) > 0,
  };
}

export function fromTape(t: Tape): Source {
  const gradient = new Map<number, number>();
  for (const v of t.sweep?.visits ?? []) {
    const a = v.adjoint;
    if (a && typeof a.data === "number") gradient.set(v.node, Math.abs(a.data));
  }
  for (const g of t.sweep?.gradient ?? []) if (typeof g.value.data === "number") gradient.set(g.node, Math.abs(g.value.data));
  const at = (i: number) => t.nodes[i]!;
  const text = (i: number) => (at(i).kind === "op" ? `${at(i).name} = ${at(i).formula}` : at(i).name);
  return {
    title: t.title, total: t.nodes.length, result: t.result, parts: t.parts,
    part: (i) => at(i).part,
    operands: (i) => at(i).operands,
    label: text,
    full: text,
    detail: (i) => at(i).value?.spec ?? "",
    family: (i) => (at(i).kind === "op" ? at(i).family : at(i).kind === "constant" ? "constant" : "input"),
    gradient: (i) => gradient.get(i) ?? NaN,
    zero: (i) => at(i).value?.stats?.zero ?? NaN,
    seconds: (i) => at(i).seconds ?? NaN,
    broken: (i) => (at(i).value?.stats?.nan ?? 0) > 0,
  };
}
