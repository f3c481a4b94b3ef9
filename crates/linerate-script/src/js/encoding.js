// The module `k6/encoding`.
const native = globalThis.__linerate;

export function b64encode(input, encoding) { return native.b64encode(input, encoding === undefined ? 'std' : String(encoding)); }
export function b64decode(input, encoding, format) {
  return native.b64decode(String(input), encoding === undefined ? 'std' : String(encoding), format === 's');
}

export default { b64encode, b64decode };
