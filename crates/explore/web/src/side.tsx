// The panel on the left: the expression, a slider per variable, examples and predictions.
import { useEffect, useRef, useState } from "preact/hooks";
import { written, type Failure } from "./api";
import { float, number } from "./format";
import type { Example, Nested, Start, Tape, Variable } from "./schema";
import { fresh, get, set, useShown, VIEWS, type View } from "./state";

export const choose = (example: { expression: string; values: Example["values"] }) =>
  set({ ...fresh, expression: example.expression, values: example.values });

export function Side({ start, tape, failure }: { start: Start; tape: Tape | null; failure: Failure | null }) {
  const shown = useShown();
  const narrow = matchMedia("(max-width: 860px)").matches;
  const active = start.examples.find((e) => e.expression === shown.expression);
  return (
    <aside class="side" aria-label="What is differentiated">
      <Editor failure={failure} defaulted={tape?.defaulted ?? []} />
      {tape && tape.variables.length > 0 && <Sliders tape={tape} />}
      <details open={!narrow}>
        <summary class="label">Examples</summary>
        <ul class="examples">
          {start.examples.map((e) => (
            <li key={e.id}>
              <button class="example" aria-pressed={active?.id === e.id} onClick={() => choose(e)}>
                <span>{e.title}</span>
                <span class="small muted">{e.about}</span>
              </button>
            </li>
          ))}
        </ul>
      </details>
      {start.presets.length > 0 && (
        <details open={!narrow}>
          <summary class="label">Predict, then look</summary>
          <ul class="examples">
            {start.presets.map((p) => (
              <li key={p.id}>
                <button class="example" aria-pressed={shown.preset === p.id} onClick={() => openPreset(start, p.id)}>{p.title}</button>
              </li>
            ))}
          </ul>
        </details>
      )}
    </aside>
  );
}

/** Opens a prediction: at the forward tape if it is about an expression, else at its own view. */
export function openPreset(start: Start, id: string): void {
  const preset = start.presets.find((p) => p.id === id);
  if (!preset) return;
  const { expression, values, points, layers, segment, budget } = preset.state;
  if (expression !== undefined) {
    set({ ...fresh, preset: id, view: "forward", expression, values: values ?? {} });
    return;
  }
  set({
    preset: id, subject: "expression",
    view: (VIEWS as readonly string[]).includes(preset.view) ? (preset.view as View) : "forward",
    ...(points?.[0] ? { n: points[0][0], m: points[0][1] } : {}),
    ...(layers !== undefined ? { layers, segment: segment ?? null, budget: budget ?? null } : {}),
  });
}

function Editor({ failure, defaulted }: { failure: Failure | null; defaulted: string[] }) {
  const shown = useShown();
  const pretty = (text: string) => text.replace(/;\s*/g, "\n");
  const [text, setText] = useState(pretty(shown.expression));
  const sent = useRef(shown.expression);
  const timer = useRef(0);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (shown.expression !== sent.current) {
      sent.current = shown.expression;
      setText(pretty(shown.expression));
    }
  }, [shown.expression]);
  const run = (value: string) => {
    clearTimeout(timer.current);
    const expression = value.trim().replace(/\s*\n+\s*/g, "; ");
    if (expression === sent.current) return;
    sent.current = expression;
    set({ ...fresh, expression, values: get().values });
  };
  const edit = (value: string) => {
    setText(value);
    clearTimeout(timer.current);
    if (!written) timer.current = window.setTimeout(() => run(value), 450);
  };
  const span = failure?.span;
  const mark = () => {
    if (!span || !area.current) return;
    area.current.focus();
    // Line ends are "; " in the text that was sent: one character more.
    const at = (k: number) => k - (shown.expression.slice(0, k).match(/; /g)?.length ?? 0);
    area.current.setSelectionRange(at(span[0]), at(span[1]));
  };
  return (
    <div class="field">
      <label for="expression">Expression</label>
      <textarea id="expression" ref={area} spellcheck={false} autocapitalize="off" autocomplete="off" rows={Math.min(10, Math.max(3, text.split("\n").length))}
        value={text} aria-invalid={failure?.kind === "expression"} aria-describedby="expression-help"
        onInput={(e) => edit(e.currentTarget.value)}
        onKeyDown={(e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) run(text); }} />
      {failure && (
        <div class="note bad" role="alert">
          {failure.message}
          {span && <> <button class="link" onClick={mark}>Show where</button></>}
          {failure.hint && <div class="small">{failure.hint}</div>}
        </div>
      )}
      <p id="expression-help" class="small muted">
        One definition per line; the last is differentiated.
        {defaulted.length > 0 && ` No value yet for ${defaulted.join(", ")}: 1 is used.`}
      </p>
    </div>
  );
}

function Sliders({ tape }: { tape: Tape }) {
  const shown = useShown();
  // A slider keeps the range it had when the expression was chosen, whatever its value becomes.
  const ranges = useRef<{ of: string; by: Map<string, [number, number, number]> }>({ of: "", by: new Map() });
  if (ranges.current.of !== tape.expression) ranges.current = { of: tape.expression, by: new Map() };
  for (const v of tape.variables) if (!ranges.current.by.has(v.name)) ranges.current.by.set(v.name, [v.low, v.high, v.step]);
  return (
    <div class="stack sliders">
      <span class="label">Variables</span>
      {tape.variables.map((v) =>
        v.scalar
          ? <Slider key={v.name} v={v} range={ranges.current.by.get(v.name)!} value={shown.values[v.name]} />
          : <TensorField key={v.name} v={v} value={shown.values[v.name]} />,
      )}
    </div>
  );
}

function Slider({ v, range, value }: { v: Variable; range: [number, number, number]; value: Nested | string | undefined }) {
  const [low, high, fine] = range;
  const now = typeof value === "number" ? value : float(v.value.data as number);
  // A written page has the engine's answers at 21 positions.
  const step = written ? (high - low) / 20 : fine;
  const snap = (x: number) => (written ? low + (Math.round((x - low) / step) * (high - low)) / 20 : Number((Math.round(x / step) * step).toPrecision(12)));
  const move = (x: number) => set({ values: { ...get().values, [v.name]: x } });
  const id = `slider-${v.name}`;
  // The control itself takes any number, so that a value from a link is shown as it is.
  const keys = (e: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[e.key];
    const to = e.key === "Home" ? low : e.key === "End" ? high : by ? Math.max(low, Math.min(high, now + by * step)) : null;
    if (to === null) return;
    e.preventDefault();
    move(snap(to));
  };
  return (
    <div class="slider">
      <label for={id}><i class="sym">{v.name}</i></label>
      <input id={id} type="range" min={Math.min(low, now)} max={Math.max(high, now)} step="any" value={now} aria-valuetext={`${v.name} = ${number(now)}`}
        onInput={(e) => move(snap(e.currentTarget.valueAsNumber))} onKeyDown={keys} />
      <input type="number" aria-label={`${v.name}, exactly`} step="any" value={Number(now.toPrecision(6))}
        onChange={(e) => {
          const typed = e.currentTarget.valueAsNumber;
          if (Number.isFinite(typed)) move(written ? snap(typed) : typed);
        }} />
    </div>
  );
}

function TensorField({ v, value }: { v: Variable; value: Nested | string | undefined }) {
  const text = value === undefined ? v.value.text : typeof value === "string" ? value : JSON.stringify(value).replaceAll(",", ", ");
  return (
    <div class="field tensor">
      <label for={`tensor-${v.name}`}><i class="sym">{v.name}</i> <span class="muted small">{v.value.spec}</span></label>
      <input id={`tensor-${v.name}`} type="text" class="mono" value={text} spellcheck={false}
        onChange={(e) => {
          const typed = e.currentTarget.value;
          let parsed: Nested | string = typed;
          try {
            parsed = JSON.parse(typed) as Nested;
          } catch { /* the server explains what is wrong with the text */ }
          set({ values: { ...get().values, [v.name]: parsed } });
        }} />
    </div>
  );
}
