// Draws a scene on a canvas, with pan and zoom at the screen's rate. Few visible boxes are drawn
// afresh in each frame. Many are drawn once, crisp, when the view has come to rest; while it moves,
// that picture (and an overview of everything behind it) is what moves.
import type { Box, Point, Scene } from "./layout";

export interface Look {
  fill: (box: Box) => string;
  label: (box: Box) => string;
  detail: (box: Box) => string;
  broken: (box: Box) => boolean;
  ink: string; muted: string; paper: string; sheet: string; line: string; edge: string; bad: string; accent: string;
}

const DIRECT = 500;
const REST = 140;
/** Labels are hard to read below the first zoom; a graph that is too tall begins at the second. */
const SMALL = 0.6;
const FIRST = 0.85;
/** The small drawing of the whole, in the corner: its width and its share of the height, at most. */
const MAP = { width: 120, height: 0.42, margin: 12 };

export class Drawing {
  k = 1;
  x = 0;
  y = 0;
  selected = -1;
  hovered = -1;
  private scene: Scene | null = null;
  private look: Look | null = null;
  private width = 0;
  private height = 0;
  private ratio = 1;
  private asked = 0;
  private overview: HTMLCanvasElement | null = null;
  private overviewScale = 1;
  private crisp: HTMLCanvasElement | null = null;
  private crispAt = { k: 0, x: 0, y: 0 };
  private rest = 0;
  private cells = new Map<number, number[]>();
  private cell = 400;
  private edgesOf: Uint32Array[] = [];
  private glide = 0;

  constructor(private canvas: HTMLCanvasElement) {}

  resize(width: number, height: number): void {
    this.width = width;
    this.height = height;
    this.ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    this.crisp = null;
    this.ask();
  }

  show(scene: Scene, look: Look): void {
    this.scene = scene;
    this.look = look;
    this.crisp = null;
    this.overview = null;
    this.index();
    this.ask();
  }

  /** Everything visible, with a margin; not larger than life-size. */
  fit(): void {
    if (!this.scene) return;
    const k = Math.min(this.width / (this.scene.width + 60), this.height / (this.scene.height + 60), 1.15);
    this.go(k, (this.width - this.scene.width * k) / 2, (this.height - this.scene.height * k) / 2, false);
  }

  /** The first look: everything, or, where its labels would be too small, the top of it. */
  begin(): void {
    this.fit();
    if (!this.scene || this.k >= SMALL) return;
    const k = Math.max(SMALL, Math.min(FIRST, this.width / (this.scene.width + 60)));
    // One that is far too wide as well has no top to begin at.
    if (this.scene.width * k < 2 * this.width) this.go(k, (this.width - this.scene.width * k) / 2, 20, false);
  }

  /** Where the whole is drawn small, while the screen shows a part of it. */
  private map(): { x: number; y: number; w: number; h: number; s: number } | null {
    if (!this.scene) return null;
    const { width, height } = this.scene;
    const all = this.x >= -1 && this.y >= -1 && this.x + width * this.k <= this.width + 1 && this.y + height * this.k <= this.height + 1;
    if (all || width * height === 0) return null;
    const s = Math.min(Math.min(MAP.width, this.width * 0.3) / width, (this.height * MAP.height) / height);
    const [w, h] = [Math.max(width * s, 8), Math.max(height * s, 8)];
    return { x: this.width - w - MAP.margin, y: this.height - h - MAP.margin, w, h, s };
  }

  /** Moves to a point of the small drawing; whether the point is on it (or `held`). */
  follow(px: number, py: number, held = false): boolean {
    const map = this.map();
    if (!map) return held;
    if (!held && (px < map.x - 4 || py < map.y - 4 || px > map.x + map.w + 4 || py > map.y + map.h + 4)) return false;
    this.go(this.k, this.width / 2 - ((px - map.x) / map.s) * this.k, this.height / 2 - ((py - map.y) / map.s) * this.k, false);
    return true;
  }

  centre(box: number, k = Math.max(this.k, 0.8)): void {
    const b = this.scene?.boxes[box];
    if (b) this.go(k, this.width / 2 - (b.x + b.w / 2) * k, this.height / 2 - (b.y + b.h / 2) * k, true);
  }

  pan(dx: number, dy: number): void {
    this.x += dx;
    this.y += dy;
    this.ask();
  }

  zoom(factor: number, cx = this.width / 2, cy = this.height / 2): void {
    const k = Math.max(0.004, Math.min(4, this.k * factor));
    this.x = cx - ((cx - this.x) / this.k) * k;
    this.y = cy - ((cy - this.y) / this.k) * k;
    this.k = k;
    this.ask();
  }

  /** The box under a point of the screen: the innermost. */
  hit(px: number, py: number): number {
    if (!this.scene) return -1;
    const x = (px - this.x) / this.k;
    const y = (py - this.y) / this.k;
    let best = -1;
    for (const i of this.cells.get(this.at(x, y)) ?? []) {
      const b = this.scene.boxes[i]!;
      if (x < b.x || y < b.y || x > b.x + b.w || y > b.y + b.h) continue;
      if (best < 0 || b.w * b.h < this.scene.boxes[best]!.w * this.scene.boxes[best]!.h) best = i;
    }
    return best;
  }

  ask(): void {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      this.frame();
    });
  }

  stop(): void {
    cancelAnimationFrame(this.asked);
    cancelAnimationFrame(this.glide);
    clearTimeout(this.rest);
  }

  private go(k: number, x: number, y: number, smooth: boolean): void {
    cancelAnimationFrame(this.glide);
    if (!smooth || matchMedia("(prefers-reduced-motion: reduce)").matches) {
      Object.assign(this, { k, x, y });
      this.ask();
      return;
    }
    const from = { k: this.k, x: this.x, y: this.y };
    const begin = performance.now();
    const step = () => {
      const t = Math.min(1, (performance.now() - begin) / 260);
      const e = 1 - (1 - t) ** 3;
      this.k = from.k * (k / from.k) ** e;
      // The point in the middle moves on a line, whatever the zoom.
      const mx = (w: typeof from) => (this.width / 2 - w.x) / w.k;
      const my = (w: typeof from) => (this.height / 2 - w.y) / w.k;
      const to = { k, x, y };
      this.x = this.width / 2 - (mx(from) + (mx(to) - mx(from)) * e) * this.k;
      this.y = this.height / 2 - (my(from) + (my(to) - my(from)) * e) * this.k;
      this.ask();
      if (t < 1) this.glide = requestAnimationFrame(step);
    };
    step();
  }

  private at = (x: number, y: number) => Math.floor(x / this.cell) * 65536 + Math.floor(y / this.cell);

  private index(): void {
    const { boxes, edges, width, height } = this.scene!;
    this.cell = Math.max(300, Math.sqrt((width * height) / 4000));
    this.cells.clear();
    boxes.forEach((b, i) => {
      for (let cx = Math.floor(b.x / this.cell); cx <= Math.floor((b.x + b.w) / this.cell); cx++) {
        for (let cy = Math.floor(b.y / this.cell); cy <= Math.floor((b.y + b.h) / this.cell); cy++) {
          const id = cx * 65536 + cy;
          const list = this.cells.get(id);
          if (list) list.push(i);
          else this.cells.set(id, [i]);
        }
      }
    });
    const counts = new Uint32Array(boxes.length);
    for (const b of edges) counts[b]!++;
    this.edgesOf = boxes.map((_, i) => new Uint32Array(counts[i]!));
    counts.fill(0);
    for (let e = 0; e < edges.length; e += 2) {
      for (const b of [edges[e]!, edges[e + 1]!]) {
        this.edgesOf[b]![counts[b]!] = e;
        counts[b]!++;
      }
    }
  }

  private visible(): number[] {
    const x0 = -this.x / this.k;
    const y0 = -this.y / this.k;
    const x1 = x0 + this.width / this.k;
    const y1 = y0 + this.height / this.k;
    const found = new Set<number>();
    for (let cx = Math.floor(x0 / this.cell); cx <= Math.floor(x1 / this.cell); cx++) {
      for (let cy = Math.floor(y0 / this.cell); cy <= Math.floor(y1 / this.cell); cy++) {
        for (const i of this.cells.get(cx * 65536 + cy) ?? []) {
          const b = this.scene!.boxes[i]!;
          if (b.x <= x1 && b.y <= y1 && b.x + b.w >= x0 && b.y + b.h >= y0) found.add(i);
        }
      }
    }
    return [...found].sort((a, b) => a - b);
  }

  private frame(): void {
    if (!this.scene || !this.look || this.width === 0) return;
    const context = this.canvas.getContext("2d", { alpha: false })!;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = this.look.paper;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    // A view that shows a large part of a large scene need not be searched to know that it is
    // large.
    const share = ((this.width / this.k) * (this.height / this.k)) / Math.max(this.scene.width * this.scene.height, 1);
    const list = share * this.scene.boxes.length > 8 * DIRECT ? null : this.visible();
    if (list && list.length <= DIRECT) {
      this.paint(context, list, this.k, this.x, this.y, this.ratio);
      this.marks(context);
      return;
    }
    const same = this.crisp && this.crispAt.k === this.k && this.crispAt.x === this.x && this.crispAt.y === this.y;
    if (!same) {
      const o = this.overviewOf();
      const s = (this.k * this.ratio) / this.overviewScale;
      context.imageSmoothingEnabled = true;
      context.drawImage(o, this.x * this.ratio, this.y * this.ratio, o.width * s, o.height * s);
      clearTimeout(this.rest);
      this.rest = window.setTimeout(() => this.sharpen(), REST);
    }
    if (this.crisp) {
      const s = this.k / this.crispAt.k;
      const dx = (this.x - this.crispAt.x * s) * this.ratio;
      const dy = (this.y - this.crispAt.y * s) * this.ratio;
      // Enlarged beyond twice, the overview is no worse.
      if (s < 2) context.drawImage(this.crisp, dx, dy, this.crisp.width * s, this.crisp.height * s);
    }
    this.marks(context);
  }

  private sharpen(): void {
    if (!this.scene) return;
    const canvas = (this.crisp ??= document.createElement("canvas"));
    canvas.width = this.canvas.width;
    canvas.height = this.canvas.height;
    const context = canvas.getContext("2d", { alpha: false })!;
    context.fillStyle = this.look!.paper;
    context.fillRect(0, 0, canvas.width, canvas.height);
    this.paint(context, this.visible(), this.k, this.x, this.y, this.ratio);
    this.crispAt = { k: this.k, x: this.x, y: this.y };
    this.ask();
  }

  private overviewOf(): HTMLCanvasElement {
    if (this.overview) return this.overview;
    const scene = this.scene!;
    const canvas = document.createElement("canvas");
    this.overviewScale = Math.min(1, 2400 / Math.max(scene.width, scene.height, 1));
    canvas.width = Math.max(1, Math.ceil(scene.width * this.overviewScale));
    canvas.height = Math.max(1, Math.ceil(scene.height * this.overviewScale));
    const context = canvas.getContext("2d")!;
    this.paint(context, scene.boxes.map((_, i) => i), this.overviewScale, 0, 0, 1);
    return (this.overview = canvas);
  }

  private paint(context: CanvasRenderingContext2D, list: number[], k: number, x: number, y: number, ratio: number): void {
    const { boxes, edges, via } = this.scene!;
    const look = this.look!;
    context.setTransform(k * ratio, 0, 0, k * ratio, x * ratio, y * ratio);
    // Open groups first, outermost first: they are the ground.
    for (const i of list) {
      const b = boxes[i]!;
      if (!b.group?.open) continue;
      context.fillStyle = b.group.depth % 2 ? look.sheet : look.paper;
      context.strokeStyle = b.group.broken ? look.bad : look.line;
      context.lineWidth = 1.2;
      context.beginPath();
      context.roundRect(b.x, b.y, b.w, b.h, 12);
      context.fill();
      context.stroke();
      if (k > 0.22) {
        context.fillStyle = look.muted;
        context.font = "600 12.5px ui-sans-serif, system-ui, sans-serif";
        context.textAlign = "left";
        context.fillText(clip(context, `− ${b.group.label}`, b.w - 24), b.x + 12, b.y + 20);
      }
    }
    const drawn = new Set<number>();
    context.strokeStyle = look.edge;
    context.lineWidth = Math.max(1.1, 0.6 / k);
    context.beginPath();
    const plain = k < 0.1;
    for (const i of list) {
      for (const e of this.edgesOf[i]!) {
        if (drawn.has(e)) continue;
        drawn.add(e);
        const a = boxes[edges[e]!]!;
        const b = boxes[edges[e + 1]!]!;
        if (plain) {
          context.moveTo(a.x + a.w / 2, a.y + a.h);
          for (const p of via.get(e) ?? []) context.lineTo(p.x, p.y);
          context.lineTo(b.x + b.w / 2, b.y);
        } else curve(context, a, b, via.get(e));
      }
    }
    context.stroke();
    const text = k > 0.32;
    for (const i of list) {
      const b = boxes[i]!;
      if (b.group?.open) continue;
      context.fillStyle = look.fill(b);
      if (k < 0.18) {
        context.fillRect(b.x, b.y, b.w, b.h);
        continue;
      }
      context.beginPath();
      context.roundRect(b.x, b.y, b.w, b.h, b.group ? 10 : 7);
      context.fill();
      if (look.broken(b)) {
        context.strokeStyle = look.bad;
        context.lineWidth = 2.5;
        context.stroke();
      } else if (b.group) {
        context.strokeStyle = look.muted;
        context.lineWidth = 1;
        context.stroke();
      }
      if (!text) continue;
      context.fillStyle = look.ink;
      context.textAlign = "center";
      context.font = b.group ? "600 13px ui-sans-serif, system-ui, sans-serif" : "500 12.5px ui-sans-serif, system-ui, sans-serif";
      context.fillText(clip(context, b.group ? `+ ${look.label(b)}` : look.label(b), b.w - 14), b.x + b.w / 2, b.y + (b.group ? 21 : 16));
      context.font = "11px ui-monospace, Menlo, Consolas, monospace";
      context.globalAlpha = 0.85;
      context.fillText(clip(context, look.detail(b), b.w - 12), b.x + b.w / 2, b.y + (b.group ? 38 : 29));
      context.globalAlpha = 1;
    }
  }

  /** What is selected and hovered, over whatever picture is shown: with its edges. */
  private marks(context: CanvasRenderingContext2D): void {
    const { boxes, edges, via } = this.scene!;
    context.setTransform(this.k * this.ratio, 0, 0, this.k * this.ratio, this.x * this.ratio, this.y * this.ratio);
    for (const i of new Set([this.hovered, this.selected])) {
      const box = boxes[i];
      if (!box) continue;
      context.strokeStyle = this.look!.accent;
      context.lineWidth = Math.max(2, 1.5 / this.k);
      context.beginPath();
      context.roundRect(box.x - 2, box.y - 2, box.w + 4, box.h + 4, 9);
      context.stroke();
      if (box.group?.open) continue;
      context.lineWidth = Math.max(1.6, 1.1 / this.k);
      context.beginPath();
      for (const e of this.edgesOf[i]!.subarray(0, 200)) {
        const a = boxes[edges[e]!]!;
        const b = boxes[edges[e + 1]!]!;
        curve(context, a, b, via.get(e));
      }
      context.stroke();
    }
    this.corner(context);
  }

  /** The whole, small, with a frame around what the screen shows. */
  private corner(context: CanvasRenderingContext2D): void {
    const map = this.map();
    if (!map) return;
    const look = this.look!;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = look.sheet;
    context.strokeStyle = look.line;
    context.lineWidth = 1;
    context.beginPath();
    context.roundRect(map.x - 5, map.y - 5, map.w + 10, map.h + 10, 6);
    context.fill();
    context.stroke();
    context.imageSmoothingEnabled = true;
    context.drawImage(this.overviewOf(), map.x, map.y, map.w, map.h);
    const clamp = (v: number, most: number) => Math.max(0, Math.min(most, v));
    const [x0, y0] = [clamp((-this.x / this.k) * map.s, map.w), clamp((-this.y / this.k) * map.s, map.h)];
    const [x1, y1] = [clamp(((this.width - this.x) / this.k) * map.s, map.w), clamp(((this.height - this.y) / this.k) * map.s, map.h)];
    context.strokeStyle = look.accent;
    context.lineWidth = 2;
    context.strokeRect(map.x + x0 - 2, map.y + y0 - 2, x1 - x0 + 4, y1 - y0 + 4);
  }
}

/** An edge from the foot of one box to the head of another, through points on its way. */
function curve(context: CanvasRenderingContext2D, a: Box, b: Box, via: Point[] = []): void {
  let [x, y] = [a.x + a.w / 2, a.y + a.h];
  context.moveTo(x, y);
  for (const to of [...via, { x: b.x + b.w / 2, y: b.y }]) {
    const bend = Math.min(Math.max(via.length > 0 ? 0 : 18, Math.abs(to.y - y) * 0.42), 160);
    context.bezierCurveTo(x, y + bend, to.x, to.y - bend, to.x, to.y);
    [x, y] = [to.x, to.y];
  }
}

const widths = new Map<string, string>();
function clip(context: CanvasRenderingContext2D, text: string, room: number): string {
  const key = `${context.font}|${Math.round(room)}|${text}`;
  const known = widths.get(key);
  if (known !== undefined) return known;
  let short = text;
  if (context.measureText(text).width > room) {
    let lo = 0;
    let hi = text.length;
    while (lo < hi) {
      const mid = (lo + hi + 1) >> 1;
      if (context.measureText(`${text.slice(0, mid)}…`).width <= room) lo = mid;
      else hi = mid - 1;
    }
    short = `${text.slice(0, lo)}…`;
  }
  if (widths.size > 20_000) widths.clear();
  widths.set(key, short);
  return short;
}
