// What the page shows, all of it in the address, so that a link reproduces it.
import { useEffect, useState } from "preact/hooks";
import type { Nested, Values } from "./schema";

export const VIEWS = ["forward", "reverse", "tangents", "cost", "memory", "graph", "program", "training"] as const;
export type View = (typeof VIEWS)[number];

export interface State {
  view: View;
  /** What the views are about: an expression, or the file that was opened. */
  subject: "expression" | "file";
  expression: string;
  values: Values;
  /** Nodes executed in the forward view; null: all. */
  forward: number | null;
  /** Contributions made in the reverse view. */
  reverse: number;
  /** Nodes passed in the forward-mode view; null: all. */
  tangent: number | null;
  direction: Values | null;
  /** The selected node. */
  node: number | null;
  preset: string | null;
  guide: number | null;
  n: number;
  m: number;
  layers: number | null;
  segment: number | null;
  budget: number | null;
  stage: number | null;
  model: string | null;
  /** What colours the graph; null: families. */
  colour: string | null;
  /** Whether the memory view of a recording shows a chain of layers instead: `chain`. */
  memory: string | null;
  /** What of the layers the training view shows, and the chosen layer. */
  what: string | null;
  layer: string | null;
}

const empty: State = {
  view: "forward", subject: "expression", expression: "", values: {}, forward: null, reverse: 0,
  tangent: null, direction: null, node: null, preset: null, guide: null, n: 64, m: 1, layers: null,
  segment: null, budget: null, stage: null, model: null, colour: null, memory: null, what: null, layer: null,
};

const NUMBERS = ["forward", "reverse", "tangent", "node", "guide", "n", "m", "layers", "segment", "budget", "stage"] as const;
const TEXTS = ["preset", "model", "colour", "memory", "what", "layer"] as const;

export function read(hash: string, first: State): State {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const state: State = { ...first };
  if ((VIEWS as readonly string[]).includes(path ?? "")) state.view = path as View;
  const params = new URLSearchParams(query ?? "");
  const e = params.get("e");
  if (e !== null) {
    state.expression = e;
    state.values = {};
    state.subject = "expression";
  }
  if (params.get("of") === "file") state.subject = "file";
  for (const [name, text] of params) {
    if (name.startsWith("v.")) state.values = { ...state.values, [name.slice(2)]: parsed(text) };
    if (name.startsWith("d.")) state.direction = { ...state.direction, [name.slice(2)]: parsed(text) };
  }
  for (const name of NUMBERS) {
    const text = params.get(name);
    const n = Number(text);
    if (text !== null && text !== "" && Number.isFinite(n) && n >= 0) (state[name] as number) = Math.round(n);
  }
  for (const name of TEXTS) state[name] = params.get(name) ?? state[name];
  return state;
}

const parsed = (text: string): Nested | string => {
  try {
    return JSON.parse(text) as Nested;
  } catch {
    return text;
  }
};

export function write(state: State): string {
  const params = new URLSearchParams();
  if (state.subject === "file") params.set("of", "file");
  else params.set("e", state.expression);
  if (state.subject === "expression") {
    for (const [name, value] of Object.entries(state.values)) params.set(`v.${name}`, JSON.stringify(value));
  }
  for (const [name, value] of Object.entries(state.direction ?? {})) params.set(`d.${name}`, JSON.stringify(value));
  for (const name of NUMBERS) if (state[name] !== null && state[name] !== empty[name]) params.set(name, String(state[name]));
  for (const name of TEXTS) if (state[name] !== null) params.set(name, state[name]!);
  return `#/${state.view}?${params}`;
}

let current: State = empty;
let initial: State = empty;
const listeners = new Set<() => void>();

export const get = (): State => current;

/** Changes the state. A new view or subject is a new entry of the history; a moved slider is not. */
export function set(patch: Partial<State>): void {
  const before = current;
  current = { ...current, ...patch };
  const entry = patch.view !== undefined && patch.view !== before.view;
  schedule(entry);
  listeners.forEach((f) => f());
}

// Browsers limit how often the address may change, so it follows with a short delay.
let timer = 0;
function schedule(entry: boolean): void {
  if (entry) {
    clearTimeout(timer);
    history.pushState(null, "", write(current));
    return;
  }
  clearTimeout(timer);
  timer = window.setTimeout(() => history.replaceState(null, "", write(current)), 150);
}

export function begin(first: Partial<State>): void {
  initial = { ...empty, ...first };
  current = read(location.hash, initial);
  history.replaceState(null, "", write(current));
  const again = () => {
    clearTimeout(timer);
    current = read(location.hash, initial);
    listeners.forEach((f) => f());
  };
  window.addEventListener("popstate", again);
}

export function useShown(): State {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = () => redraw((n) => n + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return current;
}

/** What a newly chosen expression resets. */
export const fresh: Partial<State> = {
  subject: "expression", forward: null, reverse: 0, tangent: null, direction: null, node: null, preset: null,
  stage: null, model: null,
};
