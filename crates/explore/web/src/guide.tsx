// The five-minute guide: a few sentences at a time, each with the page set to what they are about.
import type { ComponentChildren } from "preact";
import { Icon } from "./ui/icons";
import type { Start } from "./schema";
import { fresh, set, useShown, type State } from "./state";

interface Stop { title: string; text: ComponentChildren; go: (start: Start) => Partial<State> }

const base = (start: Start): Partial<State> => {
  const first = start.examples[0];
  return { ...fresh, expression: first?.expression ?? "", values: first?.values ?? {} };
};

const GUIDE: Stop[] = [
  {
    title: "A program is a list of small steps",
    text: <>To run <i>L = xy + sin(xy)</i>, the engine computes one small step after another and writes each down. That list is the <b>tape</b>. Step on, with <kbd>→</kbd> or the arrow below, and watch it run.</>,
    go: (s) => ({ ...base(s), view: "forward", forward: 0 }),
  },
  {
    title: "Every step knows its own slope",
    text: <>For each step the engine also <b>saves</b> what its derivative will need: for <i>a = x·y</i> both factors, for <i>sin a</i> the value <i>a</i>. Nothing is differentiated yet.</>,
    go: (s) => ({ ...base(s), view: "forward", forward: null }),
  },
  {
    title: "Read the tape backward",
    text: <>The question is now: if this value changed a little, how much would <i>L</i> change? For <i>L</i> itself the answer is 1: the <b>seed</b>. Every other register begins at 0. Step on.</>,
    go: (s) => ({ ...base(s), view: "reverse", reverse: 1 }),
  },
  {
    title: "Contributions add up",
    text: <><i>a</i> is used twice, by <i>b</i> and by <i>L</i>. Each use sends its own share back, upstream × local slope, and the register <b>adds</b> them. That is the only rule: everything else is multiplication.</>,
    go: (s) => ({ ...base(s), view: "reverse", reverse: 4 }),
  },
  {
    title: "One pass, every gradient",
    text: <>The sweep visited each step <b>once</b>, and now <i>x</i> and <i>y</i> both hold their gradient. With a million inputs it would still be one pass, because the sweep starts at the one output and fans out.</>,
    go: (s) => ({ ...base(s), view: "reverse", reverse: 1000 }),
  },
  {
    title: "The other direction needs a pass per input",
    text: <>Forward mode pushes a <b>direction</b> along: wiggle <i>x</i> alone and you learn the slope by <i>x</i> alone. For <i>y</i> you run again.</>,
    go: (s) => ({ ...base(s), view: "tangents", tangent: null }),
  },
  {
    title: "So the shape decides the cost",
    text: <>Many inputs, one loss: reverse mode. Few inputs, many outputs: forward mode. These are measured times of the engine; drag the corner of the Jacobian.</>,
    go: (s) => ({ ...base(s), view: "cost", n: 64, m: 1 }),
  },
  {
    title: "And the price is memory",
    text: <>Reading backward needs the saved values, so they stay until the sweep has used them. Checkpointing keeps a few and computes the rest again.</>,
    go: (s) => ({ ...base(s), view: "memory" }),
  },
];

export const openGuide = (start: Start): void => set({ guide: 0, ...GUIDE[0]!.go(start) });

export function Guide({ start }: { start: Start }) {
  const { guide } = useShown();
  const to = (k: number | null) => set(k === null ? { guide: null } : { guide: k, ...GUIDE[k]!.go(start) });
  if (guide === null || !GUIDE[guide]) {
    return null;
  }
  const stop = GUIDE[guide]!;
  return (
    <section class="guide" aria-label="Guide">
      <div class="guide-text" aria-live="polite">
        <p class="small">{guide + 1} of {GUIDE.length}</p>
        <h3>{stop.title}</h3>
        <p>{stop.text}</p>
      </div>
      <div class="row">
        <button class="btn" disabled={guide === 0} onClick={() => to(guide - 1)}>Back</button>
        {guide < GUIDE.length - 1
          ? <button class="btn main-action" onClick={() => to(guide + 1)}>Next</button>
          : <button class="btn main-action" onClick={() => to(null)}>Finish</button>}
        <button class="btn icon" onClick={() => to(null)} aria-label="Close the guide"><Icon name="close" /></button>
      </div>
    </section>
  );
}
