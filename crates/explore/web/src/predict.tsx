// A question to commit to before the engine's answer is shown.
import { useState } from "preact/hooks";
import { useAsk } from "./api";
import type { Revealed, Start } from "./schema";
import { set, VIEWS, type View } from "./state";
import { Icon } from "./ui/icons";
import { N } from "./ui/value";

interface Props { start: Start; id: string; committed: number | undefined; commit: (choice: number) => void }

export function Predict({ start, id, committed, commit }: Props) {
  const preset = start.presets.find((p) => p.id === id);
  const [choice, setChoice] = useState<number | null>(committed ?? null);
  const open = committed !== undefined;
  const { data, failure } = useAsk<Revealed>(open ? "/api/preset" : null, { id });
  if (!preset) return <p class="note bad">There is no prediction called “{id}”.</p>;
  const target = (VIEWS as readonly string[]).includes(preset.view) ? (preset.view as View) : "reverse";
  return (
    <section class="card predict" aria-label="Prediction">
      <header>
        <h3>{preset.title}</h3>
        <button class="btn icon" onClick={() => set({ preset: null })} aria-label="Close the prediction"><Icon name="close" /></button>
      </header>
      <div class="in stack">
        <p>{preset.question}</p>
        <div class="choices" role="radiogroup" aria-label="Your prediction">
          {preset.choices.map((text, i) => (
            <label key={i} class={`choice ${open && data?.answer === i ? "right-choice" : ""} ${open && data && committed === i && data.answer !== i ? "wrong-choice" : ""}`}>
              <input type="radio" name="prediction" checked={choice === i} disabled={open} onChange={() => setChoice(i)} />
              <span>{text}</span>
              {open && data?.answer === i && <span class="badge good">the engine</span>}
              {open && data && committed === i && <span class={`badge ${data.answer === i ? "good" : "bad"}`}>you</span>}
            </label>
          ))}
        </div>
        {!open && <div><button class="btn main-action" disabled={choice === null} onClick={() => commit(choice!)}>Commit, then show me</button></div>}
        {failure && <p class="note bad">{failure.message}</p>}
        {open && data && (
          <div class={`note ${data.answer === committed ? "good" : "cot"}`} role="status">
            <p><b>{data.answer === committed ? "Right." : "Not quite."}</b> {data.explanation}</p>
            {data.numbers.length > 0 && <p class="row small">{data.numbers.map((n) => <span key={n.name}><span class="mono">{n.name}</span> = <N x={n.value} /></span>)}</p>}
            <p><button class="link" onClick={() => set({ view: target, reverse: 0, forward: null, tangent: null })}>Watch it happen</button></p>
          </div>
        )}
      </div>
    </section>
  );
}
