// The module `k6/crypto`.
const native = globalThis.__linerate;

class Hasher {
  constructor(algorithm, secret) {
    this.__algorithm = algorithm;
    this.__secret = secret;
    this.__parts = [];
  }

  update(data) { this.__parts.push(data); return this; }
  digest(encoding) { return native.digest(this.__algorithm, this.__secret, this.__parts, String(encoding)); }
}

export function createHash(algorithm) { return new Hasher(String(algorithm)); }
export function createHMAC(algorithm, secret) { return new Hasher(String(algorithm), secret); }
export function hmac(algorithm, secret, data, encoding) { return native.digest(String(algorithm), secret, [data], String(encoding)); }
export function md5(data, encoding) { return native.digest('md5', undefined, [data], String(encoding)); }
export function sha1(data, encoding) { return native.digest('sha1', undefined, [data], String(encoding)); }
export function sha256(data, encoding) { return native.digest('sha256', undefined, [data], String(encoding)); }
export function sha384(data, encoding) { return native.digest('sha384', undefined, [data], String(encoding)); }
export function sha512(data, encoding) { return native.digest('sha512', undefined, [data], String(encoding)); }
export function sha512_224(data, encoding) { return native.digest('sha512_224', undefined, [data], String(encoding)); }
export function sha512_256(data, encoding) { return native.digest('sha512_256', undefined, [data], String(encoding)); }
export function md4(data, encoding) { return native.digest('md4', undefined, [data], String(encoding)); }
export function ripemd160(data, encoding) { return native.digest('ripemd160', undefined, [data], String(encoding)); }
export function randomBytes(size) { return native.randomBytes(Number(size)); }

export default { createHash, createHMAC, hmac, md4, md5, sha1, sha256, sha384, sha512, sha512_224, sha512_256, ripemd160, randomBytes };
