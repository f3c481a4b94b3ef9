// The module `k6/experimental/webcrypto`.
export const crypto = globalThis.crypto;
export default { crypto };
