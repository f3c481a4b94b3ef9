// What scripts import from https://jslib.k6.io/url/VERSION/index.js.
const native = globalThis.__linerate;
const PARTS = ['href', 'origin', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'hash'];

export class URLSearchParams {
  #pairs;
  #changed;

  constructor(init, changed) {
    this.#changed = changed;
    if (init === undefined || init === null) this.#pairs = [];
    else if (typeof init === 'object' && typeof init[Symbol.iterator] === 'function') {
      this.#pairs = Array.from(init, (pair) => {
        const [name, value, ...more] = pair;
        if (value === undefined || more.length > 0) throw new TypeError('URLSearchParams takes pairs of a name and a value');
        return [String(name), String(value)];
      });
    } else if (typeof init === 'object') this.#pairs = Object.entries(init).map(([name, value]) => [name, String(value)]);
    else this.#pairs = native.formPairs(String(init).replace(/^\?/, ''));
  }

  #set(pairs) {
    this.#pairs = pairs;
    if (typeof this.#changed === 'function') this.#changed(this.toString());
  }

  get size() { return this.#pairs.length; }
  append(name, value) { this.#set([...this.#pairs, [String(name), String(value)]]); }
  delete(name) { this.#set(this.#pairs.filter(([known]) => known !== String(name))); }
  get(name) { const found = this.#pairs.find(([known]) => known === String(name)); return found ? found[1] : null; }
  getAll(name) { return this.#pairs.filter(([known]) => known === String(name)).map(([, value]) => value); }
  has(name) { return this.get(name) !== null; }

  set(name, value) {
    const at = this.#pairs.findIndex(([known]) => known === String(name));
    if (at < 0) { this.append(name, value); return; }
    this.#set(this.#pairs.filter(([known], i) => known !== String(name) || i === at).map((pair, i) => (i === at ? [pair[0], String(value)] : pair)));
  }

  sort() { this.#set([...this.#pairs].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))); }
  forEach(f, self) { for (const [name, value] of this.#pairs) f.call(self, value, name, this); }
  * entries() { for (const [name, value] of this.#pairs) yield [name, value]; }
  * keys() { for (const [name] of this.#pairs) yield name; }
  * values() { for (const [, value] of this.#pairs) yield value; }
  [Symbol.iterator]() { return this.entries(); }
  toString() { return this.#pairs.map(([name, value]) => `${native.formEncode(name)}=${native.formEncode(value)}`).join('&'); }
}

export class URL {
  #parts;
  #search;

  constructor(url, base) {
    try {
      this.#parts = native.urlParts(String(url), base === undefined ? undefined : String(base));
    } catch (error) { throw new TypeError(error.message); }
    this.#follow();
  }

  #follow() {
    this.#search = new URLSearchParams(this.search, (text) => { this.#parts = native.urlWith(this.href, 'search', text); });
  }

  #set(part, value) { this.#parts = native.urlWith(this.href, part, String(value)); }

  get href() { return this.#parts[0]; }
  set href(value) { this.#parts = native.urlParts(String(value)); this.#follow(); }
  get searchParams() { return this.#search; }
  toString() { return this.href; }
  toJSON() { return this.href; }

  static {
    PARTS.forEach((part, at) => {
      if (part === 'href') return;
      const accessor = { configurable: true, enumerable: true, get() { return this.#parts[at]; } };
      if (part !== 'origin') accessor.set = function set(value) { this.#set(part, value); if (part === 'search') this.#follow(); };
      Object.defineProperty(this.prototype, part, accessor);
    });
  }
}

export default { URL, URLSearchParams };
