// Every number of the page comes through here: from the answers that the page carries, else from
// the server. A served page carries what its first view shows; a written one carries all it has,
// and a question that it has no answer to is an error of kind `written`, which views show as "needs
// the server".
import { useEffect, useRef, useState } from "preact/hooks";

export class Failure extends Error {
  kind: string;
  span: [number, number] | null;
  hint: string | null;
  constructor(kind: string, message: string, span: [number, number] | null = null, hint: string | null = null) {
    super(message);
    this.kind = kind;
    this.span = span;
    this.hint = hint;
  }
}

interface Stored { method: string; path: string; body?: unknown; answer: unknown }

/** One text for all bodies that mean the same: keys in order, fields that are null left out. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value && typeof value === "object") {
    const fields = Object.entries(value).filter(([, v]) => v !== null && v !== undefined);
    fields.sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${fields.map(([k, v]) => `${JSON.stringify(k)}:${canonical(v)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

const key = (method: string, path: string, body: unknown) => `${method} ${path} ${body ? canonical(body) : ""}`;

const stored: Map<string, unknown> = (() => {
  const element = document.getElementById("pullback-data");
  if (!element?.textContent) return new Map();
  const { answers } = JSON.parse(element.textContent) as { answers: Stored[] };
  return new Map(answers.map((a) => [key(a.method, a.path, a.body), a.answer]));
})();

export const written = (stored.get(key("GET", "/api/start", undefined)) as { written?: boolean } | undefined)?.written ?? false;

const recent = new Map<string, unknown>();
const KEPT = 60;

const flying = new Map<string, Promise<unknown>>();

/** The answer to one question. The same question asked meanwhile shares the request. */
export function ask<T>(path: string, body?: unknown): Promise<T> {
  const method = body === undefined ? "GET" : "POST";
  const name = key(method, path, body);
  const known = stored.get(name) ?? recent.get(name);
  if (known !== undefined) return checkedLater<T>(known);
  if (written) return Promise.reject(new Failure("written", "This file carries no answer to that: it needs the server. Run `pullback explore` and open the page it prints."));
  let answer = flying.get(name) as Promise<T> | undefined;
  if (!answer) {
    answer = request<T>(method, path, body).finally(() => flying.delete(name));
    flying.set(name, answer);
    answer.then((good) => {
      // Measured times and the files of a run change; everything else is a function of the
      // question.
      if (path === "/api/cost" || path === "/api/run") return;
      recent.set(name, good);
      if (recent.size > KEPT) recent.delete(recent.keys().next().value as string);
    }, () => undefined);
  }
  return answer;
}

/** The answer that is here already, if there is one and it is no error. */
const atHand = (name: string): unknown => {
  const known = stored.get(name) ?? recent.get(name);
  return (known as { error?: unknown } | undefined)?.error ? undefined : known;
};

const checkedLater = async <T,>(answer: unknown): Promise<T> => checked<T>(answer);

async function request<T>(method: string, path: string, body: unknown): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Failure("offline", "The server does not answer. Is `pullback explore` still running?");
  }
  let answer: unknown;
  try {
    answer = await response.json();
  } catch {
    throw new Failure("internal", `The server answered ${response.status} with something that is not JSON.`);
  }
  return checked<T>(answer);
}

function checked<T>(answer: unknown): T {
  const error = (answer as { error?: { kind: string; message: string; span?: [number, number]; hint?: string } }).error;
  if (error) throw new Failure(error.kind, error.message, error.span ?? null, error.hint ?? null);
  return answer as T;
}

export interface Asked<T> { data: T | null; failure: Failure | null; busy: boolean }

/**
 * The answer to a question that changes over time. The last good answer stays while the next one is
 * on its way, so a slider moves numbers and nothing flickers; at most one request is in flight, and
 * the newest question follows it. Another `turn` asks the same again.
 */
export function useAsk<T>(path: string | null, body?: unknown, turn = 0): Asked<T> {
  const question = path === null ? "" : key(body === undefined ? "GET" : "POST", path, body);
  const name = `${turn} ${question}`;
  // What is at hand is drawn at once, not after an effect.
  const known = path === null ? undefined : (atHand(question) as T | undefined);
  const [state, setState] = useState<Asked<T>>({ data: known ?? null, failure: null, busy: path !== null && known === undefined });
  const wanted = useRef<{ path: string; body: unknown; name: string } | null>(null);
  const running = useRef(false);
  const alive = useRef(true);
  useEffect(() => () => void (alive.current = false), []);
  useEffect(() => {
    if (path === null) {
      wanted.current = null;
      setState({ data: null, failure: null, busy: false });
      return;
    }
    wanted.current = { path, body, name };
    if (running.current) return;
    if (known !== undefined) {
      setState((s) => (s.data === known && !s.failure && !s.busy ? s : { data: known, failure: null, busy: false }));
      return;
    }
    running.current = true;
    setState((s) => ({ ...s, busy: true }));
    (async () => {
      let done = "";
      while (alive.current && wanted.current && wanted.current.name !== done) {
        const question = wanted.current;
        done = question.name;
        try {
          const data = await ask<T>(question.path, question.body);
          if (alive.current && wanted.current) setState({ data, failure: null, busy: wanted.current.name !== done });
        } catch (error) {
          const failure = error instanceof Failure ? error : new Failure("internal", String(error));
          if (alive.current && wanted.current) setState((s) => ({ data: s.data, failure, busy: wanted.current?.name !== done }));
        }
      }
      running.current = false;
    })();
  }, [name]);
  return known !== undefined && state.data !== known ? { data: known, failure: null, busy: false } : state;
}
