// The module `k6/data`.
const native = globalThis.__linerate;

function frozen(value) {
  if (value !== null && typeof value === 'object') {
    Object.values(value).forEach(frozen);
    Object.freeze(value);
  }
  return value;
}

const isIndex = (key) => typeof key === 'string' && /^(0|[1-9]\d*)$/.test(key);

const handler = {
  get(target, key, receiver) {
    if (key === 'length') return target.__length;
    if (isIndex(key)) {
      const text = native.sharedItem(target.__name, Number(key));
      return text === undefined ? undefined : frozen(JSON.parse(text));
    }
    return Reflect.get(target, key, receiver);
  },
  has(target, key) { return isIndex(key) ? Number(key) < target.__length : Reflect.has(target, key); },
  set(target, key) { throw new TypeError(`SharedArray is immutable: "${String(key)}" cannot be set`); },
  deleteProperty(target, key) { throw new TypeError(`SharedArray is immutable: "${String(key)}" cannot be deleted`); },
  ownKeys(target) { return [...Array.from({ length: target.__length }, (_, i) => String(i)), '__length', '__name', 'length']; },
  getOwnPropertyDescriptor(target, key) {
    if (!isIndex(key)) return Reflect.getOwnPropertyDescriptor(target, key);
    return Number(key) < target.__length
      ? { value: handler.get(target, key, target), enumerable: true, configurable: true, writable: false } : undefined;
  },
};

export class SharedArray {
  constructor(name, f) {
    if (typeof name !== 'string' || name === '') throw new TypeError('SharedArray needs a name that is not empty');
    if (typeof f !== 'function') throw new TypeError('SharedArray needs a function that returns an array');
    let length = native.sharedLength(name);
    if (length === undefined) {
      const items = f();
      if (!Array.isArray(items)) throw new TypeError('only arrays can be made into SharedArray');
      native.shareArray(name, items.map((item) => JSON.stringify(item === undefined ? null : item)));
      length = items.length;
    }
    const target = Object.create(Array.prototype, {
      __name: { value: name, configurable: true },
      __length: { value: length, configurable: true },
      length: { value: length, configurable: true },
    });
    return new Proxy(target, handler);
  }
}

export default { SharedArray };
