// Step, play, pause and scrub: one control for every sequence. The keyboard reaches the control of
// the visible view through `keys.ts`.
import { useEffect, useRef, useState } from "preact/hooks";
import { onTransport } from "../keys";
import { Icon } from "./icons";

/** Scrolls the table that a row is in, and never the page. */
export function showRow(row: HTMLElement | null): void {
  const frame = row?.closest<HTMLElement>(".tape-scroll");
  if (!row || !frame) return;
  const head = 46;
  if (row.offsetTop < frame.scrollTop + head) frame.scrollTop = row.offsetTop - head;
  else if (row.offsetTop + row.offsetHeight > frame.scrollTop + frame.clientHeight) frame.scrollTop = row.offsetTop + row.offsetHeight - frame.clientHeight;
}

interface Props { at: number; total: number; go: (at: number) => void; label: string; text?: string; pace?: number }

export function Transport({ at, total, go, label, text, pace = 900 }: Props) {
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  useEffect(() => {
    if (!playing) return;
    if (at >= total) {
      setPlaying(false);
      return;
    }
    // A long tape is played in larger steps, so that it takes a minute at most.
    const stride = Math.max(1, Math.ceil((total * pace) / 60_000));
    const timer = setTimeout(() => go(Math.min(total, at + stride)), pace / speed);
    return () => clearTimeout(timer);
  }, [playing, at, total, speed]);
  // Keys may come faster than the page is drawn, so a step is counted from the last one asked for.
  const now = useRef(at);
  now.current = at;
  const step = (to: number) => {
    setPlaying(false);
    now.current = Math.max(0, Math.min(total, to));
    go(now.current);
  };
  const play = () => {
    if (!playing && at >= total) go(0);
    setPlaying(!playing);
  };
  useEffect(() => onTransport({ step: (by) => step(now.current + by), first: () => step(0), last: () => step(total), play }));
  return (
    <div class="transport" role="group" aria-label={label}>
      <div class="row tight">
        <button class="btn icon" onClick={() => step(0)} disabled={at === 0} aria-label="To the start" title="To the start (Home)"><Icon name="first" /></button>
        <button class="btn icon" onClick={() => step(at - 1)} disabled={at === 0} aria-label="One step back" title="One step back (←)"><Icon name="back" /></button>
        <button class="btn main-action play" onClick={play} disabled={total === 0} aria-label={playing ? "Pause" : "Play"} title={`${playing ? "Pause" : "Play"} (Space)`}><Icon name={playing ? "pause" : "play"} /></button>
        <button class="btn icon" onClick={() => step(at + 1)} disabled={at >= total} aria-label="One step on" title="One step on (→)"><Icon name="next" /></button>
        <button class="btn icon" onClick={() => step(total)} disabled={at >= total} aria-label="To the end" title="To the end (End)"><Icon name="last" /></button>
      </div>
      <input type="range" min={0} max={total} value={at} aria-label={`${label}: step`} aria-valuetext={text ?? `${at} of ${total}`}
        onInput={(e) => step(Number(e.currentTarget.value))} />
      <span class="num small count" aria-live="off">{at} / {total}</span>
      <button class="btn icon speed num small" onClick={() => setSpeed(speed === 1 ? 2 : speed === 2 ? 4 : speed === 4 ? 0.5 : 1)}
        aria-label={`Speed: ${speed} times`} title="Speed">{speed}×</button>
    </div>
  );
}
