// The keyboard. Keys act on the page as a whole unless the focus is in a field.

interface TransportKeys { step: (by: number) => void; first: () => void; last: () => void; play: () => void }
let transport: TransportKeys | null = null;

/** The view's transport control answers to the arrow keys while it is on the page. */
export function onTransport(keys: TransportKeys): () => void {
  transport = keys;
  return () => {
    if (transport === keys) transport = null;
  };
}

export const KEYS: [string[], string][] = [
  [["1", "…", "8"], "the views, from left to right"],
  [["←", "→"], "one step back, one step on"],
  [["Home", "End"], "first and last step"],
  [["Space"], "play and pause"],
  [["/"], "edit the expression"],
  [["Ctrl", "Enter"], "in the expression: run it"],
  [["e"], "next example"],
  [["g"], "the five-minute guide"],
  [["t"], "light or dark"],
  [["s"], "copy a link to what you see"],
  [["↑", "↓"], "in the list of passes: the one before or after"],
  [["+", "−", "0"], "in the graph: zoom in, out, fit"],
  [["Esc"], "close, or leave a field"],
  [["?"], "this list"],
];

export interface PageKeys { view: (index: number) => void; key: (key: string) => boolean }

export function listen(page: PageKeys): () => void {
  const handler = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as HTMLElement;
    const typing = target.matches("textarea, select, input:not([type=range]):not([type=radio]):not([type=checkbox])");
    if (event.key === "Escape" && typing) {
      target.blur();
      return;
    }
    if (typing || document.querySelector("dialog[open]")) return;
    const control = target.matches("input, [role=application], [role=slider]");
    const pressed = target.matches("button, a, summary, input");
    let used = true;
    if (/^[1-8]$/.test(event.key)) page.view(Number(event.key) - 1);
    else if (!control && transport && event.key === "ArrowLeft") transport.step(-1);
    else if (!control && transport && event.key === "ArrowRight") transport.step(1);
    else if (!control && transport && event.key === "Home") transport.first();
    else if (!control && transport && event.key === "End") transport.last();
    else if (!pressed && transport && event.key === " ") transport.play();
    else used = page.key(event.key);
    if (used) event.preventDefault();
  };
  window.addEventListener("keydown", handler);
  return () => window.removeEventListener("keydown", handler);
}
