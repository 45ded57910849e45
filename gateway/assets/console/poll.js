// @ts-check
// One poll for the page that is shown: every five seconds while the tab is visible, slower after errors, never while
// it is hidden. A page that polls a second thing is a defect, which a test counts.
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem, call, session } from "./contract.js";

export const INTERVAL_MS = 5000;
const SLOWEST_MS = 60000;

/**
 * Loads a value and loads it again. `load` takes an AbortSignal. Returns the last value, when it came, the problem of
 * the last try, and a function that loads at once.
 */
export function usePoll(load, key, { isRepeated = true } = {}) {
  const [state, setState] = useState({ key: null, data: null, at: 0, problem: null });
  const again = useRef(() => {});
  useEffect(() => {
    let timer, failures = 0, control = null, isOver = false;
    const run = async () => {
      clearTimeout(timer);
      control?.abort();
      if (document.hidden || isOver) return;
      const mine = control = new AbortController();
      try {
        const data = await load(mine.signal);
        if (isOver || mine.signal.aborted) return;
        failures = 0;
        setState({ key, data, at: Date.now(), problem: null });
      } catch (error) {
        if (isOver || error.name === "AbortError") return;
        failures++;
        const problem = error instanceof Problem ? error : new Problem({ title: "The console failed", detail: String(error), code: "console_error", status: 0 });
        if (!(error instanceof Problem)) console.error(error);
        setState((before) => ({ ...(before.key === key ? before : { data: null, at: 0 }), key, problem }));
      }
      const wait = Math.min(INTERVAL_MS * 2 ** failures, SLOWEST_MS);
      if (isRepeated && !(session.need && failures)) timer = setTimeout(run, failures ? wait * (0.75 + Math.random() / 2) : wait);
    };
    again.current = run;
    const onShow = () => (document.hidden ? (clearTimeout(timer), control?.abort()) : run());
    document.addEventListener("visibilitychange", onShow);
    const stop = session.listen(() => session.need || run());
    run();
    return () => {
      isOver = true;
      clearTimeout(timer);
      control?.abort();
      stop();
      document.removeEventListener("visibilitychange", onShow);
    };
  }, [key]);
  const fresh = state.key === key ? state : { data: null, at: 0, problem: null };
  return { ...fresh, isRepeated, reload: () => again.current() };
}

/** Polls one call of the contract. */
export function useCall(name, request = {}, options = {}) {
  return usePoll((signal) => call(name, { ...request, signal }), JSON.stringify([name, request]), options);
}
