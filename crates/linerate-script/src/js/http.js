// The module `k6/http`.
const native = globalThis.__linerate;

class FileData {
  constructor(data, filename, contentType) {
    this.data = data;
    this.filename = filename;
    this.content_type = contentType;
  }
}

export function file(data, filename, contentType) {
  const name = filename === undefined ? String(Math.floor(Math.random() * 1e18)) : String(filename);
  return new FileData(data, name, contentType === undefined ? 'application/octet-stream' : String(contentType));
}

function isBytes(body) {
  return body instanceof ArrayBuffer || ArrayBuffer.isView(body);
}

// [body, its content type] of an object.
function encoded(body) {
  const pairs = [];
  let hasFile = false;
  for (const key of Object.keys(body)) {
    const value = body[key];
    for (const one of Array.isArray(value) ? value : [value]) {
      hasFile = hasFile || one instanceof FileData;
      pairs.push([key, one]);
    }
  }
  if (hasFile) return native.multipart(pairs.map(([key, v]) =>
    v instanceof FileData ? [key, v.data, v.filename, v.content_type] : [key, String(v)]));
  const text = pairs.map(([key, v]) => `${native.formEncode(key)}=${native.formEncode(text_of(v))}`).join('&');
  return [text, 'application/x-www-form-urlencoded'];
}

function text_of(value) {
  return value !== null && typeof value === 'object' ? JSON.stringify(value) : String(value);
}

function prepared(method, url, body, params) {
  if (ArrayBuffer.isView(body)) body = body.buffer.slice(body.byteOffset, body.byteOffset + body.byteLength);
  if (body !== null && typeof body === 'object' && !isBytes(body)) {
    const [bytes, type] = encoded(body);
    return [method, url, bytes, params, type];
  }
  return [method, url, body, params];
}

class Timings {
  constructor(raw) {
    this.blocked = raw[7];
    this.connecting = raw[8];
    this.tls_handshaking = raw[9];
    this.sending = raw[10];
    this.waiting = raw[11];
    this.receiving = raw[12];
    this.duration = this.sending + this.waiting + this.receiving;
    this.looking_up = 0;
  }
}

function own(object, name, value) {
  Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
  return value;
}

// Names and values in turns.
function fields(joined) {
  return joined === '' ? [] : joined.split('\n');
}

export class Response {
  #raw;

  constructor(raw) {
    this.#raw = raw;
    this.status = raw[0];
    this.url = raw[1];
    this.body = raw[2];
    this.error = raw[3];
    this.error_code = raw[4];
    this.proto = raw[5];
  }

  get status_text() { return native.statusText(this.status); }
  get remote_ip() { return this.#raw[13]; }
  get remote_port() { return this.#raw[14]; }
  get timings() { return own(this, 'timings', new Timings(this.#raw)); }
  get tls_version() { return ''; }
  get tls_cipher_suite() { return ''; }
  get ocsp() { return { status: 'unknown' }; }

  get headers() {
    const all = {};
    const flat = fields(this.#raw[6]);
    for (let i = 0; i < flat.length; i += 2) {
      const name = native.canonical(flat[i]);
      all[name] = name in all ? `${all[name]}, ${flat[i + 1]}` : flat[i + 1];
    }
    return own(this, 'headers', all);
  }

  get cookies() { return own(this, 'cookies', native.setCookies(fields(this.#raw[6]))); }

  get request() {
    const [method, body] = [this.#raw[15], this.#raw[16]];
    const flat = fields(this.#raw[17]);
    const url = this.url;
    const headers = {};
    const cookies = {};
    for (let i = 0; i < flat.length; i += 2) {
      (headers[native.canonical(flat[i])] ??= []).push(flat[i + 1]);
      if (flat[i].toLowerCase() !== 'cookie') continue;
      for (const pair of flat[i + 1].split('; ')) {
        const at = pair.indexOf('=');
        const name = pair.slice(0, at);
        (cookies[name] ??= []).push({ name, value: pair.slice(at + 1), replace: false });
      }
    }
    return own(this, 'request', { method, url, body, headers, cookies });
  }

  json(selector) {
    if (this.body === null) throw new Error('the body is null so we can\'t transform it to JSON - this likely was because of a request error getting the response');
    if (selector === undefined) return native.parseJson(this.body);
    return native.pickJson(this.body, String(selector));
  }

  html(selector) {
    if (this.body === null) throw new Error('the body is null so we can\'t transform it to HTML - this likely was because of a request error getting the response');
    const page = (native.html ??= native.loadHtml()).parseHTML(String(this.body), this.url);
    return selector === undefined ? page : page.find(selector);
  }

  submitForm(given) {
    const { formSelector = 'form', fields = {}, submitSelector = '[type="submit"]', params } = given || {};
    const form = this.html(formSelector).first();
    if (form.size() === 0) throw new Error(`no form found for selector '${formSelector}' in response '${this.url}'`);
    const values = { ...form.serializeObject() };
    const submit = form.find(submitSelector).first();
    if (submit.attr('name')) values[submit.attr('name')] = submit.val() || '';
    Object.assign(values, fields);
    const method = (form.attr('method') || 'GET').toUpperCase();
    const target = native.urlParts(form.attr('action') || '', this.url)[0];
    if (method !== 'GET') return request(method, target, values, params);
    return get(native.urlWith(target, 'search', encoded(values)[0])[0], params);
  }

  clickLink(given) {
    const { selector = 'a[href]', params } = given || {};
    const link = this.html(selector).first();
    if (link.size() === 0) throw new Error(`no element found for selector '${selector}' in response '${this.url}'`);
    const href = link.attr('href');
    if (href === undefined) throw new Error(`no valid href attribute value found on element '${selector}' in response '${this.url}'`);
    return get(native.urlParts(href, this.url)[0], params);
  }

  toJSON() {
    const { status, url, body, error, error_code, proto, headers, cookies, timings, status_text, remote_ip, remote_port } = this;
    return { remote_ip, remote_port, url, status, status_text, proto, headers, cookies, body, timings, error, error_code, request: this.request };
  }
}

export function request(method, url, body, params) {
  return new Response(native.send([prepared(String(method).toUpperCase(), url, body, params)])[0]);
}

export function get(url, params) { return new Response(native.send([['GET', url, null, params]])[0]); }
export function head(url, params) { return new Response(native.send([['HEAD', url, null, params]])[0]); }
export function post(url, body, params) { return request('POST', url, body, params); }
export function put(url, body, params) { return request('PUT', url, body, params); }
export function patch(url, body, params) { return request('PATCH', url, body, params); }
export function del(url, body, params) { return request('DELETE', url, body, params); }
export function options(url, body, params) { return request('OPTIONS', url, body, params); }

export function asyncRequest(method, url, body, params) {
  try {
    return native.later(prepared(String(method).toUpperCase(), url, body, params)).then((raw) => new Response(raw));
  } catch (error) {
    return Promise.reject(error);
  }
}

function batched(entry) {
  if (typeof entry === 'string' || (entry && entry.__isUrl)) return ['GET', entry, null, undefined];
  if (Array.isArray(entry)) return prepared(String(entry[0]).toUpperCase(), entry[1], entry[2], entry[3]);
  if (entry !== null && typeof entry === 'object') {
    return prepared(String(entry.method === undefined ? 'GET' : entry.method).toUpperCase(), entry.url, entry.body, entry.params);
  }
  throw new TypeError('http.batch() takes URLs, arrays [method, url, body, params] and objects');
}

export function batch(entries) {
  if (Array.isArray(entries)) return native.send(entries.map(batched)).map((raw) => new Response(raw));
  const names = Object.keys(entries);
  const ended = native.send(names.map((name) => batched(entries[name])));
  return Object.fromEntries(names.map((name, i) => [name, new Response(ended[i])]));
}

export function url(parts, ...values) {
  let name = parts[0];
  let whole = parts[0];
  for (let i = 0; i < values.length; i++) {
    name += '${}' + parts[i + 1];
    whole += String(values[i]) + parts[i + 1];
  }
  return { __isUrl: true, name, url: whole, toString() { return whole; } };
}

export function expectedStatuses(...all) {
  return all.map((one) => {
    if (typeof one === 'number') return [one, one];
    if (one && typeof one.min === 'number' && typeof one.max === 'number') return [one.min, one.max];
    throw new TypeError('expectedStatuses() takes numbers and objects { min, max }');
  });
}

export function setResponseCallback(callback) {
  if (callback !== null && !Array.isArray(callback)) throw new TypeError('setResponseCallback() takes what expectedStatuses() returns, or null');
  native.setExpected(callback);
}

export class CookieJar {
  constructor(id) {
    Object.defineProperty(this, '__jar', { value: id === undefined ? native.newJar() : id });
  }

  cookiesForURL(url) { return native.jarCookies(this.__jar, String(url)); }
  set(url, name, value, options) { native.jarSet(this.__jar, String(url), String(name), String(value), options || {}); }
  clear(url) { native.jarClear(this.__jar, String(url)); }
  delete(url, name) { native.jarDelete(this.__jar, String(url), String(name)); }
}

export function cookieJar() { return new CookieJar(0); }

const constants = {
  TLS_1_0: 'tls1.0', TLS_1_1: 'tls1.1', TLS_1_2: 'tls1.2', TLS_1_3: 'tls1.3', SSL_3_0: 'ssl3.0',
  OCSP_STATUS_GOOD: 'good', OCSP_STATUS_REVOKED: 'revoked', OCSP_STATUS_UNKNOWN: 'unknown',
  OCSP_STATUS_SERVER_FAILED: 'server_failed',
};

export default {
  get, head, post, put, patch, del, options, request, asyncRequest, batch, url, file, expectedStatuses,
  setResponseCallback, CookieJar, cookieJar, Response, ...constants,
};
