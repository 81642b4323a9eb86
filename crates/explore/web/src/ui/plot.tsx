// A uPlot chart that follows the theme and the width of its place, with its numbers as a table for
// readers that see no canvas.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Line {
  name: string; y: (number | null)[]; colour: string; dash?: number[]; fill?: boolean; step?: boolean; width?: number; points?: boolean;
  /** Whether to draw across missing values. */
  gaps?: boolean;
}
interface Props {
  x: number[]; lines: Line[]; label: string; height?: number; logX?: boolean; logY?: boolean; xName?: string; yName?: string;
  formatX?: (v: number) => string; formatY?: (v: number) => string; mark?: number | null; bands?: [number, number][];
  bandColour?: string; onPick?: (x: number) => void; zeroY?: boolean; topY?: number; whole?: boolean; binaryY?: boolean;
}

/** The value of a colour token. */
export const token = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Counts changes of theme, so that canvases are drawn again. */
export function useTheme(): number {
  const [n, next] = useState(0);
  useEffect(() => {
    const observer = new MutationObserver(() => next((k) => k + 1));
    observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => observer.disconnect();
  }, []);
  return n;
}

export function useWidth<E extends HTMLElement>(): [preact.RefObject<E | null>, number] {
  const ref = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!ref.current) return;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

export function Plot(p: Props) {
  const [place, width] = useWidth<HTMLDivElement>();
  const theme = useTheme();
  const height = p.height ?? 260;
  useEffect(() => {
    if (!place.current || width === 0) return;
    const ink = token("ink-3");
    const grid = { stroke: token("line"), width: 1 };
    const axis = { stroke: ink, grid, ticks: { ...grid, size: 4 }, font: "12px ui-sans-serif, system-ui, sans-serif", labelFont: "12px ui-sans-serif, system-ui, sans-serif" };
    // On a logarithmic axis only powers of ten (of two on the x axis) get a line; of many, every
    // second or third.
    const major = (base: number) => (_u: uPlot, splits: number[]) => {
      const power = (v: number) => Math.round(Math.log(v) / Math.log(base) * 1e6) / 1e6;
      const every = Math.ceil(splits.filter((v) => v && Number.isInteger(power(v))).length / 10);
      return splits.map((v) => (v && power(v) % every === 0 ? v : null));
    };
    const logged = (on: boolean | undefined, base: number) => (on ? { filter: major(base), grid: { ...grid, filter: major(base) }, ticks: { ...grid, size: 4, filter: major(base) } } : {});
    const powers = Array.from({ length: 50 }, (_, i) => 2 ** i);
    const wholes = [1, 2, 5].flatMap((d) => Array.from({ length: 12 }, (_, i) => d * 10 ** i)).sort((a, b) => a - b);
    const stepped = uPlot.paths.stepped!({ align: 1 });
    // Without a cursor, the legend has the values at the mark, or the last ones.
    const marked = p.mark === null || p.mark === undefined ? -1 : p.x.indexOf(p.mark);
    const rest = marked >= 0 ? marked : p.x.length - 1;
    const resting = [rest, ...p.lines.map((l) => (marked >= 0 ? rest : l.y.findLastIndex((v) => v !== null && v !== undefined)))];
    const chart = new uPlot(
      {
        width, height,
        padding: [12, 12, 0, 4],
        cursor: { y: false, points: { size: 6 } },
        legend: { live: true },
        scales: {
          x: { time: false, distr: p.logX ? 3 : 1, log: 2 },
          y: { distr: p.logY ? 3 : 1, range: p.zeroY ? (_u, _lo, hi) => [0, (p.topY ?? hi) * 1.08 || 1] : undefined },
        },
        axes: [
          { ...axis, ...logged(p.logX, 2), incrs: p.whole ? wholes : undefined, label: p.xName, labelSize: p.xName ? 22 : 0, size: 34, values: p.formatX ? (_u, vs) => vs.map((v) => (v === null ? "" : p.formatX!(v))) : undefined },
          { ...axis, ...logged(p.logY, 10), incrs: p.binaryY ? powers : undefined, label: p.yName, labelSize: p.yName ? 20 : 0, size: 66, values: p.formatY ? (_u, vs) => vs.map((v) => (v === null ? "" : p.formatY!(v))) : undefined },
        ],
        series: [
          { label: p.xName ?? "x", value: (_u, v) => (v === null ? "–" : p.formatX ? p.formatX(v) : String(v)) },
          ...p.lines.map((line) => ({
            label: line.name, stroke: token(line.colour) || line.colour, width: line.width ?? 2, dash: line.dash,
            fill: line.fill ? `color-mix(in srgb, ${token(line.colour) || line.colour} 12%, transparent)` : undefined,
            paths: line.step ? stepped : undefined, points: { show: line.points ?? false, size: 5 }, spanGaps: line.gaps ?? false,
            value: (_u: uPlot, v: number | null) => (v === null ? "–" : p.formatY ? p.formatY(v) : String(v)),
          })),
        ],
        hooks: {
          drawClear: [
            (u) => {
              u.ctx.save();
              u.ctx.fillStyle = token(p.bandColour ?? "cot-soft");
              for (const [from, to] of p.bands ?? []) {
                const left = u.valToPos(from, "x", true);
                u.ctx.fillRect(left, u.bbox.top, Math.max(u.valToPos(to, "x", true) - left, 1), u.bbox.height);
              }
              u.ctx.restore();
            },
          ],
          draw: [
            (u) => {
              if (p.mark === null || p.mark === undefined) return;
              u.ctx.save();
              u.ctx.strokeStyle = token("ink");
              u.ctx.setLineDash([4, 4]);
              u.ctx.beginPath();
              const at = u.valToPos(p.mark, "x", true);
              u.ctx.moveTo(at, u.bbox.top);
              u.ctx.lineTo(at, u.bbox.top + u.bbox.height);
              u.ctx.stroke();
              u.ctx.restore();
            },
          ],
          setCursor: [(u) => { if (u.cursor.idx === null || u.cursor.idx === undefined) u.setLegend({ idxs: resting }, false); }],
          ready: [
            (u) => {
              u.setLegend({ idxs: resting }, false);
              if (!p.onPick) return;
              u.over.classList.add("pick");
              u.over.addEventListener("click", () => {
                const i = u.cursor.idx;
                if (i !== null && i !== undefined) p.onPick!(p.x[i]!);
              });
            },
          ],
        },
      },
      [p.x, ...p.lines.map((l) => l.y)] as uPlot.AlignedData,
      place.current,
    );
    return () => chart.destroy();
  }, [width, theme, height, p.x, p.lines, p.mark, p.bands, p.logX, p.logY]);
  const shown = p.x.length <= 40 ? p.x.map((_, i) => i) : Array.from({ length: 40 }, (_, i) => Math.round((i * (p.x.length - 1)) / 39));
  return (
    <figure class="plot">
      <div ref={place} role="img" aria-label={p.label} class="plot-place" style={{ minHeight: `${height}px` }} />
      <details class="plot-table">
        <summary>Numbers</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label={`${p.label}, as a table`}>
          <table>
            <thead><tr><th scope="col">{p.xName ?? "x"}</th>{p.lines.map((l) => <th key={l.name} scope="col" class="right">{l.name}</th>)}</tr></thead>
            <tbody>
              {shown.map((i) => (
                <tr key={i}>
                  <th scope="row" class="num">{p.formatX ? p.formatX(p.x[i]!) : p.x[i]}</th>
                  {p.lines.map((l) => <td key={l.name} class="right num">{l.y[i] === null || l.y[i] === undefined ? "–" : p.formatY ? p.formatY(l.y[i]!) : l.y[i]}</td>)}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}
