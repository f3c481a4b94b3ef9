// The module `k6/metrics`.
const native = globalThis.__linerate;

class Metric {
  constructor(kind, name, isTime) {
    Object.defineProperty(this, '__id', { value: native.metric(kind, String(name), !!isTime) });
    this.name = String(name);
  }

  add(value, tags) { return native.addSample(this.__id, value === true ? 1 : value === false ? 0 : Number(value), tags); }
}

export class Counter extends Metric { constructor(name, isTime) { super('counter', name, isTime); } }
export class Gauge extends Metric { constructor(name, isTime) { super('gauge', name, isTime); } }
export class Trend extends Metric { constructor(name, isTime) { super('trend', name, isTime); } }
export class Rate extends Metric {
  constructor(name, isTime) { super('rate', name, isTime); }
  add(value, tags) { return native.addSample(this.__id, value ? 1 : 0, tags); }
}

export default { Counter, Gauge, Rate, Trend };
