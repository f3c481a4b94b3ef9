// Globals of every script; runs before it.
(() => {
  const native = globalThis.__linerate;
  const shown = (value) => {
    if (typeof value === 'string') return value;
    if (value instanceof Error) return value.stack ? `${value}\n${value.stack.trimEnd()}` : String(value);
    if (value === null || typeof value !== 'object') return typeof value === 'function' ? '[object Function]' : String(value);
    try { return JSON.stringify(value); } catch (error) { return String(value); }
  };
  const log = (level) => (...values) => native.log(level, values.map(shown).join(' '));
  globalThis.console = {
    log: log('info'), info: log('info'), debug: log('debug'), warn: log('warning'), error: log('error'),
    assert: (condition, ...values) => { if (!condition) native.log('error', ['Assertion failed', ...values.map(shown)].join(' ')); },
  };
  native.letters = (data) => {
    const bytes = data instanceof ArrayBuffer ? new Uint8Array(data) : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    let text = '';
    for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode.apply(null, bytes.subarray(i, i + 8192));
    return text;
  };
  globalThis.open = (path, mode) => native.open(String(path), mode === 'b');
  globalThis.global = globalThis;
  Object.defineProperty(globalThis, 'crypto', {
    configurable: true,
    get() {
      const value = native.webCrypto();
      Object.defineProperty(globalThis, 'crypto', { value, configurable: true, writable: true });
      return value;
    },
    set(value) { Object.defineProperty(globalThis, 'crypto', { value, configurable: true, writable: true }); },
  });
})();
