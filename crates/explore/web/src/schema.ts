// The answers of the server, as crates/explore/SCHEMA.md describes them.

export type Num = number | "NaN" | "inf" | "-inf";
export type Nested = Num | Nested[];

export interface Histogram { low: Num; high: Num; counts: number[] }
export interface Stats {
  count: number; min: Num; max: Num; mean: Num; std: Num;
  nan: number; inf: number; zero: number; histogram: Histogram | null;
}
export interface Value {
  spec?: string; shape?: number[]; text: string; data: Nested | null; stats?: Stats | null;
}

export type Values = Record<string, Nested | string>;
export interface Subject { expression: string; values: Values }

export interface Example extends Subject { id: string; title: string; about: string; memory?: MemoryBody }
export interface Preset {
  id: string; title: string; view: string; state: Partial<Subject> & Partial<MemoryBody> & { points?: [number, number][] };
  question: string; choices: string[];
}
export interface Start {
  version: string; written: boolean;
  opened: Partial<Subject> & { kind: "expression" | "recording" | "run"; title: string; nodes?: number; bytes?: number; program?: boolean };
  examples: Example[];
  presets: Preset[];
  functions: string[];
  defaults: { cost: { points: [number, number][] }; memory: MemoryBody; models: string[] };
  limits: Record<string, number>;
}
export interface Revealed {
  id: string; answer: number; explanation: string; numbers: { name: string; value: Num }[];
}

export interface Variable {
  id: number; name: string; value: Value; scalar: boolean; low: number; high: number; step: number;
}
export interface Part { path: string; parent: number | null }
export interface TapeNode {
  id: number; kind: "input" | "constant" | "parameter" | "op"; name: string; op: string | null;
  family: string; formula: string; operands: number[]; value: Value | null;
  saved: { what: string; node: number | null; bytes: number }[];
  line: string | null; span: [number, number] | null; part: number | null; uses: number; tracked: boolean;
  primitives: { op: string; spec: string; saved: string[]; bytes: number }[];
  seconds: number | null;
}
export interface Local {
  kind: "whole" | "diagonal" | "large" | "zero" | "unknown";
  value?: Value | null; shape?: number[]; formula?: string | null;
}
export interface Contribution {
  to: number; operand: number; upstream: Value | null; local: Local; product: Value | null;
  before: Value | null; after: Value | null;
}
export interface Visit { node: number; adjoint: Value | null; contributions: Contribution[]; left_out?: number }
export interface Sweep {
  seed: { node: number; cotangent: Value } | null;
  from: number; total: number; visits: Visit[];
  gradient: { node: number; value: Value }[];
}
export interface Forward {
  direction: { node: number; tangent: Value }[];
  tangents: { node: number; tangent: Value; terms: { from: number; local: Local; product: Value }[] }[];
  result: Value; check: { forward: Num; reverse: Num }; passes: number;
}
export interface Tape {
  expression: string; title: string; source: string;
  variables: Variable[]; defaulted: string[]; parts: Part[];
  from: number; total: number; nodes: TapeNode[]; result: number;
  sweep: Sweep | null; forward: Forward | null;
}
export interface OneOp {
  node: number; name: string; op: string; formula: string; derivative: string | null; result: Value;
  operands: {
    node: number; name: string; value: Value; tangent: Value;
    jacobian: { rows: number; columns: number; data: Nested[] | null }; jv: Value; jtv: Value;
  }[];
  jvp: Value; cotangent: Value;
  inner: { jvp_with_cotangent: Num; tangent_with_vjp: Num };
}

export interface CostSide { pass: number; passes: number; seconds: number }
export interface CostPoint {
  n: number; m: number; function: number; runs: number; forward: CostSide; reverse: CostSide; ratio: number;
  counted: { function: number; forward: number; reverse: number };
}
export interface Cost { hidden: number; points: CostPoint[] }

export interface MemoryBody {
  layers: number; width: number; batch: number; segment: number | null; budget: number | null;
}
export interface MemoryEvent {
  op: string; phase: string; bytes: number; kept: number | null; layer?: number | null; recomputed: boolean;
  node?: number | null; seconds?: number;
}
export interface MemoryRun {
  name: string; peak: number; kept: number | null; recomputed: number; seconds: number | null;
  segment?: number; budget?: number; timeline: MemoryEvent[]; stride?: number;
}
export interface Memory {
  layers?: number; width?: number; batch?: number; runs: MemoryRun[];
  segments?: { segment: number; peak: number; kept: number; recomputed: number }[];
}

export interface Equation {
  index: number; text: string; op: string; family: string; outputs: string[]; inputs: string[];
  spec: string; line: string | null; state: "new" | "rewired" | "kept"; region: number | null;
}
export interface Stage {
  name: string; before: number; after: number; seconds: number; removed: number; added: number;
  rewired: number; moved: number; fused: number; into: number; duplicate: number; unused: number; replaced: number;
  equations: Equation[]; gone: { text: string; how: "fused" | "duplicate" | "unused" | "replaced"; region: number | null }[];
  unchanged?: boolean; left_out?: number;
}
export interface Program {
  title: string; inputs: { name: string; spec: string }[]; stages: Stage[];
  regions: { id: number; equation: number; ops: string[]; code: string; native: string | null; native_of: number }[];
  kernels: { name: string; count: number }[];
  arena: {
    bytes: number; peak: number; moments: number;
    intervals: {
      name: string; spec: string; op: string; line: string | null; offset: number; bytes: number;
      first: number; last: number;
    }[];
  } | null;
}

export interface Recording {
  title: string; bytes: number; program: boolean; total: number; result: number | null;
  seconds: number | null; peak: number | null;
  ops: string[]; families: string[]; specs: string[]; lines: string[]; parts: Part[];
  nodes: {
    op: (number | null)[]; kind: string[]; name: (string | null)[]; spec: number[]; line: (number | null)[];
    part: (number | null)[]; operands: number[][]; zero: (number | null)[]; nan: (number | null)[];
    norm: (Num | null)[]; gradient: (Num | null)[]; gradient_nan: (number | null)[];
    seconds: (number | null)[]; visit: (number | null)[];
  };
  notes: string[];
}
export interface RecordedNode { node: TapeNode; adjoint: Value | null; visit: number | null }

export type Points = [number, Num][];
export interface Run {
  title: string; config: Record<string, unknown> | null; steps: number;
  series: { name: string; points: Points }[];
  layers: { name: string; parameters: number; gradient: Points; weight: Points; update: Points }[];
  flags: { layer: string | null; kind: string; step: number; text: string }[];
  notes: string[];
}
