// Timers and requests in the background; runs before every script.
(() => {
  const native = globalThis.__linerate;
  // Reason: each turn looks at all of them.
  const TIMERS = 1000;
  const timers = new Map();
  const rejected = new Map();
  let last = 0;
  let waiting = [];

  const added = (name, isRepeated, f, delay, values) => {
    if (typeof f !== 'function') throw new TypeError(`${name}() needs a function`);
    if (timers.size >= TIMERS) throw new Error(`more than ${TIMERS} timers at a time`);
    // Even without a delay a script gives others a turn.
    const pause = Math.max(Number(delay) || 0, 1);
    last += 1;
    timers.set(last, { id: last, f, values, pause, isRepeated, due: native.startTimer() + pause });
    return last;
  };
  const removed = (id) => { timers.delete(id); };

  globalThis.setTimeout = (f, delay, ...values) => added('setTimeout', false, f, delay, values);
  globalThis.setInterval = (f, delay, ...values) => added('setInterval', true, f, delay, values);
  globalThis.clearTimeout = removed;
  globalThis.clearInterval = removed;

  // A request that leaves at the next turn, and the promise of what came of it.
  native.later = (entry) => new Promise((resolve, reject) => {
    native.queue(entry);
    waiting.push([resolve, reject]);
  });

  native.promised = (promise, reason, isHandled) => {
    if (isHandled) rejected.delete(promise);
    else rejected.set(promise, reason);
  };

  const answered = () => {
    const all = waiting;
    waiting = [];
    const throws = native.throwsOnFailure();
    native.sendQueued().forEach((raw, i) => {
      const [resolve, reject] = all[i];
      if (throws && raw[3] !== '') reject(new Error(raw[3]));
      else resolve(raw);
    });
  };

  // Runs what is due next; whether there was anything. What nobody caught is thrown.
  native.turn = () => {
    for (const reason of rejected.values()) { rejected.clear(); throw reason; }
    if (waiting.length > 0) { answered(); return true; }
    let next;
    for (const timer of timers.values()) if (next === undefined || timer.due < next.due) next = timer;
    if (next === undefined) return false;
    native.pauseUntil(next.due);
    if (next.isRepeated) next.due += next.pause;
    else timers.delete(next.id);
    next.f(...next.values);
    return true;
  };

  // Forgets what an iteration that was cut off has left.
  native.forget = () => { timers.clear(); rejected.clear(); waiting = []; };
})();
