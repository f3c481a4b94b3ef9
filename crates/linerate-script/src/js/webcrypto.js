// The global `crypto`: random values, digests and HMAC. Evaluated when a script uses it first.
(() => {
  const native = globalThis.__linerate;
  const HASHES = { 'SHA-1': ['sha1', 512], 'SHA-256': ['sha256', 512], 'SHA-384': ['sha384', 1024], 'SHA-512': ['sha512', 1024] };

  const nameOf = (algorithm) => String(algorithm !== null && typeof algorithm === 'object' ? algorithm.name : algorithm).toUpperCase();
  const failure = (name, message) => Object.assign(new Error(message), { name });
  const unsupported = (what) => failure('NotSupportedError', `crypto.subtle: ${what} is not supported by linerate`);
  const hashOf = (algorithm) => {
    const name = nameOf(algorithm);
    if (!(name in HASHES)) throw unsupported(`the hash ${name}`);
    return name;
  };
  const bytesOf = (data) => {
    if (data instanceof ArrayBuffer) return new Uint8Array(data.slice(0));
    if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength));
    throw new TypeError('crypto.subtle takes an ArrayBuffer or a view of one');
  };

  class CryptoKey {
    #secret;
    constructor(secret, algorithm, extractable, usages) {
      this.#secret = secret;
      Object.assign(this, { type: 'secret', algorithm, extractable: !!extractable, usages: [...usages] });
    }
    static secretOf(key, usage) {
      if (!(key instanceof CryptoKey)) throw new TypeError('crypto.subtle needs a CryptoKey');
      if (!key.usages.includes(usage)) throw failure('InvalidAccessError', `the key is not for "${usage}"`);
      return key.#secret;
    }
    static exported(key) {
      if (!(key instanceof CryptoKey)) throw new TypeError('crypto.subtle needs a CryptoKey');
      if (!key.extractable) throw failure('InvalidAccessError', 'the key cannot be extracted');
      return key.#secret.slice().buffer;
    }
  }

  const keyOf = (secret, algorithm, extractable, usages) => {
    const name = hashOf(algorithm.hash);
    return new CryptoKey(secret, { name: 'HMAC', hash: { name }, length: secret.length * 8 }, extractable, usages);
  };
  const needsHmac = (algorithm, what) => {
    if (nameOf(algorithm) !== 'HMAC') throw unsupported(`${what}() with ${nameOf(algorithm)}`);
  };
  const signed = (key, usage, data) => {
    const secret = CryptoKey.secretOf(key, usage);
    return native.digest(HASHES[key.algorithm.hash.name][0], secret.buffer, [bytesOf(data).buffer], 'binary');
  };
  const randomBytes = (size) => new Uint8Array(size === 0 ? 0 : native.randomBytes(size));

  const subtle = {
    async digest(algorithm, data) {
      return native.digest(HASHES[hashOf(algorithm)][0], undefined, [bytesOf(data).buffer], 'binary');
    },
    async importKey(format, data, algorithm, extractable, usages) {
      needsHmac(algorithm, 'importKey');
      if (format !== 'raw') throw unsupported(`importKey() of the format ${format}`);
      return keyOf(bytesOf(data), algorithm, extractable, usages);
    },
    async generateKey(algorithm, extractable, usages) {
      needsHmac(algorithm, 'generateKey');
      const bits = algorithm.length === undefined ? HASHES[hashOf(algorithm.hash)][1] : Number(algorithm.length);
      return keyOf(randomBytes(Math.ceil(bits / 8)), algorithm, extractable, usages);
    },
    async exportKey(format, key) {
      if (format !== 'raw') throw unsupported(`exportKey() as ${format}`);
      return CryptoKey.exported(key);
    },
    async sign(algorithm, key, data) { needsHmac(algorithm, 'sign'); return signed(key, 'sign', data); },
    async verify(algorithm, key, signature, data) {
      needsHmac(algorithm, 'verify');
      const [given, right] = [bytesOf(signature), new Uint8Array(signed(key, 'verify', data))];
      let differs = given.length ^ right.length;
      for (let i = 0; i < right.length; i++) differs |= given[i] ^ right[i];
      return differs === 0;
    },
  };
  for (const name of ['encrypt', 'decrypt', 'deriveKey', 'deriveBits', 'wrapKey', 'unwrapKey']) {
    subtle[name] = async () => { throw unsupported(`${name}()`); };
  }

  return {
    subtle,
    getRandomValues(array) {
      if (!ArrayBuffer.isView(array)) throw new TypeError('getRandomValues() needs a typed array of integers');
      if (array.byteLength > 65536) throw failure('QuotaExceededError', 'getRandomValues() gives 65536 bytes at most');
      new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(randomBytes(array.byteLength));
      return array;
    },
    randomUUID() {
      const bytes = randomBytes(16);
      bytes[6] = (bytes[6] & 15) | 64;
      bytes[8] = (bytes[8] & 63) | 128;
      const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
      return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
    },
  };
})();
