// The module `k6`.
const native = globalThis.__linerate;

export function check(value, sets, tags) {
  if (sets === null || typeof sets !== 'object') throw new TypeError('check() needs an object of conditions');
  let all = true;
  for (const name of Object.keys(sets)) {
    const condition = sets[name];
    let passes;
    try {
      passes = typeof condition === 'function' ? condition(value) : condition;
    } catch (error) {
      native.check(name, false, tags);
      throw error;
    }
    if (passes instanceof Promise) throw new TypeError(`check "${name}" is an async function: await its value before check()`);
    passes = !!passes;
    native.check(name, passes, tags);
    all = all && passes;
  }
  return all;
}

export function sleep(seconds) {
  native.sleep(Number(seconds));
}

export function group(name, f) {
  if (typeof f !== 'function') throw new TypeError('group() needs a name and a function');
  if (f.constructor && f.constructor.name === 'AsyncFunction') throw new TypeError('group() does not take async functions');
  const since = native.enterGroup(String(name));
  try {
    return f();
  } finally {
    native.leaveGroup(since);
  }
}

export function fail(message) {
  throw new Error(message === undefined ? '' : String(message));
}

export function randomSeed(seed) {
  native.seed(Number(seed));
  Math.random = native.random;
}

export default { check, sleep, group, fail, randomSeed };
