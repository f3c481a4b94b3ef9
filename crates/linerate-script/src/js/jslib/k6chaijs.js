// What scripts import from https://jslib.k6.io/k6chaijs/VERSION/index.js: assertions, each of which counts as a check.
import { check, group } from 'k6';

const config = { truncateMsgThreshold: 300, truncateVariableThreshold: 100, aggregateChecks: true, logFailures: false, exitOnError: false };

export class AssertionError extends Error {
  constructor(message, properties) {
    super(message);
    Object.assign(this, properties);
    this.name = 'AssertionError';
  }
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most)}...` : text);

function shown(value, depth = 0) {
  if (typeof value === 'string') return `'${value}'`;
  if (typeof value === 'function') return value.name ? `[Function ${value.name}]` : '[Function]';
  if (value === null || typeof value !== 'object') return value === 0 ? (Object.is(value, -0) ? '-0' : '+0') : String(value);
  if (value instanceof RegExp) return String(value);
  if (value instanceof Error || value instanceof Date) return String(value);
  if (depth > 2) return Array.isArray(value) ? '[Array]' : '[Object]';
  if (Array.isArray(value)) return value.length === 0 ? '[]' : `[ ${value.map((one) => shown(one, depth + 1)).join(', ')} ]`;
  const pairs = Object.keys(value).map((key) => `${key}: ${shown(value[key], depth + 1)}`);
  return pairs.length === 0 ? '{}' : `{ ${pairs.join(', ')} }`;
}

const brief = (value) => cut(shown(value), config.truncateVariableThreshold);
const kind = (value) => (value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value !== 'object' ? typeof value
  : Object.prototype.toString.call(value).slice(8, -1).toLowerCase());

function same(a, b) {
  if (Object.is(a, b)) return true;
  if (a === null || b === null || typeof a !== 'object' || typeof b !== 'object' || kind(a) !== kind(b)) return false;
  if (a instanceof Date) return a.getTime() === b.getTime();
  if (a instanceof RegExp) return String(a) === String(b);
  if (a instanceof Map || a instanceof Set) return same([...a], [...b]);
  const [own, others] = [Object.keys(a), Object.keys(b)];
  return own.length === others.length && own.every((key) => Object.prototype.hasOwnProperty.call(b, key) && same(a[key], b[key]));
}

const sizeOf = (value) => (value instanceof Map || value instanceof Set ? value.size : value.length);

export class Assertion {
  constructor(value, message) {
    Object.defineProperty(this, '__', { value: { value, message }, configurable: true });
  }

  get _obj() { return this.__.value; }

  // Counts a check, and throws if it does not hold. Of {this}, {exp} and {act} the words of a check are made.
  assert(holds, words, negated, expected, actual = this.__.value) {
    const flags = this.__;
    const passes = flags.not ? !holds : !!holds;
    const template = (flags.not ? negated : words).replaceAll('{exp}', () => brief(expected));
    const seen = (value) => (flags.isHidden ? '<anonymized>' : brief(value));
    const concrete = template.replaceAll('{this}', () => seen(flags.value)).replaceAll('{act}', () => seen(actual));
    const whole = flags.message === undefined ? concrete : `${flags.message}: ${concrete}`;
    const name = config.aggregateChecks
      ? template.replaceAll('{this}', () => flags.message || '${this}').replace('but got {act}', () => 'got ${actual}').replaceAll('{act}', () => '${actual}') : whole;
    check(null, { [cut(name, config.truncateMsgThreshold)]: passes });
    if (passes) return this;
    if (config.logFailures) console.warn(whole);
    throw new AssertionError(cut(whole, config.truncateMsgThreshold), { actual, expected, showDiff: false });
  }

  // The same value with another flag.
  with_(flags) {
    const next = new Assertion(this.__.value, this.__.message);
    Object.assign(next.__, this.__, flags);
    return next;
  }

  named(message) { return message === undefined ? this : this.with_({ message }); }

  equal(value, message) {
    const own = this.named(message);
    if (this.__.deep) return own.eql(value);
    return own.assert(this.__.value === value, 'expected {this} to equal {exp}', 'expected {this} to not equal {exp}', value);
  }

  eql(value, message) {
    return this.named(message).assert(same(this.__.value, value), 'expected {this} to deeply equal {exp}', 'expected {this} to not deeply equal {exp}', value);
  }

  a(type, message) {
    const word = String(type).toLowerCase();
    const article = 'aeiou'.includes(word[0]) ? 'an' : 'a';
    return this.named(message).assert(kind(this.__.value) === word, `expected {this} to be ${article} ${word}`, `expected {this} not to be ${article} ${word}`);
  }

  // What another assertion takes for granted: a check of its own, as with the original.
  #isA(type, value = this.__.value) { new Assertion(value, this.__.message).a(type); }

  #compared(value, message, holds, words) {
    const own = this.named(message);
    if (this.__.counts) {
      if (!(this.__.value instanceof Map || this.__.value instanceof Set)) new Assertion(this.__.value, own.__.message).property('length');
      const size = sizeOf(this.__.value);
      return own.assert(holds(size, value), `expected {this} to have a length ${words} {exp} but got {act}`, `expected {this} to not have a length ${words} {exp}`, value, size);
    }
    if (typeof this.__.value !== 'number' && !(this.__.value instanceof Date)) return own.assert(!!this.__.not, 'expected {this} to be a number or a date', 'expected {this} to be a number or a date');
    return own.assert(holds(this.__.value, value), `expected {this} to be ${words} {exp}`, `expected {this} not to be ${words} {exp}`, value);
  }

  above(value, message) { return this.#compared(value, message, (a, b) => a > b, 'above'); }
  below(value, message) { return this.#compared(value, message, (a, b) => a < b, 'below'); }
  least(value, message) { return this.#compared(value, message, (a, b) => a >= b, 'at least'); }
  most(value, message) { return this.#compared(value, message, (a, b) => a <= b, 'at most'); }

  within(low, high, message) {
    const value = this.__.counts ? sizeOf(this.__.value) : this.__.value;
    const what = this.__.counts ? 'have a length within' : 'be within';
    return this.named(message).assert(value >= low && value <= high, `expected {this} to ${what} ${low}..${high}`, `expected {this} to not ${what} ${low}..${high}`);
  }

  closeTo(value, delta, message) {
    this.named(message).#isA('number');
    return this.named(message).assert(Math.abs(this.__.value - value) <= delta, `expected {this} to be close to ${value} +/- ${delta}`, `expected {this} not to be close to ${value} +/- ${delta}`);
  }

  lengthOf(size, message) {
    const actual = this.__.value === null || this.__.value === undefined ? undefined : sizeOf(this.__.value);
    if (!(this.__.value instanceof Map || this.__.value instanceof Set)) new Assertion(this.__.value, message ?? this.__.message).property('length');
    return this.named(message).assert(actual === size, 'expected {this} to have a length of {exp} but got {act}', 'expected {this} to not have a length of {exp}', size, actual);
  }

  property(...given) {
    const [name, value, message] = given;
    const path = this.__.nested ? String(name).replace(/\[(\d+)\]/g, '.$1').split('.') : [name];
    let [at, has] = [this.__.value, true];
    for (const key of path) {
      has = at !== null && at !== undefined && (this.__.own ? Object.prototype.hasOwnProperty.call(at, key) : key in Object(at));
      at = has ? at[key] : undefined;
      if (!has) break;
    }
    const own = this.named(message);
    const what = `${this.__.deep ? 'deep ' : ''}${this.__.nested ? 'nested ' : ''}${this.__.own ? 'own ' : ''}property ${shown(name)}`;
    if (given.length < 2 || !this.__.not) own.assert(has, `expected {this} to have ${what}`, `expected {this} to not have ${what}`);
    if (given.length > 1) {
      const holds = has && (this.__.deep ? same(at, value) : at === value);
      own.assert(holds, `expected {this} to have ${what} of {exp}, but got {act}`, `expected {this} to not have ${what} of {exp}`, value, at);
    }
    const next = own.with_({ not: false });
    next.__.value = at;
    return next;
  }

  include(value, message) {
    const own = this.named(message);
    const all = this.__.value;
    const equals = this.__.deep ? same : (a, b) => a === b;
    let holds;
    if (typeof all === 'string') holds = all.includes(value);
    else if (Array.isArray(all) || all instanceof Set) holds = [...all].some((one) => equals(one, value));
    else if (all instanceof Map) holds = [...all.values()].some((one) => equals(one, value));
    else if (all !== null && typeof all === 'object' && value !== null && typeof value === 'object') {
      const words = { not: this.__.not, deep: this.__.deep };
      for (const key of Object.keys(value)) own.with_(words).property(key, value[key]);
      return own;
    } else return own.assert(!!this.__.not, 'expected {this} to be something that can include values', 'expected {this} to be something that can include values');
    const words = this.__.deep ? 'deep include' : 'include';
    return own.assert(holds, `expected {this} to ${words} {exp}`, `expected {this} to not ${words} {exp}`, value);
  }

  keys(...given) {
    const all = given.length === 1 && Array.isArray(given[0]) ? given[0] : given.length === 1 && kind(given[0]) === 'object' ? Object.keys(given[0]) : given;
    const own = this.__.value instanceof Map || this.__.value instanceof Set ? [...this.__.value.keys()] : Object.keys(this.__.value);
    const has = all.map((key) => own.includes(typeof key === 'number' ? String(key) : key));
    const holds = this.__.any ? has.some((one) => one) : has.every((one) => one) && (this.__.contains || all.length === own.length);
    const words = `${this.__.contains ? 'contain' : 'have'} ${all.length > 1 ? 'keys' : 'key'} ${all.map((key) => shown(key)).join(', ').replace(/, (?=[^,]*$)/, this.__.any ? ', or ' : ', and ')}`;
    return this.assert(holds, `expected {this} to ${words}`, `expected {this} to not ${words}`, all, own);
  }

  members(set, message) {
    this.named(message).#isA('array');
    this.named(message).#isA('array', set);
    const equals = this.__.deep ? same : (a, b) => a === b;
    const left = [...this.__.value];
    const all = set.every((one, i) => {
      const at = this.__.ordered ? (left.length > i && equals(left[i], one) ? i : -1) : left.findIndex((other) => equals(other, one));
      if (at >= 0 && !this.__.ordered && !this.__.contains) left.splice(at, 1);
      return at >= 0;
    });
    const holds = all && (this.__.contains || set.length === this.__.value.length);
    const words = `${this.__.contains ? 'be a superset of' : this.__.ordered ? 'have the same ordered members as' : 'have the same members as'}`;
    return this.named(message).assert(holds, `expected {this} to ${words} {exp}`, `expected {this} to not ${words} {exp}`, set);
  }

  oneOf(list, message) {
    this.named(message).#isA('array', list);
    const equals = this.__.deep ? same : (a, b) => a === b;
    return this.named(message).assert(list.some((one) => equals(one, this.__.value)), 'expected {this} to be one of {exp}', 'expected {this} to not be one of {exp}', list);
  }

  match(pattern, message) { return this.named(message).assert(pattern.test(this.__.value), `expected {this} to match ${pattern}`, `expected {this} not to match ${pattern}`); }

  string(part, message) {
    this.named(message).#isA('string');
    return this.named(message).assert(typeof this.__.value === 'string' && this.__.value.includes(part), 'expected {this} to contain {exp}', 'expected {this} to not contain {exp}', part);
  }

  instanceof(type, message) {
    return this.named(message).assert(this.__.value instanceof type, `expected {this} to be an instance of ${type.name}`, `expected {this} to not be an instance of ${type.name}`);
  }

  satisfy(condition, message) { return this.named(message).assert(condition(this.__.value), `expected {this} to satisfy ${shown(condition)}`, `expected {this} to not satisfy ${shown(condition)}`); }

  throw(type, pattern) {
    this.#isA('function');
    let [thrown, error] = [false, undefined];
    try { this.__.value(); } catch (caught) { [thrown, error] = [true, caught]; }
    const isWords = typeof type === 'string' || type instanceof RegExp;
    const words = isWords ? type : pattern;
    const message = error instanceof Error ? error.message : String(error);
    const fits = words === undefined || (words instanceof RegExp ? words.test(message) : message.includes(words));
    const isKind = isWords || type === undefined || (typeof type === 'function' ? error instanceof type : error === type);
    const what = isWords || type === undefined ? 'an error' : typeof type === 'function' ? type.name : shown(type);
    return this.assert(thrown && fits && isKind, `expected {this} to throw ${what}`, `expected {this} to not throw ${what}`);
  }

  // The value does not show in messages.
  anonymize() { return this.with_({ isHidden: true }); }

  validJsonBody() {
    let holds = true;
    try { this.__.value.json(); } catch (error) { holds = false; }
    return this.assert(holds, 'has valid json body', 'does not have a valid json body');
  }
}

const prototype = Assertion.prototype;

function getter(name, get) { Object.defineProperty(prototype, name, { get, configurable: true }); }

for (const word of ['to', 'be', 'been', 'is', 'that', 'which', 'and', 'has', 'have', 'with', 'at', 'of', 'same', 'but', 'does', 'still', 'also']) {
  getter(word, function chained() { return this; });
}
for (const [word, flags] of Object.entries({
  not: { not: true }, deep: { deep: true }, nested: { nested: true }, own: { own: true }, ordered: { ordered: true }, any: { any: true, all: false }, all: { any: false },
})) getter(word, function flagged() { return this.with_(flags); });

for (const [word, holds, words] of [
  ['ok', (value) => !!value, 'truthy'], ['true', (value) => value === true, 'true'], ['false', (value) => value === false, 'false'],
  ['null', (value) => value === null, 'null'], ['undefined', (value) => value === undefined, 'undefined'], ['NaN', (value) => Number.isNaN(value), 'NaN'],
]) {
  const [yes, no] = [`expected {this} to be ${words}`, word === 'ok' ? 'expected {this} to be falsy' : `expected {this} to not be ${words}`];
  getter(word, function judged() { return this.assert(holds(this.__.value), yes, no); });
}
for (const word of ['exist', 'exists']) {
  getter(word, function exists() { return this.assert(this.__.value !== null && this.__.value !== undefined, 'expected {this} to exist', 'expected {this} to not exist'); });
}
getter('empty', function empty() {
  const value = this.__.value;
  const size = typeof value === 'string' || Array.isArray(value) ? value.length : value instanceof Map || value instanceof Set ? value.size : Object.keys(Object(value)).length;
  return this.assert(size === 0, 'expected {this} to be empty', 'expected {this} not to be empty');
});

// Words that are called, or that change what follows: `.an('array').that.includes`, `.lengthOf.above(3)`.
function both(names, method, flags) {
  for (const name of names) {
    getter(name, function chainable() {
      const self = this.with_(flags);
      const get = (_, key) => {
        const value = self[key];
        return typeof value === 'function' && Object.hasOwn(value, 'name') ? value.bind(self) : value;
      };
      return new Proxy(method, { get, apply: (_, __, given) => method.apply(this, given) });
    });
  }
}
const { a, include, lengthOf } = prototype;
both(['a', 'an'], a, {});
both(['include', 'includes', 'contain', 'contains'], include, { contains: true });
both(['lengthOf', 'length'], lengthOf, { counts: true });

for (const [name, others] of Object.entries({
  equal: ['equals', 'eq'], eql: ['eqls'], above: ['gt', 'greaterThan'], below: ['lt', 'lessThan'], least: ['gte', 'greaterThanOrEqual'],
  most: ['lte', 'lessThanOrEqual'], closeTo: ['approximately'], property: [], keys: ['key'], match: ['matches'], instanceof: ['instanceOf'],
  satisfy: ['satisfies'], throw: ['throws', 'Throw'],
})) others.forEach((other) => { prototype[other] = prototype[name]; });

export function expect(value, message) { return new Assertion(value, message); }
expect.fail = (message) => { throw new AssertionError(message === undefined ? 'expect.fail()' : String(message), {}); };

export function describe(name, f) {
  let passes = true;
  group(name, () => {
    try {
      f();
    } catch (error) {
      passes = false;
      if (error instanceof AssertionError) return;
      check(null, { [`Exception raised "${error}"`]: false });
      console.error(`Exception raised in test "${name}". Failing the test and continuing.\n${error.stack}`);
      if (config.exitOnError) throw error;
    }
  });
  return passes;
}

const chai = { config, expect, describe, Assertion, AssertionError };
export { chai, config };
export default chai;
