// The module `k6/execution`.
const native = globalThis.__linerate;
const now = (what) => native.execution(what);

export const scenario = {
  get name() { return now('scenario.name'); },
  get executor() { return now('scenario.executor'); },
  get startTime() { return now('scenario.startTime'); },
  get progress() { return now('scenario.progress'); },
  get iterationInInstance() { return now('scenario.iterationInInstance'); },
  get iterationInTest() { return now('scenario.iterationInTest'); },
};

export const instance = {
  get iterationsInterrupted() { return now('instance.iterationsInterrupted'); },
  get iterationsCompleted() { return now('instance.iterationsCompleted'); },
  get vusActive() { return now('instance.vusActive'); },
  get vusInitialized() { return now('instance.vusInitialized'); },
  get currentTestRunDuration() { return now('instance.currentTestRunDuration'); },
};

export const test = {
  abort(reason) { native.abort(reason === undefined ? '' : String(reason)); },
  fail(reason) { native.failTest(reason === undefined ? '' : String(reason)); },
  get options() { return JSON.parse(native.optionsJson()); },
};

const tags = new Proxy({}, {
  get: (_, key) => (typeof key === 'string' ? native.wideTag(key) : undefined),
  set(_, key, value) {
    if (!['string', 'number', 'boolean'].includes(typeof value)) throw new TypeError(`the tag "${String(key)}" must be a string, a number or a boolean`);
    native.setWideTag(String(key), String(value));
    return true;
  },
  deleteProperty(_, key) { native.setWideTag(String(key), undefined); return true; },
});

export const vu = {
  get iterationInInstance() { return now('vu.iteration'); },
  get iterationInScenario() { return now('vu.iterationInScenario'); },
  get idInInstance() { return now('vu.id'); },
  get idInTest() { return now('vu.id'); },
  tags,
  metrics: { tags, metadata: {} },
};

export default { scenario, instance, test, vu };
