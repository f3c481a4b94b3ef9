// What scripts import from https://jslib.k6.io/httpx/VERSION/index.js.
import http from 'k6/http';

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'CONNECT', 'OPTIONS', 'TRACE', 'PATCH'];

// [url, params] of a URL that may be a template of http.url.
function named(url, params) {
  if (url === null || typeof url !== 'object' || !url.__isUrl) return [String(url), params];
  return [url.url, { ...params, tags: { ...params.tags, name: url.name } }];
}

export class Request {
  constructor(method, url, params) {
    const { body = null, ...rest } = params || {};
    this.method = method;
    this.body = body;
    [this.url, this.params] = named(url, rest);
  }

  addHeader(name, value) { this.params.headers = { ...this.params.headers, [name]: value }; return this; }
  addTag(name, value) { this.params.tags = { ...this.params.tags, [name]: value }; return this; }
}

export class Get extends Request { constructor(url, params) { super('GET', url, params); } }
export class Head extends Request { constructor(url, params) { super('HEAD', url, params); } }
export class Post extends Request { constructor(url, params) { super('POST', url, params); } }
export class Put extends Request { constructor(url, params) { super('PUT', url, params); } }
export class Patch extends Request { constructor(url, params) { super('PATCH', url, params); } }
export class Delete extends Request { constructor(url, params) { super('DELETE', url, params); } }
export class Options extends Request { constructor(url, params) { super('OPTIONS', url, params); } }

export class Httpx {
  #took = null;

  constructor(given = {}) {
    const { baseURL = '', headers = {}, tags = {}, errorMetric = null, errorMetricCondition, ...others } = given;
    this.baseURL = baseURL;
    this.errorMetric = errorMetric;
    this.errorMetricCondition = errorMetricCondition || ((response) => response.status >= 200 && response.status <= 399);
    this.k6params = { ...others, headers: { ...headers }, tags: { ...tags } };
  }

  get lastRequestChainDuration() { return this.#took; }
  setBaseUrl(url) { this.baseURL = url; }
  addHeader(name, value) { this.k6params.headers[name] = value; }
  addHeaders(headers) { Object.assign(this.k6params.headers, headers); }
  clearHeader(name) { delete this.k6params.headers[name]; }
  addTag(name, value) { this.k6params.tags[name] = value; }
  addTags(tags) { Object.assign(this.k6params.tags, tags); }
  clearTag(name) { delete this.k6params.tags[name]; }

  // The whole URL, and params over those of the session.
  #prepared(method, url, params) {
    if (!METHODS.includes(method)) throw new Error(`there is no method ${method}: ${METHODS.join(', ')}`);
    const own = this.k6params;
    const [path, given] = named(url, params || {});
    const merged = { ...own, ...given, headers: { ...own.headers, ...given.headers }, tags: { ...own.tags, ...given.tags } };
    return [path.startsWith('http') ? path : this.baseURL + path, merged];
  }

  #judged(response, params) {
    if (this.errorMetric) this.errorMetric.add(!(params.expect || this.errorMetricCondition)(response));
    return response;
  }

  request(method, url, body, params) {
    const [whole, merged] = this.#prepared(method, url, params);
    const since = Date.now();
    const response = http.request(method, whole, body, merged);
    this.#took = Date.now() - since;
    return this.#judged(response, merged);
  }

  asyncRequest(method, url, body, params) {
    const [whole, merged] = this.#prepared(method, url, params);
    return http.asyncRequest(method, whole, body, merged);
  }

  execute(request) { return this.request(request.method, request.url, request.body, request.params); }

  batch(requests, params) {
    const entries = requests.map((request) => {
      const extra = params || {};
      const both = { ...extra, ...request.params, headers: { ...extra.headers, ...request.params.headers }, tags: { ...extra.tags, ...request.params.tags } };
      const [url, merged] = this.#prepared(request.method, request.url, both);
      return [request.method, url, request.body, merged];
    });
    const since = Date.now();
    const responses = http.batch(entries);
    this.#took = Date.now() - since;
    return responses.map((response, i) => this.#judged(response, entries[i][3]));
  }

  get(url, body, params) { return this.request('GET', url, body, params); }
  head(url, body, params) { return this.request('HEAD', url, body, params); }
  post(url, body, params) { return this.request('POST', url, body, params); }
  put(url, body, params) { return this.request('PUT', url, body, params); }
  patch(url, body, params) { return this.request('PATCH', url, body, params); }
  delete(url, body, params) { return this.request('DELETE', url, body, params); }
  options(url, body, params) { return this.request('OPTIONS', url, body, params); }
  asyncGet(url, body, params) { return this.asyncRequest('GET', url, body, params); }
  asyncHead(url, body, params) { return this.asyncRequest('HEAD', url, body, params); }
  asyncPost(url, body, params) { return this.asyncRequest('POST', url, body, params); }
  asyncPut(url, body, params) { return this.asyncRequest('PUT', url, body, params); }
  asyncPatch(url, body, params) { return this.asyncRequest('PATCH', url, body, params); }
  asyncDelete(url, body, params) { return this.asyncRequest('DELETE', url, body, params); }
  asyncOptions(url, body, params) { return this.asyncRequest('OPTIONS', url, body, params); }
}

export default Httpx;
