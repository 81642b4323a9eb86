import type { Nested, Num, Value } from "./schema";

/** As a number; NaN for what is none. */
export const float = (x: Num | null | undefined): number =>
  typeof x === "number" ? x : x === "inf" ? Infinity : x === "-inf" ? -Infinity : NaN;

/** Six significant digits, a real minus sign, no trailing zeros. */
export function number(x: Num | null | undefined, digits = 6): string {
  if (x === null || x === undefined) return "–";
  const v = float(x);
  if (Number.isNaN(v)) return "NaN";
  if (!Number.isFinite(v)) return v > 0 ? "∞" : "−∞";
  if (v === 0) return "0";
  const size = Math.abs(v);
  let text: string;
  if (size >= 1e7 || size < 1e-4) {
    const [mantissa, exponent] = v.toExponential(Math.max(0, digits - 3)).split("e");
    text = `${trimmed(mantissa!)}e${exponent!.replace("+", "")}`;
  } else {
    text = trimmed(v.toPrecision(digits).includes("e") ? v.toFixed(0) : v.toPrecision(digits));
  }
  return text.replaceAll("-", "−");
}

const trimmed = (text: string) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

export function bytes(n: number | null | undefined): string {
  if (n === null || n === undefined) return "–";
  if (n < 1024) return `${n} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let size = n / 1024;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit++;
  }
  return `${size >= 100 ? size.toFixed(0) : size >= 10 ? size.toFixed(1) : size.toFixed(2)} ${units[unit]}`;
}

export function seconds(s: number | null | undefined): string {
  if (s === null || s === undefined) return "–";
  if (s === 0) return "0 s";
  if (s < 1e-6) return `${(s * 1e9).toPrecision(3)} ns`;
  if (s < 1e-3) return `${(s * 1e6).toPrecision(3)} µs`;
  if (s < 1) return `${(s * 1e3).toPrecision(3)} ms`;
  return `${s.toPrecision(3)} s`;
}

export const count = (n: number): string => n.toLocaleString("en-US");
export const percent = (share: number): string =>
  share === 0 ? "0%" : share < 0.001 ? "<0.1%" : `${(share * 100).toPrecision(share < 0.1 ? 2 : 3)}%`;
export const many = (n: number, one: string, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;

/** The elements of nested lists as a matrix of at most two axes: leading axes are stacked. */
export function rows(data: Nested): Num[][] {
  if (!Array.isArray(data)) return [[data]];
  if (data.length === 0) return [[]];
  if (!Array.isArray(data[0])) return [data as Num[]];
  if (!Array.isArray((data[0] as Nested[])[0])) return data as Num[][];
  return (data as Nested[]).flatMap((part) => rows(part));
}

export const isScalar = (v: Value | null | undefined): boolean =>
  !!v && v.data !== null && v.data !== undefined && !Array.isArray(v.data);

/** A place in a program, without detours: `a/../b.rs:1:2` is `b.rs:1:2`. */
export function place(line: string): string {
  let short = line;
  for (let before = ""; before !== short;) {
    before = short;
    short = short.replace(/(^|\/)[^/.][^/]*\/\.\.\//, "$1");
  }
  return short;
}

/** "2 × 3", or "scalar". */
export const shape = (s: number[] | undefined): string => (!s || s.length === 0 ? "scalar" : s.join(" × "));

/** The least and the greatest number of a list of any length (spread into arguments, a long one throws). */
export function extent(all: Iterable<number>): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (const x of all) {
    if (x < low) low = x;
    if (x > high) high = x;
  }
  return [low, high];
}
