// A scale of colours for small to large: blue, a neutral middle, orange. Both ends matter, as a
// gradient can be too small as well as too large.
const STOPS = {
  light: [[63, 122, 184], [226, 225, 218], [203, 98, 29]],
  dark: [[62, 116, 176], [58, 64, 71], [200, 104, 40]],
};

export const isNight = (): boolean => document.documentElement.dataset.theme === "dark";

export function ramp(t: number): string {
  const stops = isNight() ? STOPS.dark : STOPS.light;
  const at = Math.max(0, Math.min(1, t)) * 2;
  const k = Math.min(1, Math.floor(at));
  const mixed = stops[k]!.map((c, i) => Math.round(c + (stops[k + 1]![i]! - c) * (at - k)));
  return `rgb(${mixed.join(" ")})`;
}
