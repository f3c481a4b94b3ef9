// What scripts import from https://jslib.k6.io/formdata/VERSION/index.js.
const native = globalThis.__linerate;

export class FormData {
  constructor() {
    const random = Array.from(new Uint8Array(native.randomBytes(16)), (byte) => byte.toString(16).padStart(2, '0'));
    this.boundary = `----linerate-form-${random.join('')}`;
    this.parts = [];
  }

  append(name, value, filename) {
    const isObject = value !== null && typeof value === 'object';
    const isBytes = value instanceof ArrayBuffer || ArrayBuffer.isView(value);
    if (isObject && !isBytes && 'data' in value) {
      const type = value.content_type === undefined ? 'application/octet-stream' : String(value.content_type);
      this.parts.push([String(name), value.data, String(value.filename === undefined ? filename || 'blob' : value.filename), type]);
    } else if (isBytes) {
      this.parts.push([String(name), value, filename === undefined ? 'blob' : String(filename), 'application/octet-stream']);
    } else {
      this.parts.push([String(name), String(value)]);
    }
  }

  body() { return native.multipart(this.parts, this.boundary)[0]; }
}

export default { FormData };
