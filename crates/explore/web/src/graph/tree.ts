// The hierarchy of a graph: modules, and, where a module has very many ops of its own, stretches of
// the tape. What is drawn is the part of it that is open.
import type { Source } from "./source";

export interface Group {
  id: number;
  label: string;
  /** Of the part that it is of, with the parts around it. */
  path: string;
  parent: Group | null;
  groups: Group[];
  leaves: number[];
  /** All leaves inside, at any depth. */
  size: number;
  /** The first of them on the tape. */
  first: number;
  open: boolean;
  depth: number;
  /** Has a NaN somewhere inside. */
  broken: boolean;
  /** Edges between its children: pairs of child numbers (groups first, then leaves). */
  edges: [number, number][];
  /** Children with an edge from outside of the group, and with one to the outside. */
  entered: Set<number>;
  left: Set<number>;
}

/** Ops of one group that are drawn at once at most: beyond it they are grouped by stretches. */
const LEAVES = 6000;
const STRETCH = 1000;
/** What the recorder calls the model itself: its own ops are around those of its modules. */
const MODEL = "(model)";

export interface Tree { root: Group; groups: Group[]; home: Group[] }

export function grow(source: Source): Tree {
  const groups: Group[] = [];
  const make = (label: string, parent: Group | null, path = parent?.path ?? ""): Group => {
    const g: Group = { id: groups.length, label, path, parent, groups: [], leaves: [], size: 0, first: Infinity, open: false, depth: parent ? parent.depth + 1 : 0, broken: false, edges: [], entered: new Set(), left: new Set() };
    groups.push(g);
    parent?.groups.push(g);
    return g;
  };
  const root = make(source.title, null);
  const byPart: (Group | undefined)[] = [];
  const partGroup = (k: number, guard = 0): Group => {
    if (byPart[k]) return byPart[k]!;
    const part = source.parts[k]!;
    const parent = part.parent === null || guard > 64 || part.parent === k ? root : partGroup(part.parent, guard + 1);
    const above = part.parent !== null ? source.parts[part.parent]?.path ?? "" : "";
    const own = above && part.path.startsWith(`${above}.`) ? part.path.slice(above.length + 1) : part.path;
    // The number of a layer alone says little.
    const label = /^\d+$/.test(own) && above ? `${above.slice(above.lastIndexOf(".") + 1)}.${own}` : own;
    return (byPart[k] = make(label, parent, part.path));
  };
  let after: Group | null = null as Group | null;
  const parts = settle(source);
  for (let i = 0; i < source.total; i++) {
    const part = parts[i]!;
    if (part >= 0) partGroup(part).leaves.push(i);
    else if (i > source.result) (after ??= make("after the result: backward, optimiser", root)).leaves.push(i);
    else root.leaves.push(i);
  }
  if (after && after.leaves.length <= 6) {
    root.leaves.push(...after.leaves);
    after.leaves = [];
  }
  // A box around a single node says nothing; innermost first, so that chains of them go too.
  for (const g of [...groups].reverse()) {
    if (g.parent && g.groups.every((c) => c.leaves.length === 0 && c.groups.length === 0) && g.leaves.length === 1) {
      g.parent.leaves.push(g.leaves.pop()!);
      g.groups = [];
    }
  }
  for (const g of groups) g.leaves.sort((a, b) => a - b);
  for (const g of [...groups]) {
    if (g.leaves.length <= LEAVES) continue;
    const all = g.leaves;
    g.leaves = [];
    for (let k = 0; k < all.length; k += STRETCH) {
      const part = all.slice(k, k + STRETCH);
      make(`ops ${part[0]}–${part[part.length - 1]}`, g).leaves = part;
    }
  }
  const home = new Array<Group>(source.total);
  for (const g of groups) for (const i of g.leaves) home[i] = g;
  for (let i = 0; i < source.total; i++) {
    const bad = source.broken(i);
    for (let g: Group | null = home[i]!; g; g = g.parent) {
      g.size++;
      g.first = Math.min(g.first, i);
      if (bad) g.broken = true;
    }
  }
  const prune = (g: Group) => {
    g.groups = g.groups.filter((c) => c.size > 0);
    g.groups.forEach(prune);
    g.groups.sort((a, b) => a.first - b.first);
  };
  prune(root);
  link(source, groups, home);
  root.open = true;
  openWithin(root, source.total <= 120 ? source.total : 36);
  return { root, groups: groups.filter((g) => g.size > 0), home };
}

/**
 * The part of each node, or -1. What no module computed, such as the sum of a residual connection,
 * belongs to the innermost part that was running before it and goes on after it.
 */
function settle(source: Source): Int32Array {
  const { parts, total } = source;
  const own = (i: number) => {
    const part = source.part(i);
    return part !== null && parts[part] && parts[part]!.path !== MODEL ? part : -1;
  };
  // From the outermost to the part itself.
  const path = (part: number) => {
    const way: number[] = [];
    for (let k: number | null = part; k !== null && parts[k] && way.length < 64; k = parts[k]!.parent) way.unshift(k);
    return way;
  };
  const shared = (a: number, b: number) => {
    const [one, other] = [path(a), path(b)];
    let k = 0;
    while (k < one.length && one[k] === other[k]) k++;
    return k > 0 ? one[k - 1]! : -1;
  };
  const settled = Int32Array.from({ length: total }, (_, i) => own(i));
  let before = -1;
  for (let i = 0; i <= source.result && i < total; i++) {
    if (settled[i]! >= 0) {
      before = settled[i]!;
      continue;
    }
    let next = i;
    while (next <= source.result && next < total && settled[next]! < 0) next++;
    const part = before >= 0 && next <= source.result && next < total ? shared(before, settled[next]!) : -1;
    settled.fill(part, i, next);
    i = next - 1;
  }
  return settled;
}

/** Every edge of the tape becomes an edge between two children of the group where its ends part. */
function link(source: Source, groups: Group[], home: Group[]): void {
  const number = new Map<Group, number>();
  for (const g of groups) g.groups.forEach((c, k) => number.set(c, k));
  const leaf = new Int32Array(source.total);
  for (const g of groups) g.leaves.forEach((i, k) => void (leaf[i] = g.groups.length + k));
  const seen = groups.map(() => new Set<number>());
  for (let to = 0; to < source.total; to++) {
    for (const from of source.operands(to)) {
      if (from < 0 || from >= source.total || from === to) continue;
      let a: Group = home[from]!;
      let b: Group = home[to]!;
      let ka = leaf[from]!;
      let kb = leaf[to]!;
      while (a !== b) {
        if (a.depth >= b.depth && a.parent) {
          a.left.add(ka);
          ka = number.get(a)!;
          a = a.parent;
        } else {
          b.entered.add(kb);
          kb = number.get(b)!;
          b = b.parent!;
        }
      }
      if (ka === kb) continue;
      const id = ka * 0x400000 + kb;
      if (seen[a.id]!.has(id)) continue;
      seen[a.id]!.add(id);
      a.edges.push([ka, kb]);
    }
  }
}

/** Opens groups from the top, widest parts first, while no more than `room` things are visible. */
function openWithin(root: Group, room: number): void {
  let visible = root.groups.length + root.leaves.length;
  const queue = [...root.groups];
  while (queue.length > 0) {
    const g = queue.shift()!;
    const more = g.groups.length + g.leaves.length - 1;
    if (visible + more > room) continue;
    g.open = true;
    visible += more;
    queue.push(...g.groups);
  }
}

/** Opens all groups around a leaf. */
export function reveal(tree: Tree, leaf: number): boolean {
  let changed = false;
  for (let g: Group | null = tree.home[leaf] ?? null; g; g = g.parent) {
    if (!g.open) changed = true;
    g.open = true;
  }
  return changed;
}
